#!/usr/bin/env bash
# A pool over three small disks, from mount to unmount: which file goes where and why, how files move when they change,
# and what happens when a disk is full. Needs root. Its /pool, /disk, /flash and /crypt are in a mount namespace of its own: nobody else sees
# them, and they go with it. Fails when anything is not where the rules say. Usage: demo.sh path/to/umbrella
set -euo pipefail

[[ $EUID == 0 ]] || { echo "demo: mounting needs root" >&2; exit 1; }

# First in the namespace, where a new root has all directories of the real one and those of the demo; then there, with the folder for its files.
case ${1:?usage: demo.sh path/to/umbrella} in
--in-namespace)
    root=$3/root
    mkdir "$root"
    mount -t tmpfs -o mode=755 umbrella-demo "$root"
    for entry in /*; do
        if [[ -L $entry ]]; then
            cp -P "$entry" "$root$entry"
        elif [[ -d $entry ]]; then
            mkdir "$root$entry"
            mount --rbind "$entry" "$root$entry"
        fi
    done
    mkdir -p "$root"/{pool,disk,flash,crypt}
    exec chroot "$root" "$4" --in-root "$2" "$3"
    ;;
--in-root) ;;
*)
    work=$(mktemp -d "${TMPDIR:-/tmp}/umbrella-demo-XXXXXX")
    trap 'rm -rf --one-file-system -- "$work"' EXIT
    script=$(realpath -- "$0")
    unshare --mount --propagation private -- "$script" --in-namespace "$(realpath -- "$1")" "$work" "$script"
    exit
    ;;
esac

readonly umbrella=$2 work=$3 pool=/pool
repository=$(realpath -- "$(dirname -- "$0")/..")
readonly repository
readonly branches=(disk flash crypt)
readonly MIB=$((1 << 20))

# The demo's daemon keeps to itself: other pools of this machine are not touched.
export UMBRELLA_RUN_DIR=$work/run UMBRELLA_STATE_DIR=$work/state

clean_up() {
    local code=$? branch
    trap - EXIT
    cd /
    if mountpoint -q "$pool"; then
        timeout 20 "$umbrella" unmount "$pool" >/dev/null 2>&1 || umount --lazy "$pool" || true
    fi
    for branch in "${branches[@]}"; do
        mountpoint -q "/$branch" || continue
        umount "/$branch" 2>/dev/null || umount --lazy "/$branch" || true
    done
    if ((code != 0)) && [[ -s /daemon.log ]]; then
        printf '\ndemo: FAILED; the daemon said:\n' >&2
        tail -n 40 /daemon.log >&2
    fi
    exit "$code"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

bold='' plain=''
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then bold=$'\e[1m' plain=$'\e[0m'; fi
heading() { printf '\n%s== %s ==%s\n\n' "$bold" "$*" "$plain"; }
say() { printf '%s\n' "$*"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }
# Shows a command as a user would type it, then runs it.
show() { printf '%s$ %s%s\n' "$bold" "${*/#"$umbrella"/umbrella}" "$plain"; "$@"; }

# A small file system of its own: ext4 in a file, or tmpfs where there are no loop devices.
make_branch() {
    local name=$1 mib=$2
    truncate -s "${mib}M" "$work/$name.img"
    mkfs.ext4 -q -F -m 0 "$work/$name.img"
    if ! mount -o loop "$work/$name.img" "/$name" 2>/dev/null; then
        mount -t tmpfs -o "size=${mib}m,mode=755" tmpfs "/$name"
    fi
    rmdir "/$name/lost+found" 2>/dev/null || true
}

# The branches that hold a file, looked up on the branches themselves and not asked from the daemon.
found_on() {
    local branch found=()
    for branch in "${branches[@]}"; do
        if [[ -e /$branch$1 || -L /$branch$1 ]]; then found+=("$branch"); fi
    done
    printf '%s' "${found[*]:-nowhere}"
}

# The first "rule" of the explanation is the one that decides; the steps come after it.
rule_of() { "$umbrella" explain --json "$pool$1" | grep -o '"rule": *"[^"]*"' | sed -n '1s/.*: *"\(.*\)"/\1/p'; }

pending() {
    "$umbrella" status --json "$pool" | grep -o '"umbrella_relocations_pending_count": *[0-9]*' | grep -o '[0-9]*$'
}

# Files move after their last close, in the background: waits until all have, as long as any does.
settle() {
    local quiet=0 same=0 last=0 moving
    until ((quiet == 3)); do
        moving=$(pending) || fail "umbrella status does not say how many files are still to move"
        if ((moving == 0)); then quiet=$((quiet + 1)); else quiet=0; fi
        if ((moving == last)); then same=$((same + 1)); else same=0; fi
        ((same < 600)) || fail "$moving files wait to move, and none has moved for a minute"
        last=$moving
        sleep 0.1
    done
}

table_head() { printf '  %-28s %9s  %-7s %s\n' file size branch rule; }
table_row() {
    printf '  %-28s %9s  %-7s %s\n' "$1" "$(stat -c %s "$pool$1" | numfmt --to=iec-i)" "$(found_on "$1")" "$(rule_of "$1")"
}

must_be_on() {
    local tries
    for ((tries = 0; tries < 50; tries++)); do
        [[ $(found_on "$1") != "$2" ]] || return 0
        sleep 0.1
    done
    "$umbrella" explain "$pool$1" >&2 || true
    fail "$1 is on '$(found_on "$1")', the rules say '$2'"
}

# The same $1 bytes each time, different at each place.
data() { seq 1 100000000 2>/dev/null | head -c "$1" || true; }

heading "three disks and the rules"
make_branch disk 64
make_branch flash 160
make_branch crypt 24
mkdir "$UMBRELLA_RUN_DIR" "$UMBRELLA_STATE_DIR"
cat >/pool.toml <<CONFIG
mount = "$pool"

[[branch]]
name = "disk"
path = "/disk"
[[branch]]
name = "flash"
path = "/flash"
min_free = "5%"
[[branch]]
name = "crypt"                           # stands for an encrypted file system
path = "/crypt"

[[rule]]
name = "read-only files on flash"
when = { access = "read-only" }
to = ["flash", "any"]

[[rule]]
name = "by name"
match = [                                # the name table: the longest match wins
  { glob = "/home/dave/**",     to = ["crypt"] },
  { glob = "/home/dave/**.avi", to = ["disk", "any"] },
]

[[rule]]
name = "small files on flash"
when = { size = "< 16KiB", hysteresis = "4KiB" }   # hysteresis keeps a file from moving to and fro
to = ["flash", "any"]

[[rule]]
name = "all else"
when = {}
to = ["disk", "any"]                     # a file that had to go elsewhere comes back when there is room
CONFIG
cat /pool.toml
printf '\n'
show "$umbrella" check /pool.toml
show "$umbrella" mount /pool.toml --daemon --log /daemon.log
mountpoint -q "$pool" || fail "mount --daemon returned before the pool was mounted"
df -h --output=target,size,avail /disk /flash /crypt "$pool"

heading "files of every kind are copied in"
say "this repository's own tree, as /src, and a few files that the rules name"
mkdir -p "$pool/src" "$pool/home/dave/films" "$pool/home/erin" "$pool/music"
mkdir "$work/original"
tar -C "$repository" --exclude=./target --exclude=./.git -cf - . | tar -C "$work/original" -xf -
cp -a "$work/original/." "$pool/src/"
data 2000 >"$pool/home/dave/letter.txt"
data $((3 * MIB)) >"$pool/home/dave/films/holiday.avi"
data 9000 >"$pool/home/erin/notes.txt"
data $((2 * MIB)) >"$pool/music/song.flac"
data $((1 * MIB)) >"$pool/manual.pdf"
chmod a-w "$pool/manual.pdf"
ln -s manual.pdf "$pool/readme"
settle
"$umbrella" enforce "$pool" >/dev/null 2>&1
diff -r "$work/original" "$pool/src" || fail "the copy of the repository differs from the original"
say "the copy is equal to the original; the branches hold:"
for branch in "${branches[@]}"; do
    printf '  %-6s %5d files\n' "$branch" "$(find "/$branch" -xdev -type f -not -path '*/.umbrella*' | wc -l)"
done

heading "which file went where"
must_be_on /home/dave/letter.txt crypt
must_be_on /home/dave/films/holiday.avi disk
must_be_on /home/erin/notes.txt flash
must_be_on /music/song.flac disk
must_be_on /manual.pdf flash
must_be_on /src/Cargo.toml flash
table_head
for file in /home/dave/letter.txt /home/dave/films/holiday.avi /home/erin/notes.txt /music/song.flac /manual.pdf \
    /src/Cargo.toml /src/Cargo.lock; do
    table_row "$file"
done

heading "and why"
show "$umbrella" explain "$pool/home/dave/films/holiday.avi"

heading "files that change move"
say "each moves as soon as it is closed:"
say "chmod a-w /music/song.flac            (becomes read-only)"
say "append 30 KiB to /home/erin/notes.txt (is small no more)"
say "mv holiday.avi holiday.txt            (has another name)"
printf '\n'
chmod a-w "$pool/music/song.flac"
data 30720 >>"$pool/home/erin/notes.txt"
mv "$pool/home/dave/films/holiday.avi" "$pool/home/dave/films/holiday.txt"
settle
must_be_on /music/song.flac flash
must_be_on /home/erin/notes.txt disk
must_be_on /home/dave/films/holiday.txt crypt
table_head
for file in /music/song.flac /home/erin/notes.txt /home/dave/films/holiday.txt; do table_row "$file"; done

heading "a disk is full, the write goes on"
say "24 MiB of /recording.raw fit on the disk of 64 MiB:"
data $((24 * MIB)) >"$pool/recording.raw"
settle
must_be_on /recording.raw disk
table_head
table_row /recording.raw
say "72 MiB more do not. The file moves to the next choice while it is being written:"
data $((96 * MIB)) | tail -c $((72 * MIB)) >>"$pool/recording.raw"
settle
must_be_on /recording.raw flash
table_row /recording.raw
[[ $(sha256sum <"$pool/recording.raw") == "$(data $((96 * MIB)) | sha256sum)" ]] || fail "/recording.raw is not what was written"
say "its 96 MiB are what was written (sha256)"
printf '\n'
say "a list is complete: 40 MiB into /home/dave, on 24 MiB"
if data $((40 * MIB)) 2>/dev/null | dd of="$pool/home/dave/secret.bin" bs=1M iflag=fullblock status=none 2>"$work/dd.log"; then
    fail "/home/dave/secret.bin went where it must not: $(found_on /home/dave/secret.bin)"
fi
sed 's/^/  /' "$work/dd.log"
[[ $(found_on /home/dave/secret.bin) == crypt ]] || fail "/home/dave/secret.bin is on '$(found_on /home/dave/secret.bin)'"
rm "$pool/home/dave/secret.bin"

heading "the pool at a glance"
show "$umbrella" status "$pool"

heading "unmounted: plain files on plain disks"
show "$umbrella" unmount "$pool"
mountpoint -q "$pool" && fail "the pool is still mounted"
for branch in "${branches[@]}"; do
    printf '  %-6s %5d files, %s\n' "$branch" "$(find "/$branch" -xdev -type f -not -path '*/.umbrella*' | wc -l)" \
        "$(cd "/$branch" && find . -maxdepth 2 -mindepth 1 -not -path './.umbrella*' | sort | head -n 5 | paste -sd ' ')"
done
heading "what next"
say "all as the rules say, in $SECONDS s"
say "make install                     the program, optimised, and its systemd units"
say "docs/start/first-pool.md         your own pool, in five minutes"
say "umbrella lab list workloads      try write-back policies without a disk"
