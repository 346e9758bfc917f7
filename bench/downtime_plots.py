#!/usr/bin/env python3
"""downtime_plots.py FILE.json: draws what `./dev bench downtime` measured, by gnuplot, as FILE_*.svg beside it."""
import json
import pathlib
import subprocess
import sys

NAMES = {"paper": "paper's method", "plain": "stop and copy", "precopy": "with pre-copy"}
PHASES = ("dump", "transfer", "restore")
HEAD = """set terminal svg size 720,440 font 'sans,13' background 'white'
set output '{file}'
set title '{title}'
set key outside right
set grid ytics lc rgb '#dddddd'
"""


def number(value):
    return "NaN" if value is None else f"{value:.6g}"


def table(name, lines):
    return f"${name} << EOD\n" + "".join(" ".join(line) + "\n" for line in lines) + "EOD\n"


def curves(title, xlabel, ylabel, rows, x, y, variant=lambda row: "", settings=""):
    """A line for each method and variant: a colour is a method, a kind of point and dash a variant."""
    variants = list(dict.fromkeys(map(variant, rows)))
    script = f"set xlabel '{xlabel}'\nset ylabel '{ylabel}'\n{settings}\n"
    plots = []
    for index, (method, name) in enumerate(NAMES.items()):
        for number_of, wanted in enumerate(variants):
            points = sorted((x(row), y(row[method])) for row in rows if method in row and variant(row) == wanted)
            if points:
                data = f"s{len(plots)}"
                script += table(data, [(number(at), number(value)) for at, value in points])
                plots.append(f"${data} using 1:2 with linespoints lw 2 ps 0.7 lc {index + 1} pt {number_of * 2 + 5} "
                             f"dt {number_of + 1} title \"{', '.join(filter(None, (name, wanted)))}\"")
    return title, script + "plot " + ", ".join(plots)


def link_name(row):
    return "no limit" if row["link"] == "none" else row["link"].replace("gbit", " Gbit/s")


def ranks(grid):
    rows = [row for row in grid if row["link"] == "none" and row["rewrite_percent_per_s"] == 5]
    if len({row["ranks"] for row in rows}) < 2:
        return None
    return curves("Move time by ranks on the node", "ranks per node", "move time in s", rows,
                  lambda row: row["ranks"], lambda method: method["move_ms"] / 1000,
                  lambda row: f"{row['memory_mib']} MiB", "set logscale xy\nset xtics (1, 2, 4, 8, 16)\nset xrange [1:16]")


def rewriting(grid):
    memory = max(row["memory_mib"] for row in grid)
    rows = [row for row in grid if row["ranks"] == 4 and row["memory_mib"] == memory]
    if len({row["rewrite_percent_per_s"] for row in rows}) < 2:
        return None
    return curves(f"Downtime of 4 ranks x {memory} MiB", "share of pages rewritten in % per s", "downtime in s", rows,
                  lambda row: row["rewrite_percent_per_s"], lambda method: method["downtime_ms"] / 1000, link_name,
                  "set logscale y")


def phases(grid):
    memory = max(row["memory_mib"] for row in grid)
    lines = []
    for row in grid:
        if (row["ranks"], row["memory_mib"], row["rewrite_percent_per_s"]) == (4, memory, 5):
            lines += [[f'"{name}\\n{link_name(row)}"'] + [number(row[method]["phases_ms"][phase] / 1000) for phase in PHASES]
                      for method, name in NAMES.items() if method in row]
    bars = ", ".join(f"$d using {index + 2}:xtic(1) title '{phase}'" for index, phase in enumerate(PHASES))
    return (f"What moving 4 ranks x {memory} MiB takes",
            "set style data histogram\nset style histogram rowstacked\nset style fill solid 0.8\nset boxwidth 0.6\n"
            "set xtics font 'sans,9' rotate by -30\nset bmargin 5\nset ylabel 's'\nset yrange [0:*]\n" +
            table("d", lines) + "plot " + bars)


def staying(rows):
    if not rows:
        return None
    return curves("Move time by nodes that stay", "staying nodes", "move time in ms", rows,
                  lambda row: row["staying"], lambda method: method["move_ms"], settings="set yrange [0:*]")


def main():
    source = pathlib.Path(sys.argv[1])
    report = json.loads(source.read_text(encoding="utf-8"))
    grid = report["grid"]
    plots = {"phases": phases(grid), "ranks": ranks(grid), "rewriting": rewriting(grid),
             "staying": staying(report["staying"])}
    for name, plot in plots.items():
        if plot:
            title, script = plot
            file = source.with_name(f"{source.stem}_{name}.svg")
            subprocess.run(["gnuplot"], input=HEAD.format(file=file, title=title) + script, text=True, check=True)


main()
