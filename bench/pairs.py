"""What measurements against mpiexec.hydra have in common: both launchers take turns in one run."""
import datetime
import os
import platform
import subprocess
import sys

LAUNCHERS = ("xmpiexec", "mpiexec.hydra")
# What xmpiexec sets by itself, and what the lab sets because ranks outnumber cores.
VARIABLES = {"UCX_TLS": "^sm", "MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}


def alternate(name, unit, run, pairs):
    """The figures of run(launcher) in `unit`, a list per launcher: after a warm-up each, in turns, and who
    goes first changes from pair to pair."""
    figures = {launcher: [] for launcher in LAUNCHERS}
    for launcher in LAUNCHERS:
        run(launcher)
    for pair in range(pairs):
        for launcher in LAUNCHERS if pair % 2 == 0 else LAUNCHERS[::-1]:
            figures[launcher].append(run(launcher))
        latest = ", ".join(f"{launcher} {values[-1]:.3f} {unit}" for launcher, values in figures.items())
        print(f"{name} {pair + 1}/{pairs}: {latest}", file=sys.stderr)
    return list(figures.values())


def circumstances(command):
    """What was run, where and when, for the JSON."""
    version = subprocess.run(["mpichversion"], capture_output=True, text=True, check=False).stdout
    return {
        "command": command,
        "mpich": version.split("\n")[0].split()[-1] if version else "",
        "machine": {"system": platform.platform(), "cores": os.cpu_count(), "load": os.getloadavg()},
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }
