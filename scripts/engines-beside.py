#!/usr/bin/env python3
"""Runs two builds of the benchmark `engines` in turn, and prints what each row costs in the first, and in the second as a share of that: the median of all pairs, with
the least and the greatest.

    scripts/engines-beside.py BEFORE AFTER [--pairs N] [--dir DIR] [--operations N] [--on PROFILE]

BEFORE and AFTER are programs that `cargo bench -p umbrella-block --bench engines --no-run` has built (docs/benchmarks.md says how to build one of an earlier commit)."""

import argparse
import json
import statistics
import subprocess

SHOWN = {"cpu_us": "processor", "wall_us": "time", "requests": "requests", "bytes_read": "bytes read", "bytes_written": "bytes written"}
EXACT = ["requests", "bytes_read", "bytes_written"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--dir", default="/tmp")
    parser.add_argument("--operations", type=int, default=8000)
    parser.add_argument("--on")
    args = parser.parse_args()

    def once(program):
        words = [program, "--json", "--rounds", "1", "--dir", args.dir, "--operations", str(args.operations)]
        words += ["--on", args.on] if args.on else []
        return json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)

    pairs = []
    for number in range(args.pairs):
        # Who comes first changes, so that neither always has the warmer machine.
        order = [args.before, args.after][:: 1 if number % 2 == 0 else -1]
        runs = [once(program) for program in order]
        pairs.append(runs if number % 2 == 0 else runs[::-1])
    print("| | processor before, us | processor | time | requests | bytes read | bytes written |")
    print("| --- | ---: | --- | --- | ---: | ---: | ---: |")
    for row in pairs[0][0]:
        cells = []
        for figure in SHOWN:
            ratios = sorted(after[row][figure] / before[row][figure] if before[row][figure] else 1.0 for before, after in pairs)
            middle = f"{statistics.median(ratios):.2f}"
            cells.append(middle if figure in EXACT else f"{middle} ({ratios[0]:.2f}-{ratios[-1]:.2f})")
        before = statistics.median(before[row]["cpu_us"] for before, _ in pairs)
        print(f"| {row} | {before:.2f} | {' | '.join(cells)} |")


main()
