#!/usr/bin/env bash
# The licences of all that is linked into the binary, each text once, with the packages that carry it: for who hands the binary on.
#   scripts/notices.sh [FEATURES] > NOTICES
set -euo pipefail
cd "$(dirname "$0")/.."

readonly features=${1:-}
readonly sources=${CARGO_HOME:-$HOME/.cargo}/registry/src
declare -A carriers texts
missing=0

# The sources of a package of crates.io.
folder_of() {
    local name=$1 version=$2 found
    for found in "$sources"/*/"$name-$version"; do
        if [[ -d $found ]]; then
            printf '%s\n' "$found"
            return
        fi
    done
}

while read -r name version licence; do
    # Ours: LICENSE-MIT and LICENSE-APACHE.
    [[ $name == umbrella* ]] && continue
    folder=$(folder_of "$name" "$version")
    if [[ -z $folder ]]; then
        echo "notices: the sources of $name $version are missing (cargo fetch)" >&2
        missing=1
        continue
    fi
    found=
    while IFS= read -r -d '' file; do
        found=1
        sum=$(sha256sum <"$file")
        texts[$sum]=$file
        carriers[$sum]+="$name $version ($licence)"$'\n'
    done < <(find "$folder" -maxdepth 2 -type f \
        \( -iname 'licen[cs]e*' -o -iname 'copying*' -o -iname 'notice*' -o -iname 'copyright*' -o -iname 'unlicense*' \) \
        ! -name '*.rs' -print0 | sort -z)
    if [[ -z $found ]]; then
        texts[none]=/dev/null
        carriers[none]+="$name $version ($licence)"$'\n'
    fi
done < <(cargo tree --locked --package umbrella --features "$features" --edges normal --prefix none --format '{p} {l}' |
    sed -E 's/ \(\*\)$//; s/ \((proc-macro|\/[^)]*)\)//; s/ v([0-9])/ \1/' | sort -u)
((missing == 0))

for sum in "${!texts[@]}"; do
    printf '%s\t%s\n' "${carriers[$sum]%%$'\n'*}" "$sum"
done | LC_ALL=C sort | while IFS=$'\t' read -r _ sum; do
    printf '%s\n' "$(printf '=%.0s' {1..100})"
    sort -u <<<"${carriers[$sum]%$'\n'}"
    if [[ $sum == none ]]; then
        printf '\n(their packages carry no text: the licence is the one named)\n\n'
    else
        printf '\n'
        cat "${texts[$sum]}"
        printf '\n'
    fi
done
