#!/usr/bin/env python3
"""The measuring part of `./dev bench output`, run on node5: how many MB/s of the ranks' output arrive at the
launcher's stdout. xmpiexec and mpiexec.hydra take turns; one JSON object goes to stdout, progress to stderr."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from pairs import VARIABLES, alternate, circumstances

RANKS = 4


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--mb", type=int, default=1024, help="of all ranks together")
    parser.add_argument("--flood", required=True)
    words = parser.parse_args()
    program = [words.flood, str(words.mb // RANKS)]

    def rate(launcher):
        argv = [launcher, "-hosts", "node1,node2", "-ppn", "2", "-n", str(RANKS), *program]
        began = time.monotonic()
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              env=os.environ | VARIABLES) as job:
            arrived = 0
            while data := job.stdout.read1(1 << 20):
                arrived += len(data)
        if job.returncode != 0:
            sys.exit(f"{launcher} ended with {job.returncode}")
        return arrived / 1e6 / (time.monotonic() - began)

    ours, theirs = alternate("output", "MB/s", rate, words.pairs)
    json.dump({
        "rate_median_mb_s": statistics.median(ours),
        "hydra_rate_median_mb_s": statistics.median(theirs),
        "ratio_median": statistics.median(a / b for a, b in zip(ours, theirs)),
        "rates_mb_s": ours, "hydra_rates_mb_s": theirs,
        "ranks": RANKS, "hosts": 2, "mb": words.mb, "pairs": words.pairs, "variables": VARIABLES,
        **circumstances(f"./dev bench output --pairs {words.pairs}"),
    }, sys.stdout, indent=2)
    print()


main()
