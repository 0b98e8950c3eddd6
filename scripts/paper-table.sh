#!/usr/bin/env bash
# The table of a paper's claims, as Markdown, from two runs of it:
#   umbrella lab paper tesa --json > full.json; umbrella lab paper tesa --quick --json > quick.json
#   scripts/paper-table.sh full.json quick.json
set -euo pipefail

readonly full=${1:?"usage: scripts/paper-table.sh FULL.json QUICK.json"}
readonly quick=${2:?"usage: scripts/paper-table.sh FULL.json QUICK.json"}
command -v jq >/dev/null || { echo "paper-table: jq is missing: apt-get install jq" >&2; exit 1; }

jq --raw-output --slurpfile quick "$quick" '
    def number: (. * 10 | round / 10 | if . == 0 then 0 else . end | tostring);
    def wanted:
        (.published | number) as $p |
        {at_least: "at least \($p)", at_most: "at most \($p)", about_zero: "\($p), within \(.expect.points // 0)",
         within: "\($p), within \(.expect.points // 0)", sign: $p,
         between: "\(.published) to \(.expect.to)"}[.expect.kind] + " \(.unit)";
    def verdict: {holds: "holds", sign_only: "sign only", fails: "**fails**"}[.verdict];
    def count(list; $verdict): [list[] | select(.verdict == $verdict)] | length;
    def counts(list): "\(count(list; "holds")) of \(list | length) hold, \(count(list; "sign_only")) more in sign only, \(count(list; "fails")) fail";
    $quick[0] as $quick
    | (INDEX($quick[]; .figure + "/" + .claim)) as $small
    | "Full size: \(counts(.)). Quick: \(counts($quick)).",
      "",
      "| figure | claim | published | full | | quick | |",
      "| --- | --- | --- | ---: | --- | ---: | --- |",
      (.[] | $small[.figure + "/" + .claim] as $other
          | "| \(.figure) | \(.claim) | \(wanted) | \(.measured | number) | \(verdict) | "
            + (if $other then "\($other.measured | number) | \($other | verdict) |" else "not run | |" end))
' "$full"
