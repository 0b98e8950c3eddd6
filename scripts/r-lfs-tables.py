#!/usr/bin/env python3
"""The tables of docs/reproductions/r-lfs.md that are not claims, as Markdown, from the runs behind them:

    UMBRELLA_TRACES=FOLDER umbrella lab paper r-lfs --csv > runs.csv
    scripts/r-lfs-tables.py runs.csv
"""
import csv
import sys

UTILISATIONS = ["50", "60", "70", "80", "85", "90", "95"]
POLICIES = [(f"{short}-{regions}", f"r_lfs:regions={regions}", victim)
            for short, victim in (("Cost", "cost-benefit"), ("Greedy", "greedy")) for regions in (1, 2, 3)]
SCHEMES = ["r_lfs:regions=1", "r_lfs", "r_lfs:inside=100", "sepgc", "dac", "sfs", "sepbit", "organ", "oracle", "organ:centre=40"]
BY_UTILISATION = [*SCHEMES[:8], "organ:centre=40", "oracle"]
INPUTS = ["90/10, 50 % reads", "80/20, 50 % reads", "90/10", "zipf 0.99", "msr_rsrch_1_week", "msr_hm_1_writes90h",
          "msr_cut_80w_243s", "umass_financial1_head10k", "java_fs_ext4", "ycsb_rocksdb_1"]


def count(number):
    number = float(number)
    return f"{number / 1000:.1f} k" if number >= 10_000 else f"{number:.0f}"


def table(first, columns, rows):
    print(f"| {first} | " + " | ".join(columns) + " |")
    print("| --- |" + " ---: |" * len(columns))
    for name, cells in rows:
        print(f"| {name} | " + " | ".join(cells) + " |")
    print()


def main():
    with open(sys.argv[1], newline="") as file:
        runs = {(run["input"], run["scheme"], run["victim"], run["utilisation"]): run for run in csv.DictReader(file)}

    def run(data, scheme, victim="cost-benefit", utilisation="80"):
        scheme = scheme if (data, scheme, victim, utilisation) in runs else "r_lfs:regions=3"
        return runs[data, scheme, victim, utilisation]

    def way(found, which):
        return count(float(found[f"{which}_distance"]) / max(1, int(found[f"{which}_requests"])))

    def swept(title, first, rows, cell):
        print(f"{title}:\n")
        columns = [f"{percent} %" for percent in UTILISATIONS]
        table(first, columns, [(name, [cell(*of, percent) for percent in UTILISATIONS]) for name, of in rows])

    for data in (INPUTS[0], INPUTS[1], INPUTS[3], INPUTS[6], INPUTS[5]):
        swept(f"Blocks copied, {data}", "policy", [(name, (scheme, victim)) for name, scheme, victim in POLICIES],
              lambda scheme, victim, percent: count(run(data, scheme, victim, percent)["copied"]))

    def distance(scheme, victim, percent):
        found = run(INPUTS[0], scheme, victim, percent)
        return " / ".join(f"{int(found[f'{which}_distance']) / 1e6:.1f} M" for which in ("foreground", "all"))

    swept(f"Seek distance, {INPUTS[0]}, in blocks, of the trace's requests / of all", "policy",
          [(name, (scheme, victim)) for name, scheme, victim in POLICIES], distance)

    def named(scheme):
        return "log" if scheme == "r_lfs:regions=1" else f"`{scheme}`"

    def written(data, scheme):
        each = (float(run(data, scheme, victim)["write_amplification"]) for victim in ("cost-benefit", "greedy"))
        return "{:.3f} ({:.3f})".format(*each)

    print("Write amplification under cost-benefit (in brackets: greedy), the log 80 % full:\n")
    table("scheme", INPUTS, [(named(scheme), [written(data, scheme) for data in INPUTS]) for scheme in SCHEMES])
    print("Blocks between two requests under cost-benefit, of the trace's requests / of all:\n")
    table("scheme", INPUTS, [(named(scheme), [
        f"{way(run(data, scheme), 'foreground')} / {way(run(data, scheme), 'all')}" for data in INPUTS]) for scheme in SCHEMES])

    rows = [(named(scheme).strip("`"), (scheme,)) for scheme in BY_UTILISATION]
    swept("90/10 with reads, blocks between two requests of the trace", "scheme", rows,
          lambda scheme, percent: way(run(INPUTS[0], scheme, utilisation=percent), "foreground"))
    for data in (INPUTS[2], INPUTS[3]):
        swept(f"{data}, write amplification", "scheme", rows,
              lambda scheme, percent: f"{float(run(data, scheme, utilisation=percent)['write_amplification']):.3f}")


if __name__ == "__main__":
    main()
