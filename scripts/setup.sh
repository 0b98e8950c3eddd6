#!/usr/bin/env bash
# Everything that building (`setup.sh build`), testing (`setup.sh test`) and judging the dependencies of (`setup.sh deny`) Umbrella need, on Debian 12 as root.
# Does nothing that is done already, asks nothing, and needs no terminal.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly goal=${1:-test}
readonly tools=target/tools
readonly build_packages=(gcc libc6-dev fuse3 e2fsprogs util-linux)
readonly test_packages=(fio postmark dbench xfsprogs btrfs-progs attr acl gocryptfs sshfs openssh-server strace mergerfs chromium
    libnbd-bin python3-libnbd nbdkit nbd-client qemu-utils openssl)

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
    grep -qs "^\"$name $version " "$tools/.crates.toml" && [[ -x $tools/bin/$name ]] && return 0
    say "building $name $version"
    cargo install --quiet --locked --root "$tools" --target-dir target/tools-build "$name@$version" </dev/null
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
    deny)
        install_packages "${build_packages[@]}"
        install_rust
        install_tool cargo-deny 0.20.2
        ;;
    *) fail "unknown goal '$goal' (build, test, deny)" ;;
esac
