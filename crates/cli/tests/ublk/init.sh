#!/bin/busybox sh
# The first process of a machine with ublk and nothing else: tries `umbrella disk attach --front ublk` step by step, prints a verdict of each, and
# switches the machine off. Every line that begins with "step" is expected by the test that starts the machine.

/bin/busybox mkdir -p /proc /sys /dev /run /tmp /srv /mnt /var/log /etc
/bin/busybox --install -s /bin
export PATH=/bin:/sbin:/usr/sbin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /srv
mount -t tmpfs tmpfs /run
ln -s /proc/mounts /etc/mtab
# What the kernel says of failed requests stays out of the verdicts' lines.
dmesg -n 1

finish() {
    echo "verdict: end"
    sync
    poweroff -f
}

# Does what is left of the line; the first failure ends everything.
step() {
    (set -ex; "$@") >/tmp/out 2>&1
    if [ $? = 0 ]; then
        echo "verdict: ok $1 (at $(cut -d ' ' -f 1 /proc/uptime) s)"
        return
    fi
    echo "verdict: FAILED $1"
    tail -n 40 /tmp/out
    tail -n 20 /var/log/umbrella/* 2>/dev/null
    dmesg | tail -n 20
    finish
}

# Fails, and says something with these words in it.
refused() {
    words=$1
    shift
    if "$@" >/tmp/refusal 2>&1; then return 1; fi
    cat /tmp/refusal
    grep -q "$words" /tmp/refusal
}

# Within ten seconds.
eventually() {
    for _ in $(seq 100); do
        if "$@"; then return 0; fi
        sleep 0.1
    done
    return 1
}

attach() { umbrella disk attach --front ublk "$@"; }
absent() { [ ! -e "$1" ]; }
queue() { [ "$(cat "/sys/block/${1#/dev/}/queue/$2")" = "$3" ]; }
figure() { umbrella disk stats "$1" | awk -v name="$2" '$1 == name { print $2; found = 1 } END { exit !found }'; }
asleep() {
    for _ in $(seq 100); do
        umbrella disk status "$1" --json | grep -q '"standby"' && return
        sleep 0.1
    done
    return 1
}
more_than_none() { [ "$(figure "$1" "$2")" -gt 0 ]; }

without_a_driver() {
    refused 'modprobe ublk_drv' attach --disk memory:size=16MiB --name none
    refused 'modprobe ublk_drv' umbrella disk serve --attach --front ublk --disk memory:size=16MiB --name none
}

driver() {
    modprobe ublk_drv
    [ -c /dev/ublk-control ]
}

memory_disk() {
    [ "$(attach --disk memory:size=96MiB --name ram)" = /dev/ublkb0 ]
    [ -b /dev/ublkb0 ]
    [ "$(blockdev --getsize64 /dev/ublkb0)" = 100663296 ]
    queue /dev/ublkb0 write_cache 'write back'
    queue /dev/ublkb0 fua 1
    queue /dev/ublkb0 rotational 0
    queue /dev/ublkb0 logical_block_size 512
    [ "$(cat /sys/block/ublkb0/queue/discard_max_bytes)" -gt 0 ]
    [ "$(cat /sys/block/ublkb0/queue/write_zeroes_max_bytes)" -gt 0 ]
}

# What is written through the page cache, through O_DIRECT and by several at once is what is read.
raw_data() {
    dd if=/dev/urandom of=/srv/noise bs=1M count=4
    dd if=/srv/noise of=/dev/ublkb0 bs=64k conv=fsync
    echo 3 >/proc/sys/vm/drop_caches
    dd if=/dev/ublkb0 bs=64k count=64 | cmp - /srv/noise
    for part in 0 1 2 3; do
        dd if=/srv/noise of=/dev/ublkb0 bs=4k skip=$((part * 256)) seek=$((part * 256 + 8192)) count=256 oflag=direct &
        writers="$writers $!"
    done
    for writer in $writers; do wait "$writer"; done
    dd if=/dev/ublkb0 bs=1M skip=32 count=4 iflag=direct | cmp - /srv/noise
    # Not busybox's: each write is to be durable, which makes it FUA.
    /bin/dd if=/srv/noise of=/dev/ublkb0 bs=512 count=3 seek=77777 oflag=direct,dsync
    dd if=/dev/ublkb0 bs=512 skip=77777 count=3 iflag=direct | cmp -n 1536 - /srv/noise
}

# Zeroes where they are wanted, and nowhere else.
zeroes() {
    dd if=/srv/noise of=/dev/ublkb0 bs=1M count=4 oflag=direct
    before=$(figure ram umbrella_disk_others_count)
    /sbin/blkdiscard -z -o 1048576 -l 2097152 /dev/ublkb0
    [ "$(figure ram umbrella_disk_others_count)" -gt "$before" ]
    dd if=/dev/ublkb0 bs=1M count=4 iflag=direct of=/srv/read
    cmp -n 1048576 /srv/read /srv/noise
    dd if=/srv/read bs=1M skip=1 count=2 | cmp -n 2097152 - /dev/zero
    dd if=/srv/read bs=1M skip=3 of=/srv/read.end
    dd if=/srv/noise bs=1M skip=3 | cmp - /srv/read.end
    rm /srv/noise /srv/read /srv/read.end
}

# A file system with files in it, whose checksums go to a file.
fill() {
    mkfs.ext4 -q -F "$1"
    mount "$1" /mnt
    for file in 1 2 3 4 5 6 7 8; do
        dd if=/dev/urandom of="/mnt/$file" bs=100k count=$file conv=fsync
    done
    mkdir /mnt/folder
    cp /mnt/[1-4] /mnt/folder
    sync
    (cd /mnt && find . -type f -exec sha256sum {} +) >"$2"
    umount /mnt
}

# The same files, from the device.
verify() {
    echo 3 >/proc/sys/vm/drop_caches
    mount "$1" /mnt
    (cd /mnt && sha256sum -c "$2")
    umount /mnt
}

file_system() {
    fill /dev/ublkb0 /srv/ram.sums
    verify /dev/ublkb0 /srv/ram.sums
    fsck.ext4 -f -n /dev/ublkb0
}

discard() {
    mount /dev/ublkb0 /mnt
    rm /mnt/8
    sync
    before=$(figure ram umbrella_disk_others_count)
    fstrim /mnt
    [ "$(figure ram umbrella_disk_others_count)" -gt "$before" ]
    umount /mnt
    grep -v '/8$' /srv/ram.sums >/srv/rest.sums
    verify /dev/ublkb0 /srv/rest.sums
}

told() {
    umbrella disk status ram | grep '  here   /dev/ublkb0'
    umbrella disk status /dev/ublkb0 --json | grep '"device": "/dev/ublkb0"'
    for name in reads_count read_bytes writes_count written_bytes flushes_count; do
        more_than_none ram "umbrella_disk_$name"
    done
    [ "$(attach --disk memory:size=96MiB --name ram)" = /dev/ublkb0 ]
    refused 'attached by ublk already, as /dev/ublkb0' umbrella disk attach --disk memory:size=96MiB --name ram
}

in_use() {
    mount /dev/ublkb0 /mnt
    refused 'mounted at /mnt' umbrella disk detach ram
    ls /mnt/folder
    umount /mnt
}

detach() {
    umbrella disk detach /dev/ublkb0
    absent /dev/ublkb0
    absent /dev/ublkc0
    absent /sys/block/ublkb0
    umbrella disk status | grep 'no disk is served'
}

hybrid_disk() {
    cat >/srv/slow.disk.toml <<END
front = "ublk"
[disk]
kind = "emulated"
profile = "modern"
size = "128MiB"
speed = 1000
path = "/srv/slow.disk"
[flash]
kind = "emulated"
profile = "sata_ssd"
size = "32MiB"
speed = 1000
path = "/srv/slow.flash"
[cache]
spin_down = "fixed:timeout=1s"
END
    umbrella disk create /srv/slow.disk.toml
    device=$(umbrella disk attach /srv/slow.disk.toml)
    queue "$device" rotational 1
    grep -q '\[mq-deadline\]' "/sys/block/${device#/dev/}/queue/scheduler"
    fill "$device" /srv/slow.sums
    verify "$device" /srv/slow.sums
    mount "$device" /mnt
    fstrim /mnt
    cat /mnt/1 >/dev/null
    asleep slow
    dd if=/mnt/1 of=/mnt/1 conv=notrunc,fsync 2>/dev/null
    umount /mnt
    verify "$device" /srv/slow.sums
    more_than_none slow umbrella_cache_logged_count
    more_than_none slow umbrella_disk_write_distance_bytes
    umbrella disk detach slow
    absent "$device"
}

# A log store does not grow under a device that would not see it.
log_store() {
    truncate -s 64M /srv/store.img
    umbrella disk create --kind log /srv/store.img
    device=$(attach /srv/store.img)
    fill "$device" /srv/store.sums
    truncate -s 80M /srv/store.img
    before=$(figure store.img umbrella_log_size_bytes)
    refused "$device keeps its size" umbrella disk grow store.img
    [ "$(figure store.img umbrella_log_size_bytes)" = "$before" ]
    umbrella disk detach store.img
    umbrella disk grow /srv/store.img
    device=$(attach /srv/store.img)
    [ "$(blockdev --getsize64 "$device")" -gt "$before" ]
    verify "$device" /srv/store.sums
    umbrella disk detach "$device"
    rm /srv/store.img
}

# All that the hybrid disk was given is on its plain disk now.
read_only() {
    device=$(attach --read-only --disk /srv/slow.disk)
    [ "$(blockdev --getro "$device")" = 1 ]
    if dd if=/dev/zero of="$device" bs=4k count=1 oflag=direct; then return 1; fi
    mount -o ro "$device" /mnt
    (cd /mnt && sha256sum -c /srv/slow.sums)
    umount /mnt
    umbrella disk detach "$device"
}

# A write that the file below has no room for fails as that; a write that it has room for does not.
errors() {
    mkdir /srv/full
    mount -t tmpfs -o size=4m tmpfs /srv/full
    truncate -s 16M /srv/full/disk
    device=$(attach --disk file:path=/srv/full/disk,direct=false)
    dd if=/dev/zero of="$device" bs=64k count=16 oflag=direct
    refused 'No space left on device' dd if=/dev/zero of="$device" bs=64k count=200 oflag=direct
    umbrella disk detach "$device"
    umount /srv/full
}

# A signal is an orderly end: what was written is there.
signal() {
    truncate -s 64M /srv/plain
    device=$(attach --disk /srv/plain)
    fill "$device" /srv/plain.sums
    kill "$(umbrella disk status plain --json | awk -F '[:,]' '/"pid"/ { print $2 }')"
    eventually absent "/dev/ublkc${device#/dev/ublkb}"
    absent "$device"
    fsck.ext4 -f -n /srv/plain
}

# A daemon that is killed under a mount: the mount gives errors and can be taken away, and so can the device that is left.
killed() {
    device=$(attach --disk /srv/plain)
    mount "$device" /mnt
    dd if=/dev/urandom of=/mnt/synced bs=100k count=10 conv=fsync
    sha256sum </mnt/synced >/srv/synced.sum
    pid=$(umbrella disk status plain --json | awk -F '[:,]' '/"pid"/ { print $2 }')
    (while dd if=/dev/zero of=/mnt/lost bs=100k count=20 conv=fsync; do :; done) &
    writer=$!
    sleep 0.5
    kill -9 $pid
    eventually absent "$device"
    wait $writer
    if dd if=/dev/zero of=/mnt/more bs=4k count=1 conv=fsync; then return 1; fi
    ls "/dev/ublkc${device#/dev/ublkb}"
    umount /mnt
}

# The machine goes on: what is left of the dead daemon goes with the next start, and what was synced is there.
after_a_kill() {
    device=$(attach --disk /srv/plain)
    [ "$(ls /dev/ublkc*)" = "/dev/ublkc${device#/dev/ublkb}" ]
    mount "$device" /mnt
    sha256sum </mnt/synced | cmp - /srv/synced.sum
    dd if=/dev/zero of=/mnt/more bs=4k count=1 conv=fsync
    umount /mnt
    fsck.ext4 -f -n "$device"
    umbrella disk detach "$device"
    [ -z "$(ls /dev | grep 'ublk[bc]')" ]
}

quiet_kernel() {
    rmmod ublk_drv
    if dmesg | grep -E 'BUG:|WARNING:|Oops|blocked for more than'; then return 1; fi
}

step without_a_driver
step driver
step memory_disk
step raw_data
step zeroes
step file_system
step discard
step told
step in_use
step detach
step hybrid_disk
step log_store
step read_only
step errors
step signal
step killed
step after_a_kill
step quiet_kernel
finish
