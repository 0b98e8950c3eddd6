#!/usr/bin/env bash
# Suites that move files and flush pages, once with each policy that can run live, with staging and without.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --locked -p umbrella
policies=$(target/debug/umbrella lab list policies --json |
    python3 -c 'import json, sys; print(*(p["name"] for p in json.load(sys.stdin) if not p.get("offline")))')
failed=()
for policy in $policies; do
    printf '=== %s\n' "$policy"
    if ! UMBRELLA_TEST_POLICY=$policy UMBRELLA_FSX_OPS=${UMBRELLA_FSX_OPS:-2000} UMBRELLA_MODEL_SECONDS=${UMBRELLA_MODEL_SECONDS:-20} \
        cargo test --locked -p umbrella --test posix --test model -- ordered_write_back; then
        failed+=("$policy")
    fi
done
if ((${#failed[@]})); then
    printf 'failed with: %s\n' "${failed[*]}"
    exit 1
fi
