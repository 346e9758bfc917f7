#!/usr/bin/env python3
"""node_memory.py FILE...: reads the byte count in each FILE a hundred times a second until SIGTERM, then writes
{FILE: {before_bytes, peak_bytes}}. For node_memory.bash, whose files are a cgroup's."""
import json
import signal
import sys

PERIOD_S = 0.01


def read(path):
    with open(path, encoding="ascii") as file:
        return int(file.read())


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    before = {path: read(path) for path in sys.argv[1:]}
    peaks = dict(before)
    while not signal.sigtimedwait([signal.SIGTERM], PERIOD_S):
        for path in peaks:
            peaks[path] = max(peaks[path], read(path))
    json.dump({path: {"before_bytes": before[path], "peak_bytes": peaks[path]} for path in peaks}, sys.stdout)


main()
