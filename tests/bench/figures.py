#!/usr/bin/env python3
"""The figures of the benchmarks: bench_note of bench.c and note() append them, a line of
JSON each, to the file that SNOWSHED_FIGURES names.

usage: tests/bench/figures.py FILE DIRECTORY
           one table of all, and in the directory figures.json and figures.svg
       tests/bench/figures.py --against BEFORE NOW
           of two files whose runs alternated, the ratios, and what became slower

Exit status of --against: 1 if something did, 2 if they have no figure in common. It
compares the turns one by one with the signed-rank test of Wilcoxon, and allows a chance
of 5 percent that any of all figures is named for no reason. A change of less than 1
percent is never named.
"""

import json
import math
import os
import statistics
import sys

CHANCE = 0.05
LEAST_CHANGE = 1.01


def note(name, unit, values, better="lower", bar=None, exact=False):
    """As bench_note of bench.h."""
    path = os.environ.get("SNOWSHED_FIGURES")
    if not path:
        return
    ordered = sorted(values)
    low, high = (ordered[int((len(ordered) - 1) * part)] for part in (0.25, 0.75))
    figure = {"name": name, "unit": unit, "value": statistics.median(ordered), "low": low,
              "high": high, "better": better, **({"bar": bar} if bar else {}), "exact": exact}
    with open(path, "a", encoding="ascii") as file:
        file.write(json.dumps(figure) + "\n")


def read(path):
    with open(path, encoding="ascii") as file:
        return [json.loads(line) for line in file]


def short(value):
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


# ------------------------------------------------------------------- one run

def part_of_bar(figure, value):
    """Above 1: the bar is missed."""
    return value / figure["bar"] if figure["better"] == "lower" else figure["bar"] / value


def is_met(figure):
    return part_of_bar(figure, figure["value"]) <= 1


def print_table(figures):
    width = max(len(f["name"]) for f in figures)
    print(f"{'':{width}} {'median':>9} {'middle half':>19} {'':5} {'bar':>8}")
    for f in figures:
        between = f"{short(f['low'])} to {short(f['high'])}" if f["low"] < f["high"] else ""
        line = f"{f['name']:{width}} {short(f['value']):>9} {between:>19} {f['unit']:5}"
        if "bar" in f:
            sign = "<=" if f["better"] == "lower" else ">="
            line += f" {sign} {short(f['bar']):>5}  {'met' if is_met(f) else 'MISSED'}"
        print(line.rstrip())


def draw(figures, path):
    """Those with a bar, as parts of it."""
    import matplotlib  # pylint: disable=import-outside-toplevel
    matplotlib.use("Agg")
    from matplotlib import pyplot  # pylint: disable=import-outside-toplevel
    figures = [f for f in figures if "bar" in f][::-1]
    _, axes = pyplot.subplots(figsize=(9, 1.2 + 0.3 * len(figures)), layout="constrained")
    for y, f in enumerate(figures):
        low, middle, high = sorted(part_of_bar(f, f[name]) for name in ("low", "value", "high"))
        axes.errorbar(middle, y, xerr=[[middle - low], [high - middle]], fmt="o", capsize=3,
                      color="tab:green" if is_met(f) else "tab:red")
    axes.axvline(1, color="black")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(lambda x, _: f"{x:g}"))
    axes.set_yticks(range(len(figures)), [f["name"] for f in figures])
    axes.set_ylim(-0.7, len(figures) - 0.3)
    axes.grid(alpha=0.3)
    side = axes.secondary_yaxis("right")
    side.set_yticks(range(len(figures)),
                    [f"{short(f['value'])} {f['unit']}".strip() + f" (bar {short(f['bar'])})"
                     for f in figures])
    axes.set_xlabel("part of the bar; right of 1 the bar is missed")
    pyplot.savefig(path)


def show(path, directory):
    figures = read(path)
    os.makedirs(directory, exist_ok=True)
    print_table(figures)
    with open(os.path.join(directory, "figures.json"), "w", encoding="ascii") as file:
        json.dump(figures, file, indent=1)
        file.write("\n")
    draw(figures, os.path.join(directory, "figures.svg"))
    print(f"\n{directory}: figures.json, and figures.svg, which shows those with a bar")


# ------------------------------------------------------------------ two runs

def chance_of(logs):
    """The chance that as much of what these turns say is 'slower' by noise alone: the
    one-sided signed-rank test, exact for their number."""
    logs = sorted((x for x in logs if x != 0), key=abs)
    down = sum(rank for rank, x in enumerate(logs, 1) if x < 0)
    ways = [1] + [0] * (len(logs) * (len(logs) + 1) // 2)  # to make a sum of ranks
    for rank in range(1, len(logs) + 1):
        for total in range(len(ways) - 1, rank - 1, -1):
            ways[total] += ways[total - rank]
    return sum(ways[:down + 1]) / 2 ** len(logs)


def is_slower(figure, ratios, chance):
    worse = [r if figure["better"] == "lower" else 1 / r for r in ratios]
    if statistics.median(worse) < LEAST_CHANGE:
        return False
    return figure["exact"] or chance_of([math.log(r) for r in worse]) < chance


def by_name(figures):
    turns = {}
    for f in figures:
        turns.setdefault(f["name"], []).append(f)
    return turns


def print_ratios(name, width, unit, pairs, ratios):
    ratios, last = sorted(ratios), len(ratios) - 1
    before, now = (short(statistics.median(pair[side] for pair in pairs)) for side in (0, 1))
    print(f"{name:{width}} {before:>9} {now:>9} {unit:5} {statistics.median(ratios):10.3f}   "
          f"{ratios[last // 4]:.3f} to {ratios[last - last // 4]:.3f}")


def compare(before_path, now_path):
    before, now = by_name(read(before_path)), by_name(read(now_path))
    both, slower, few = [name for name in now if name in before], [], []
    for name in [*now, *before]:
        if name not in both:
            print(f"skipped, because one of the two lacks it: {name}")
    if not both:
        print("There is nothing to compare.")
        return 2
    width = max(map(len, both))
    print(f"{'':{width}} {'before':>9} {'now':>9} {'':5} {'now/before':>10}   middle half")
    for name in both:
        pairs = [(b["value"], n["value"]) for b, n in zip(before[name], now[name])]
        ratios, figure = [n / b for b, n in pairs if b and n], now[name][0]
        if not ratios:
            continue
        print_ratios(name, width, figure["unit"], pairs, ratios)
        if not figure["exact"] and 2 ** -len(ratios) >= CHANCE / len(both):
            few.append(len(ratios))
        if is_slower(figure, ratios, CHANCE / len(both)):
            slower.append(name)
    if few:
        print(f"{len(few)} of {len(both)} figures have too few turns to tell a change from "
              f"noise; the fewest are {min(few)}.")
    print("\n".join(["Slower now:", *("  " + name for name in slower)] if slower
                    else ["Nothing is slower beyond the noise."]))
    return 1 if slower else 0


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "--against":
        return compare(*arguments[1:])
    if len(arguments) != 2:
        sys.exit(__doc__)
    return show(*arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
