#!/usr/bin/env bash
# What a daemon holds in memory, over io_uring and over /dev/fuse: the table of docs/performance.md. Needs root.
# Usage: scripts/ring-memory.sh [PROGRAM]  (target/release/umbrella)
set -euo pipefail

program=$(realpath "${1:-target/release/umbrella}")
folder=$(mktemp --directory)
mount=$folder/pool

# Also where a step fails.
trap '"$program" unmount "$mount" > /dev/null 2>&1 || true; umount "$folder/branch" 2> /dev/null || true; rm --recursive --force "$folder"' EXIT

mkdir "$folder/branch" "$mount"
mount -t tmpfs -o size=1g umbrella-memory "$folder/branch"

held() {
    awk -v what="$1" '/^VmRSS/ { rss = $2 } /^RssAnon/ { own = $2 } /^Threads/ { threads = $2 }
        END { printf "| %s | %.1f MB, %.1f MB its own, %d threads |\n", what, rss / 1000, own / 1000, threads }' "/proc/$pid/status"
}

for transport in io_uring dev; do
    cat > "$folder/pool.toml" << CONFIGURATION
mount = "$mount"
default = ["a"]
transport = "$transport"
[[branch]]
name = "a"
path = "$folder/branch"
require_mount = true
passthrough = false
CONFIGURATION
    "$program" mount "$folder/pool.toml" --daemon --log "$folder/log"
    pid=$("$program" status --json "$mount" | grep --only-matching '"pid": *[0-9]*' | grep --only-matching '[0-9]*' | head -1)
    echo "transport $("$program" status "$mount" | grep requests)"
    held "idle after the mount"
    cp --recursive /usr/include "$mount/tree"
    find "$mount/tree" -type f -exec cat {} + > /dev/null
    held "after a copy and a walk of /usr/include"
    for writer in {1..60}; do
        dd if=/dev/zero of="$mount/$writer" bs=1M count=4 oflag=direct status=none &
    done
    wait
    held "after 60 writers of 1 MB at once"
    rm --recursive "${mount:?}"/*
    "$program" unmount "$mount" > /dev/null
done
