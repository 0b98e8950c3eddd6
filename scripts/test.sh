#!/usr/bin/env bash
# Every test. Pools get their requests over io_uring where the kernel has it: there the most telling suites of pools run on /dev/fuse too.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/unmount-dead.sh

workspace=(--workspace --locked)
if [[ $(printf '6.18\n%s\n' "$(uname -r)" | sort --version-sort | head -n 1) == 6.18 ]]; then
    workspace+=(--features umbrella-fuse/live-tests)
else
    echo "skipped: the FUSE crate's own mounts, on both transports (\`make test-fuse\`): they need Linux 6.18, this is $(uname -r)"
fi
cargo test "${workspace[@]}"
if [[ -e /sys/module/fuse/parameters/enable_uring && ${#workspace[@]} -gt 2 ]]; then
    # Alone: meanwhile no other mount gets its requests over io_uring.
    cargo test "${workspace[@]}" --test mount -- --ignored the_first_mount_switches_io_uring_on_and_uses_it
fi
# Its locks are those of the model checker: a build of its own.
cargo test --locked -p umbrella-fs --features model-check --test model_check

scripts/python.sh

printf '\n=== the same files through mergerfs and through a pool\n'
UMBRELLA=${CARGO_TARGET_DIR:-target}/debug/umbrella scripts/policies-beside-mergerfs.py --short

# With the tests above the module is loaded, if it is one.
[[ -e /sys/module/fuse/parameters/enable_uring ]] || exit 0

from_device() {
    local suite=$1
    shift
    printf '\n=== requests from /dev/fuse: %s\n' "$suite"
    UMBRELLA_TEST_TRANSPORT=dev cargo test "${workspace[@]}" --test "$suite" -- "$@"
}
from_device pool at_once:: failing_calls:: mounting:: overflow:: scenarios:: staging::
from_device posix suites::pjdfstest_passes_without_passthrough suites::fsx_passes_where_the_first_branch_overflows
from_device hanging stopped::a_hung_branch_does_not_hang_the_others slow::others_go_on_while_many_wait
from_device write_back
from_device crash
from_device model
