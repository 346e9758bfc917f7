#!/usr/bin/env python3
"""The measuring part of `./dev bench launch`, run on node1: takes turns between xmpiexec and mpiexec.hydra and
writes one JSON object to stdout; progress goes to stderr. Times are start to end in seconds."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from pairs import VARIABLES, alternate, circumstances

HOSTS = "node1,node2,node3,node4"


def command(launcher, ranks, program):
    return [launcher, "-hosts", HOSTS, "-ppn", str(ranks // 4), "-n", str(ranks), program]


def seconds(argv, lines):
    began = time.monotonic()
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True,
                          env=os.environ | VARIABLES)
    took = time.monotonic() - began
    if done.stdout.count(b"\n") != lines:
        sys.exit(f"{argv[0]}: {done.stdout.count(10)} lines of output, expected {lines}")
    return took


def compare(name, ranks, program, lines, pairs):
    def run(launcher):
        return seconds(command(launcher, ranks, program), lines)

    ours, theirs = alternate(name, "s", run, pairs)
    ratios = [a / b for a, b in zip(ours, theirs)]
    return {
        "command": command("xmpiexec", ranks, os.path.basename(program)),
        "xmpiexec_s": ours, "hydra_s": theirs, "ratios": ratios,
        "xmpiexec_median_s": statistics.median(ours), "hydra_median_s": statistics.median(theirs),
        "ratio_median": statistics.median(ratios),
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--hello", required=True)
    words = parser.parse_args()
    hello = compare("hello", words.ranks, words.hello, words.ranks, words.pairs)
    true = compare("true", words.ranks, "/bin/true", 0, words.pairs)
    json.dump({
        "ratio_median": hello["ratio_median"],
        "true_ratio_median": true["ratio_median"],
        "hello": hello,
        "true": true,
        "ranks": words.ranks, "hosts": 4, "pairs": words.pairs, "variables": VARIABLES,
        **circumstances(f"./dev bench launch --pairs {words.pairs} --ranks {words.ranks}"),
    }, sys.stdout, indent=2)
    print()
    print(f"median ratio: hello {hello['ratio_median']:.3f}, true {true['ratio_median']:.3f}", file=sys.stderr)


main()
