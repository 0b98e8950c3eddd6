#!/usr/bin/env bash
# The lab's Python package: built, tested, and its tutorial executed, in an environment of its own (target/python). CELLS is the size of the sweep on a cluster.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
venv=$target/python/venv
if ! cmp --silent python/requirements-test.txt "$venv/installed.txt"; then
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check --requirement python/requirements-test.txt
    cp python/requirements-test.txt "$venv/installed.txt"
fi

wheels=$target/python/wheels
rm -rf "$wheels"
"$venv/bin/maturin" build --quiet --locked --profile dev --manifest-path python/Cargo.toml --target-dir "$target" \
    --interpreter "$venv/bin/python" --out "$wheels"
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$wheels"/*.whl

# Outside of the sources, so that the package that was built is the one that is tested.
tests=$PWD/python
cd "$target/python"
export JUPYTER_PLATFORM_DIRS=1
"$venv/bin/python" -m pytest --quiet -p no:cacheprovider --doctest-modules --import-mode importlib "$tests/tests" --pyargs umbrella_lab
"$venv/bin/python" "$tests/run_notebook.py" "$tests/tutorial.ipynb"
