#!/usr/bin/env python3
"""Turns the samples of `./dev bench soak` into its JSON. soak_report.py SAMPLES FOOTPRINTS FACTS: lines of
"job move fds rss_kb" of the launcher, lines of "namespaces bytes processes" of all hosts between jobs, and what to
pass on. `ok` is that nothing grows beyond noise: descriptors and processes not at all, memory below 16 kB a move."""
import json
import os
import platform
import statistics
import sys

RSS_LIMIT_KB = 16
WARM_UP_MOVES = 3
MANY_MOVES = 8  # for a slope to mean something


def slope(points):
    n = len(points)
    mean_x = sum(x for x, _ in points) / n
    mean_y = sum(y for _, y in points) / n
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def of_jobs(lines):
    jobs = {}
    for line in lines:
        job, move, fds, rss = map(int, line.split())
        if move >= WARM_UP_MOVES:
            jobs.setdefault(job, []).append((move, fds, rss))
    return [samples for samples in jobs.values() if samples[-1][0] >= MANY_MOVES]


def main():
    with open(sys.argv[1], encoding="utf-8") as samples, open(sys.argv[2], encoding="utf-8") as footprints:
        jobs = of_jobs(samples)
        held = [tuple(map(int, line.split())) for line in footprints]
    report = json.loads(sys.argv[3])
    # The first job warms up what every host keeps (CRIU's cache of the kernel's features).
    namespaces, held_bytes, processes = (last - first for first, last in zip(held[1], held[-1]))
    report |= {
        "launcher_fd_growth": max(samples[-1][1] - samples[0][1] for samples in jobs),
        "launcher_rss_growth_kb_per_move": round(statistics.median(
            slope([(move, rss) for move, _, rss in samples]) for samples in jobs), 2),
        "namespaces_growth": namespaces,
        "tmpfs_bytes_growth": held_bytes,
        "processes_growth": processes,
        "machine": {"system": platform.system(), "cores": os.cpu_count()},
    }
    report["ok"] = (report["identical"] and report["launcher_fd_growth"] <= 0
                    and report["launcher_rss_growth_kb_per_move"] <= RSS_LIMIT_KB
                    and namespaces <= 0 and held_bytes <= 0 and processes <= 0)
    json.dump(report, sys.stdout, indent=2)
    print()


main()
