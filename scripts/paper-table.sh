#!/usr/bin/env bash
# The table of a paper's claims, as Markdown, from two runs of it:
#   umbrella lab paper tesa --json > full.json; umbrella lab paper tesa --quick --json > quick.json
#   scripts/paper-table.sh full.json quick.json
# A second table has the readings of the text that are not the primary one.
set -euo pipefail

readonly full=${1:?"usage: scripts/paper-table.sh FULL.json QUICK.json"}
readonly quick=${2:?"usage: scripts/paper-table.sh FULL.json QUICK.json"}
command -v jq >/dev/null || { echo "paper-table: jq is missing: apt-get install jq" >&2; exit 1; }

jq --raw-output --slurpfile quick "$quick" '
    def number: (. * 10 | round / 10 | if . == 0 then 0 else . end | tostring);
    def wanted:
        (.published | number) as $p |
        {at_least: "at least \($p)", at_most: "at most \($p)", about_zero: "\($p), within \(.expect.points // 0)",
         no_more: "not above \($p) by \(.expect.points // 0)", no_less: "not below \($p) by \(.expect.points // 0)",
         within: "\($p), within \(.expect.points // 0)", sign: $p,
         between: "\(.published) to \(.expect.to)"}[.expect.kind] + " \(.unit)";
    def outcome:
        {holds: "holds", sign_only: "sign only", fails: "**fails**"}[.verdict // ""] as $verdict
        | if $verdict then "\(.measured | number) | \($verdict) |" else "not measured | |" end;
    def count(list; $verdict): [list[] | select(.verdict == $verdict)] | length;
    def counts(list):
        "\(count(list; "holds")) of \(list | length) hold, \(count(list; "sign_only")) more in sign only, "
        + "\(count(list; "fails")) fail, \(count(list; "not_measured")) not measured";
    def others(list; $key): [list[] | .other_readings // [] | .[] | select(.reading.key == $key)];
    $quick[0] as $quick
    | (INDEX($quick[]; .id)) as $small
    | . as $all
    | "Full size: \(counts(.)). Quick: \(counts($quick)).",
      "",
      "| figure | claim | published | full | | quick | |",
      "| --- | --- | --- | ---: | --- | ---: | --- |",
      (.[] | "| \(.figure) | \(.claim) | \(wanted) | \(outcome) \($small[.id] // {} | outcome)"),
      ([.[] | .other_readings // [] | .[] | .reading] | unique_by(.key) | .[]
          | . as $reading
          | "",
            "In the other reading, \(.says). Full size: \(counts(others($all; .key))). Quick: \(counts(others($quick; .key))).",
            "",
            "| reading | figure | claim | full | | quick | |",
            "| --- | --- | --- | ---: | --- | ---: | --- |",
            ($all[] | . as $claim
                | [.other_readings // [] | .[] | select(.reading.key == $reading.key)] | .[0] // empty
                | [$small[$claim.id].other_readings // [] | .[] | select(.reading.key == $reading.key)][0] as $other
                | "| \($reading.key) | \($claim.figure) | \($claim.claim) | \(outcome) \($other // {} | outcome)"))
' "$full"
