#!/usr/bin/env python3
"""Does the simulator notice? Takes one safeguard after the other out of the core, in a copy of the
tree, and runs seeds until an invariant is broken. Says the first seed and the sentence of each, and
fails if a safeguard is not missed. Run it where the project can be compiled:

    sim/mutations.py [--seeds N] [--only WORD] [--work FOLDER]
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parent.parent

# name: (file, what the code says, what it says without the safeguard)
MUTATIONS = {
    "max + 1 in stop_call": (
        "src/core/quiesce.cc",
        "migration_->stop_call = highest + 1;",
        "migration_->stop_call = highest;"),
    "migration id in the notice": (
        "src/core/agent_quiesce.cc",
        "if (said.message.fields.migration != migration_) {",
        "if (said.message.fields.migration == 0) {"),
    "wait for all parked": (
        "src/core/step.cc",
        "{Step::kPark, &RankProgress::parked, nullptr,",
        "{Step::kPark, &RankProgress::checked, nullptr,"),
    "originals kept until the fence opens": (
        "src/core/handover.cc",
        "    source->second.role = ProxyRole::kFormer;\n",
        "    { source->second.role = ProxyRole::kFormer; wire::Envelope release;\n"
        "        release.mutable_release(); SendFormer(move.source, release); }\n"),
    "images kept when a slot is given back": (
        "src/core/handover.cc",
        "take_role(move.candidate, ProxyRole::kCandidate);",
        "DiscardProxy(move.candidate);"),
    "epoch check": (
        "src/core/messages.cc",
        "if (envelope.header().epoch() != slots_[slot].epoch)",
        "if (envelope.header().epoch() > slots_[slot].epoch)"),
    "attempt check": (
        "src/core/messages.cc",
        "if (!move || ready.candidate_attempt() != move->candidate.attempt)",
        "if (!move)"),
    "attempt check of a dump": (
        "src/core/messages.cc",
        "if (!move || dumped.candidate_attempt() != move->candidate.attempt)",
        "if (!move)"),
    "puts of a lost copy dropped": (
        "src/core/handover.cc",
        "const Result<> dropped = hub_.DropSlot(slot, generation_ + 1);",
        "const Result<> dropped = slot == slots_.size() ? Fail(\"\") : Result<>();"),
    "slot given back before the fence": (
        "src/core/failure.cc",
        "Move* move = revocable ? MoveOf(slot) : nullptr;",
        "Move* move = revocable ? nullptr : nullptr;"),
    "ranks that live on in held images": (
        "src/core/failure.cc",
        "if (step < Step::kReplace || migration_->fence_opened) return false;",
        "if (step < Step::kReplace || migration_) return false;"),
}


def run(command, **kwargs):
    return subprocess.run(command, capture_output=True, text=True, **kwargs)


def build(work):
    built = run(["ninja", "-C", work / "build", "-j2", "xmpi-sim"])
    if built.returncode != 0:
        sys.exit(built.stdout[-4000:] + built.stderr)


def first_failure(work, seeds):
    step = 500
    for first in range(1, seeds + 1, step):
        last = min(first + step - 1, seeds)
        result = run([work / "build/bin/xmpi-sim", "--seeds", f"{first}..{last}", "--no-shrink"])
        found = re.search(r"^seed (\d+): (.*)", result.stdout + result.stderr, re.MULTILINE)
        if found:
            return int(found[1]), found[2]
        if result.returncode != 0:
            sys.exit(f"xmpi-sim failed without a seed:\n{result.stdout[-2000:]}{result.stderr}")
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--only", default="")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("/tmp/xmpi-mutations"))
    options = parser.parse_args()
    tree = options.work / "tree"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(CHECKOUT, tree, ignore=shutil.ignore_patterns(".git", "build*", "result*"))
    launcher = ["-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
    configured = run(["cmake", "-S", tree, "-B", options.work / "build", "-G", "Ninja", *launcher])
    if configured.returncode != 0:
        sys.exit(configured.stderr)
    for name, (path, original, _) in MUTATIONS.items():
        if (tree / path).read_text().count(original) != 1:
            sys.exit(f"{path} does not have the code of '{name}' once; bring MUTATIONS up to date")
    survivors = []
    for name, (path, original, mutated) in MUTATIONS.items():
        if options.only not in name:
            continue
        source = tree / path
        text = source.read_text()
        source.write_text(text.replace(original, mutated))
        build(options.work)
        found = first_failure(options.work, options.seeds)
        source.write_text(text)
        if found:
            print(f"| {name} | {found[0]} | {found[1].split(':')[0]} |", flush=True)
        else:
            print(f"| {name} | none of {options.seeds} | |", flush=True)
            survivors.append(name)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
