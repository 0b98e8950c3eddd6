#!/usr/bin/env bash
# The tables of docs/trace-table.md, below its text: all policies on all traces of a folder, as Markdown.
#   scripts/trace-table.sh FOLDER > tables.md
# Each trace is replayed as fast as the modelled disk takes it, with memory for an eighth of the pages that it writes.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly folder=${1:?"usage: scripts/trace-table.sh FOLDER"}
readonly umbrella=${UMBRELLA:-target/release/umbrella}
readonly disk=${DISK:-deskstar_500gb}
[[ -x $umbrella ]] || { echo "trace-table: $umbrella is missing: make build" >&2; exit 1; }
command -v jq >/dev/null || { echo "trace-table: jq is missing: apt-get install jq" >&2; exit 1; }

shopt -s nullglob
traces=("$folder"/*.csv.gz)
((${#traces[@]})) || { echo "trace-table: no *.csv.gz in $folder" >&2; exit 1; }

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

names=()
for trace in "${traces[@]}"; do
    name=$(basename "$trace" .csv.gz)
    # A second ending is the same trace in its native format.
    [[ $name == *.* ]] && continue
    pages=$("$umbrella" lab trace info "$trace" --json | jq '.. | .distinct_pages_written? // empty' | head -1)
    memory=$((pages / 8 * 4096))
    ((memory >= 1 << 20)) || memory=$((1 << 20))
    policies=$("$umbrella" lab list policies --json | jq -r '[.[].name] | join(",")')
    echo "trace-table: $name, $((memory >> 10)) KiB of memory" >&2
    "$umbrella" lab compare --policy "$policies" --trace "$trace" --speed max --disk "$disk" --memory "$memory" --json \
        > "$work/$name.json"
    names+=("$name")
done

column() { # column TITLE JQ-EXPRESSION
    printf '\n### %s\n\n| policy |' "$1"
    printf ' %s |' "${names[@]}"
    printf '\n| --- |'
    printf ' ---: |%.0s' "${names[@]}"
    printf '\n'
    local count row name
    count=$(jq length "$work/${names[0]}.json")
    for ((row = 0; row < count; row++)); do
        printf '| `%s` |' "$(jq -r ".[$row].setting.policy" "$work/${names[0]}.json")"
        for name in "${names[@]}"; do
            printf ' %s |' "$(jq -r ".[$row] as \$run | .[0] as \$first | $2" "$work/$name.json")"
        done
        printf '\n'
    done
}

printf 'Disk: `%s`; memory: an eighth of the distinct pages that the trace writes, at least 1 MiB; replayed as fast as\n' "$disk"
printf 'the disk takes it (`--speed max`), 64 requests at a time. Command: `scripts/trace-table.sh FOLDER`.\n'
column 'Time until the last page was on disk, relative to `file`' '($run.drained_s / $first.drained_s * 1000 | round / 1000)'
column 'Bytes written, relative to `file`' '($run.bytes_written / $first.bytes_written * 1000 | round / 1000)'
column 'Mean distance between write requests, in blocks' '($run.write_distance | round)'
