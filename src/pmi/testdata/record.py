#!/usr/bin/env python3
"""Records what real MPI programs and their process manager say to each other over PMI-1.

  mpiexec.hydra -n 2 python3 record.py DIR PROGRAM ARGS   stands between mpiexec and each rank
  record.py --merge DIR TITLE [FACT...] > NAME.txt        makes the transcript of that run

A line from a rank is noted before it is passed on, a line to a rank after it came, so the order of
the merged lines never shows an answer before what caused it. Names that differ from run to run are
replaced: KVS for the kvs name, HWLOC for the topology file. A FACT is what mpiexec was told and the
server under test must be told too: "universe 7", "appnums 0 1" (one per rank).
"""
import glob
import os
import re
import select
import socket
import sys
import time


def relay(directory, argv):
    server = socket.socket(fileno=int(os.environ["PMI_FD"]))
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        os.set_inheritable(theirs.fileno(), True)
        os.environ["PMI_FD"] = str(theirs.fileno())
        os.execvp(argv[0], argv)
    theirs.close()
    rank = int(os.environ["PMI_RANK"])
    log = open(os.path.join(directory, f"{rank}.log"), "w")
    print(0, rank, "starts-slot", int(os.environ.get("MPI_LOCALRANKID") == "0"), file=log)
    unfinished = {">": b"", "<": b""}

    def note(mark, data):
        now = time.monotonic_ns()
        *lines, unfinished[mark] = (unfinished[mark] + data).split(b"\n")
        for line in lines:
            print(now, rank, mark, line.decode(), file=log, flush=True)

    while True:
        ready, _, _ = select.select([ours, server], [], [])
        if ours in ready:
            data = ours.recv(65536)
            if not data:
                break
            note(">", data)
            server.sendall(data)
        if server in ready:
            data = server.recv(65536)
            if not data:
                break
            note("<", data)
            ours.sendall(data)
    status = os.waitpid(pid, 0)[1]
    return os.waitstatus_to_exitcode(status) & 0xFF


def merge(directory, title, facts):
    events = []
    for name in sorted(glob.glob(os.path.join(directory, "*.log"))):
        for line in open(name):
            when, rank, mark, text = line.rstrip("\n").split(" ", 3)
            events.append((int(when), int(rank), mark, text))
    slots = []
    for _, rank, mark, text in sorted(e for e in events if e[2] == "starts-slot"):
        if text == "1":
            slots.append([])
        slots[-1].append(str(rank))
    print("#", title)
    print("slots", " ".join(",".join(slot) for slot in slots))
    for fact in facts:
        print(fact)
    for _, rank, mark, text in sorted((e for e in events if e[2] != "starts-slot"),
                                      key=lambda e: e[0]):
        text = re.sub(r"kvsname=\S+", "kvsname=KVS", text)
        text = re.sub(r"/tmp/hydra_hwloc_xmlfile_\w+", "HWLOC", text)
        print("rank", rank, mark, text)


if __name__ == "__main__":
    if sys.argv[1] == "--merge":
        merge(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        sys.exit(relay(sys.argv[1], sys.argv[2:]))
