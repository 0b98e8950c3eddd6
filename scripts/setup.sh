#!/usr/bin/env bash
# What Umbrella needs on Debian 12, as root: `setup.sh build` to build it, `test` and `ublk` to test it, `docs` for the documentation site, `deny` to check its dependencies.
# Does nothing that is done already, asks nothing, and needs no terminal.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly goal=${1:-test}
readonly tools=target/tools
# clang compiles the flusher's BPF programs; libbpf is built with make and pkg-config, and linked with libelf and zlib.
readonly build_packages=(gcc libc6-dev clang make pkg-config libelf-dev zlib1g-dev e2fsprogs util-linux)
readonly test_packages=(fuse3 fio blktrace postmark dbench bonnie++ stress-ng xfsprogs btrfs-progs attr acl gocryptfs sshfs openssh-server strace mergerfs chromium
    libnbd-bin python3 python3-venv python3-libnbd nbdkit nbd-client qemu-utils openssl)
readonly machine_packages=(qemu-system-x86 busybox-static kmod xz-utils binutils)
# Where the kernel for an emulated machine is unpacked; it is never installed.
readonly kernel=target/ublk/kernel

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

install_packages() {
    local missing=() package
    for package in "$@"; do
        [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
    done
    ((${#missing[@]})) || return 0
    [[ $EUID == 0 ]] || fail "missing packages: ${missing[*]} (run as root, or: apt-get install ${missing[*]})"
    say "installing ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    # A file server that starts by itself is not what a test machine asked for.
    RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# `rust-version` of the workspace, as a number that compares: 1.88 -> 1088.
wanted_rust() { awk -F '"' '/^rust-version/ { split($2, v, "."); print v[1] * 1000 + v[2]; exit }' Cargo.toml; }
present_rust() { rustc --version 2>/dev/null | awk '{ split($2, v, "."); print v[1] * 1000 + v[2] }'; }

install_rust() {
    local wanted present
    wanted=$(wanted_rust)
    present=$(present_rust || true)
    ((${present:-0} < wanted)) || return 0
    say "Rust 1.$((wanted % 1000)) or later is needed, found ${present:+1.$((present % 1000))}${present:-none}: fetching it with rustup"
    install_packages ca-certificates curl
    local host init
    host=$(uname -m)-unknown-linux-gnu
    init=$(mktemp)
    curl -fsS --retry 3 --proto '=https' -o "$init" "https://static.rust-lang.org/rustup/dist/$host/rustup-init" ||
        fail "static.rust-lang.org does not answer. Debian 12's own rustc (1.63) is too old: install Rust 1.$((wanted % 1000)) or later" \
            "by another way (https://forge.rust-lang.org/infra/other-installation-methods.html) and put it in PATH"
    chmod +x "$init"
    "$init" -y --quiet --no-modify-path --profile minimal --component rustfmt --component clippy
    rm -f "$init"
}

install_tool() {
    local name=$1 version=$2
    shift 2
    grep -qs "^\"$name $version " "$tools/.crates.toml" && [[ -x $tools/bin/$name ]] && return 0
    say "building $name $version"
    cargo install --quiet --locked --root "$tools" --target-dir target/tools-build "$@" "$name@$version" </dev/null
}

# Unoptimised and without its server: it is built in 40 s, and fast enough for this site.
install_mdbook() {
    install_packages gcc libc6-dev python3
    install_rust
    CARGO_PROFILE_DEV_DEBUG=0 install_tool mdbook 0.5.4 --profile dev --no-default-features --features search
}

# The tests mount real file systems and never skip in silence: say now what is missing.
require_machine() {
    [[ $EUID == 0 ]] || fail "the tests mount file systems: run as root"
    [[ -c /dev/fuse ]] || modprobe fuse 2>/dev/null || true
    [[ -c /dev/fuse ]] || fail "/dev/fuse is missing: the kernel needs FUSE (a container needs --device /dev/fuse)"
    [[ -c /dev/loop-control ]] || modprobe loop 2>/dev/null || true
    losetup --find >/dev/null 2>&1 || fail "no loop devices: the kernel needs the module 'loop' (a container needs --privileged)"
    local id
    for id in nobody daemon; do
        getent passwd "$id" >/dev/null || fail "the user '$id' is missing; the permission tests change to it"
    done
}

# A kernel of Debian that has ublk, in its small variant: 12 has 6.12 beside its own, from 13 on it is the ordinary one.
fetch_kernel() {
    [[ ! -d $kernel ]] || return 0
    [[ $(dpkg --print-architecture) == amd64 ]] || fail "the emulated machine runs this machine's programs: that needs amd64"
    apt-get update -qq
    local variant package unpacked=target/ublk/unpacked
    for variant in linux-image-6.12-cloud-amd64 linux-image-cloud-amd64; do
        package=$(apt-cache depends "$variant" 2>/dev/null | awk '/Depends: linux-image-/ { print $2; exit }' || true)
        [[ -z $package ]] || break
    done
    [[ -n $package ]] || fail "apt knows neither linux-image-6.12-cloud-amd64 (Debian 12) nor linux-image-cloud-amd64"
    say "fetching $package"
    rm -rf "$unpacked"
    mkdir -p "$unpacked"
    (cd target/ublk && rm -f ./*.deb && apt-get download -qq -o APT::Sandbox::User=root "$package")
    dpkg -x target/ublk/*.deb "$unpacked"
    rm -f target/ublk/*.deb
    [[ -d $unpacked/lib/modules ]] || { mkdir -p "$unpacked/lib" && mv "$unpacked/usr/lib/modules" "$unpacked/lib/"; }
    depmod -b "$unpacked" "$(ls "$unpacked/lib/modules")"
    mv "$unpacked" "$kernel"
}

export PATH=$PATH:${CARGO_HOME:-${HOME:-/root}/.cargo}/bin
case $goal in
    build)
        install_packages "${build_packages[@]}"
        install_rust
        ;;
    test)
        install_packages "${build_packages[@]}" "${test_packages[@]}"
        install_rust
        install_tool pjdfstest 0.2.2
        install_tool fsx 0.3.2
        require_machine
        ;;
    ublk)
        install_packages "${build_packages[@]}" "${machine_packages[@]}"
        install_rust
        fetch_kernel
        ;;
    docs)
        install_mdbook
        ;;
    deny)
        install_packages "${build_packages[@]}"
        install_rust
        install_tool cargo-deny 0.20.2
        ;;
    *) fail "unknown goal '$goal' (build, test, ublk, docs, deny)" ;;
esac
