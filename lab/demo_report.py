#!/usr/bin/env python3
"""Shows what a demo run did: checksums, phases, where each rank was before and after.

usage: demo_report.py RESULTS CHECKSUM_PLAIN CHECKSUM_MOVED [JSON_FILE]
Exit code 0 only when the move succeeded and both results are bit-identical.
"""
import json
import pathlib
import sys

PHASES = ("prepare", "quiesce", "dump", "transfer", "restore", "handover", "reconnect")


def main() -> int:
    results = pathlib.Path(sys.argv[1])
    plain, moved = sys.argv[2], sys.argv[3]
    move = json.loads((results / "evacuate.json").read_text())
    same = plain == moved and plain != ""

    print(f"\nphase        ms\n---------  --------")
    for phase in PHASES:
        print(f"{phase:<9}  {move['phases_ms'][phase]:8.1f}")
    print(f"\ndowntime {move['downtime_ms']:.1f} ms, move time {move['move_ms']:.1f} ms, "
          f"images {move['image_bytes'] / 2**20:.1f} MiB, all ranks stopped at call {move['stop_call']}")

    print("\nrank  before            after")
    for rank in move["ranks"]:
        print(f"{rank['rank']:>4}  {move['from']:<7} {rank['pid_before']:>8}  "
              f"{move['to']:<7} {rank['pid_after']:>8}")

    print(f"\nchecksum undisturbed  {plain or 'missing'}\nchecksum moved        {moved or 'missing'}"
          f"   {'identical' if same else 'DIFFERENT'}")
    for what, pattern in (("event logs", "*.jsonl"), ("pictures", "*.pgm")):
        print(f"{what}: " + ", ".join(str(path) for path in sorted(results.glob(pattern))))

    ok = bool(move["ok"]) and same
    if len(sys.argv) > 4:
        summary = {
            "ok": ok,
            "checksum_plain": plain,
            "checksum_moved": moved,
            "moved_ranks": len(move["ranks"]),
            "from": move["from"],
            "to": move["to"],
            "phases_ms": move["phases_ms"],
            "downtime_ms": move["downtime_ms"],
            "move_ms": move["move_ms"],
        }
        pathlib.Path(sys.argv[4]).write_text(json.dumps(summary, indent=2) + "\n")
    print("\nThe job went on as if nothing had happened." if ok else "\nThe demo FAILED.")
    return 0 if ok else 1


sys.exit(main())
