#!/usr/bin/env python3
"""Turns the samples of `./dev bench downtime` into its JSON. downtime_report.py SAMPLES COMMAND: a line of JSON per
move or measurement, and what was typed. All figures are medians over the rounds after the warm-up (round 0).

move_ms        from the dump's start to the last rank restored
downtime_ms    from the first rank that stops to the last that goes on. The paper's is its move time and the pair's
               quiesce and reconnect, which are ours
wire_bytes     what the move sent, pre-copy included, as the job tells it; link_bytes is the source's network counter
ratio_median   median of the rounds' ratios of move times, the paper's to ours
limit_ms       the least that a move can take: what was sent after the stop over the rate of the link (of a core that
               seals for TLS, where that is the lower: limited_by says which), and one pass over all memory with as
               many readers as there are ranks and cores for. limit_ratio is move_ms over it"""
import json
import statistics
import sys

from pairs import circumstances

ROW = ("ranks", "memory_mib", "rewrite_percent_per_s", "link", "staying", "slots")
HEADLINE = (("plain", "plain", "none"), ("precopy5", "precopy", "none"), ("precopy5_1gbit", "precopy", "1gbit"))


def median(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


class References:
    """The rates of this machine's parts, measured in the same run."""

    def __init__(self, samples):
        self.links, self.passes = {}, {}
        self.seal = None
        for sample in samples:
            if sample["list"] == "rates":
                self.links.setdefault(sample["link"], {}).update(
                    {key: value for key, value in sample.items() if key.endswith("_per_s")})
            elif sample["list"] == "pass":
                self.passes[sample["threads"]] = sample["pass_bytes_per_s"]
            elif sample["list"] == "seal":
                self.seal = sample["seal_bytes_per_s"]
        criu = [sample for sample in samples if sample["list"] == "criu" and sample["round"] > 0]
        self.criu = {f"{what}_ms": median([sample[f"{what}_ms"] for sample in criu]) for what in ("dump", "restore")}

    def limit(self, row, sample):
        """The least time in ms, and what the wire's part of it is limited by."""
        wire = {"link": self.links[row["link"]]["tcp_bytes_per_s"], "tls": self.seal}
        slower = min(wire, key=wire.get)
        readers = max((n for n in self.passes if n <= row["ranks"]), default=min(self.passes))
        seconds = changed_bytes(sample) / wire[slower] + sample["image_bytes"] / self.passes[readers]
        return seconds * 1000, slower

    def json(self):
        return {"link": self.links, "pass_bytes_per_s": {str(n): rate for n, rate in self.passes.items()},
                "tls_seal_bytes_per_s": self.seal, "criu_one_host_256_mib": self.criu}


def changed_bytes(sample):
    """What was sent after the stop. A build without pre-copy does not say: it is everything."""
    return sample.get("wire_bytes", sample["image_bytes"])


def sent_bytes(sample):
    if "wire_bytes" not in sample:
        return sample["link_bytes"]
    return sample["wire_bytes"] + sample.get("precopy_bytes", 0)


def summary(samples):
    """Of one method in one row: samples by round."""
    rounds = [samples[number] for number in sorted(samples)]
    result = {key: median([sample.get(key) for sample in rounds])
              for key in ("move_ms", "downtime_ms", "image_bytes", "link_bytes", "source_extra_bytes",
                          "target_extra_bytes") if key in rounds[0]}
    if "phases_ms" in rounds[0]:
        result["phases_ms"] = {phase: median([sample["phases_ms"][phase] for sample in rounds])
                               for phase in rounds[0]["phases_ms"]}
    if "link_bytes" in rounds[0]:
        result["wire_bytes"] = median([sent_bytes(sample) for sample in rounds])
    if "steps_per_s" in rounds[0]:
        result["steps_per_s"] = {when: median([sample["steps_per_s"][when] for sample in rounds])
                                 for when in rounds[0]["steps_per_s"]}
    result["move_ms_of_rounds"] = [sample["move_ms"] for sample in rounds]
    return result


def compared(row, methods, references):
    """One row of the grid: each method's summary, and ours against the paper's and the limit."""
    paper, plain = methods["paper"], methods["plain"]
    for number, sample in paper.items():
        pair = plain[number]
        sample["downtime_ms"] = sample["move_ms"] + pair["downtime_ms"] - pair["move_ms"]
    result = dict(row)
    for name, samples in methods.items():
        result[name] = summary(samples)
        if name == "paper":
            continue
        result[name]["ratio_median"] = median(
            [paper[number]["move_ms"] / sample["move_ms"] for number, sample in samples.items()])
        limits = [references.limit(row, sample) for sample in samples.values()]
        result[name]["changed_bytes"] = median([changed_bytes(sample) for sample in samples.values()])
        result[name]["limit_ms"] = median([limit for limit, _ in limits])
        result[name]["limit_ratio"] = median(
            [sample["move_ms"] / limit for sample, (limit, _) in zip(samples.values(), limits)])
        result[name]["limited_by"] = limits[0][1]
    return result


def rows(samples, name):
    """The list's samples as (row, {method: {round: sample}}), in the order of the run."""
    found = {}
    for sample in samples:
        if sample["list"] == name and sample["round"] > 0:
            key = tuple(sample["row"].get(field) for field in ROW)
            found.setdefault(key, (sample["row"], {}))[1].setdefault(sample["method"], {})[sample["round"]] = sample
    return list(found.values())


def headline(grid):
    memory = max((row["memory_mib"] for row in grid if row["ranks"] == 4), default=0)
    for name, method, link in HEADLINE:
        for row in grid:
            if (row["ranks"], row["memory_mib"], row["rewrite_percent_per_s"], row["link"]) != (4, memory, 5, link):
                continue
            if method in row:
                yield {"name": name} | {key: row[method][key] for key in (
                    "ratio_median", "limit_ratio", "downtime_ms", "move_ms", "wire_bytes", "limited_by")}


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        samples = [json.loads(line) for line in file]
    references = References(samples)
    grid = [compared(row, methods, references) for row, methods in rows(samples, "grid")]
    report = {"headline": list(headline(grid))}
    named = {row["name"] for row in report["headline"]}
    report["missing"] = [f"{name}: this build has no such way to move" for name, *_ in HEADLINE if name not in named]
    report |= {"references": references.json(), "grid": grid}
    for name in ("staying", "slots", "memory", "fast"):
        report[name] = [row | {method: summary(by_round) for method, by_round in methods.items()}
                        for row, methods in rows(samples, name)]
    report["skipped"] = [sample["row"] | {"why": sample["why"]} for sample in samples if sample["list"] == "skipped"]
    report["rounds"] = max(sample.get("round", 0) for sample in samples)
    json.dump(report | circumstances(sys.argv[2].strip()), sys.stdout, indent=2)
    print()
    for row in report["headline"]:
        print(f"{row['name']}: the paper's move takes {row['ratio_median']:.1f} times as long, the limit is at "
              f"1/{row['limit_ratio']:.1f}", file=sys.stderr)


main()
