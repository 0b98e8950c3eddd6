#!/usr/bin/env bash
# Takes away what a killed test run has left mounted: file systems of its daemons, which are dead, and what
# was mounted from files on them. Other programs trip over these (mkfs.btrfs asks for every loop device).
# Only mounts below the folder in which tests make their mounts, and with names as theirs, are looked at.
set -euo pipefail

folder=$(realpath "${UMBRELLA_TEST_DIR:-${TMPDIR:-/tmp}}")

# A file system whose daemon is gone answers ENOTCONN; one that is slow to answer is none of ours to take. What
# the kernel remembers of a file it still tells for a second after that, so it must not be asked.
dead() {
    [[ $(LC_ALL=C timeout 5 stat --cached=never -- "$1" 2>&1 >/dev/null) == *"Transport endpoint is not connected"* ]]
}

# What was mounted last goes first.
mapfile -t mounts < <(awk -v below="$folder/umbrella-" 'index($5, below) == 1 { print $5 }' /proc/self/mountinfo | tac)
for mount in "${mounts[@]}"; do
    source=$(findmnt --noheadings --first-only --output SOURCE --mountpoint "$mount") || continue
    backing=
    if [[ $source == /dev/loop* ]]; then
        backing=$(cat "/sys/block/${source#/dev/}/loop/backing_file" 2>/dev/null) || true
    fi
    if dead "$mount" || { [[ -n $backing ]] && dead "$backing"; }; then
        echo "unmounting $mount, left behind by a test that was killed"
        umount --lazy -- "$mount"
        if [[ -n $backing ]]; then
            losetup --detach "$source" 2>/dev/null || true # gone with the mount if it was made to
        fi
    fi
done
