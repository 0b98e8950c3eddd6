# `make demo` and `make test` do all of their set-up on a fresh Debian 12, as root. See `make help`.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help setup setup-build demo docs test test-python test-policies test-conformance test-long test-schedules test-fuse test-ublk lint deny bench-fs bench-moves bench-write-back bench-staging bench-papers build install uninstall clean

PREFIX ?= /usr/local
SEED ?= 1
SECONDS_EACH ?= 120
RUNS ?= 60
DESTDIR ?=
UNITDIR ?= /etc/systemd/system
SBINDIR ?= /sbin
BASHDIR ?= $(PREFIX)/share/bash-completion/completions
ZSHDIR ?= $(PREFIX)/share/zsh/site-functions
FISHDIR ?= $(PREFIX)/share/fish/vendor_completions.d
# Where to install is for this Makefile alone: crates that build C libraries run make, too.
MAKEOVERRIDES =
unexport DESTDIR PREFIX
ARGS ?=
# `make build FEATURES=ublk`: /dev/ublkbN as well (docs/disk.md).
FEATURES ?=
CARGO_TARGET_DIR ?= target
BINARY = $(CARGO_TARGET_DIR)/release/umbrella

# Where rustup puts cargo when `make setup` had to fetch it.
export PATH := $(PATH):$(HOME)/.cargo/bin

help: ## list what there is to make
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## everything that building and testing need: Debian packages, Rust, test programs
	@scripts/setup.sh test

setup-build:
	@scripts/setup.sh build

demo: setup-build ## a pool over three small disks: see which file goes where, and why
	@cargo build --profile demo --locked --bin umbrella
	@demo/demo.sh "$(CARGO_TARGET_DIR)/demo/umbrella"

build: setup-build ## the release binary (FEATURES=ublk: with ublk)
	cargo build --release --locked --bin umbrella --features "$(FEATURES)"

docs: ## the documentation site in target/book; fails on a broken link (builds mdBook the first time: under a minute)
	@scripts/setup.sh docs
	@scripts/book.py target/tools/bin/mdbook

test: setup docs ## every test, on real mounts (root); the most telling ones on both transports (LANES=N: programs at a time)
	scripts/test.py

test-python: ## the lab's Python package and its tutorial (CELLS=N: runs of the sweep on a cluster)
	scripts/python.sh

test-policies: setup ## POSIX suites and property tests with each write-back policy in turn (some 20 minutes)
	scripts/every-policy.sh

test-conformance: setup ## pjdfstest, fsx, stress-ng, fio, bonnie++ and dbench on a pool with staging, rules and overflow (some 15 minutes; SECONDS_EACH=N)
	UMBRELLA_CONFORMANCE_SECONDS=$(SECONDS_EACH) cargo test --locked -p umbrella --test posix -- conformance:: --include-ignored --nocapture --test-threads=1

test-long: setup ## what chance decides, for longer: daemons killed 100 times, a million damaged inputs of each structure (minutes; SEED=N for another run)
	UMBRELLA_CRASH_ROUNDS=100 UMBRELLA_CRASH_SEED=$(SEED) cargo test --locked -p umbrella --test log_disk --test disk_kills -- kill --nocapture
	UMBRELLA_FUZZ_ROUNDS=1000000 UMBRELLA_FUZZ_SEED=$(SEED) cargo test --locked -p umbrella-block --lib -- fuzz one_damaged_bit --nocapture
	CELLS=10000 scripts/python.sh
	UMBRELLA_CRASH_STATES=100000 cargo test --locked -p umbrella-block --lib -- a_power_cut_and_one_damaged_bit --nocapture

test-schedules: setup ## a model checker decides which thread goes on: renames, moves, staging (SEED=N, RUNS=N; root)
	UMBRELLA_MODEL_SEED=$(SEED) UMBRELLA_MODEL_RUNS=$(RUNS) cargo test --locked -p umbrella-fs --features model-check --test model_check

test-fuse: setup ## mounts of the FUSE crate alone, on both transports; takes a processor away for a moment (root, Linux 6.18)
	cargo test --locked -p umbrella-fuse --features live-tests
	cargo test --locked -p umbrella-fuse --features live-tests --test mount -- --ignored

test-ublk: ## the ublk front end, on a machine with the driver that qemu emulates (downloads some 55 MB the first time)
	@scripts/setup.sh ublk
	cargo test --locked -p umbrella-block --features ublk --lib serve::
	cargo test --locked -p umbrella --features ublk --test ublk -- --nocapture

lint: ## formatting, clippy, documentation and the prose of pages, with warnings as errors
	scripts/prose.py
	cargo fmt --check
	cargo clippy --workspace --all-targets --locked --features umbrella-fuse/live-tests -- -D warnings
	cargo clippy -p umbrella-block -p umbrella --features ublk --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

deny: ## licences, sources and advisories of the dependencies (builds cargo-deny the first time: minutes)
	scripts/setup.sh deny
	target/tools/bin/cargo-deny check licenses bans sources advisories

bench-fs: setup ## what the mount costs, beside the file system below it and mergerfs (ARGS="--help" for its options)
	cargo bench --locked -p umbrella --bench fs -- $(ARGS)

bench-moves: setup ## how fast small files move to another branch, beside cp, sync and rm (ARGS="--help" for its options)
	cargo bench --locked -p umbrella --bench moves -- $(ARGS)

bench-write-back: setup ## write-back policies against the kernel's own, on emulated disks (ARGS="--quick" takes a few minutes)
	cargo bench --locked -p umbrella --bench live -- write-back $(ARGS)

bench-staging: setup ## what staging gains, on an emulated disk (ARGS="--quick" takes a few minutes)
	cargo bench --locked -p umbrella --bench live -- staging $(ARGS)

bench-papers: setup ## chapter V of the UmbrellaFS dissertation: the file system's cost (figures 14 to 17, 22), and its scenarios (20, 34, 35)
	cargo bench --locked -p umbrella --bench fs -- --only papers --systems native,umbrella $(ARGS)
	cargo bench --locked -p umbrella --bench live -- scenarios $(ARGS)

install: build ## the binary, completions, the names that mount(8) looks for, and systemd units
	install -D -s -m 755 "$(BINARY)" "$(DESTDIR)$(PREFIX)/bin/umbrella"
	install -d "$(DESTDIR)$(PREFIX)/share/doc/umbrella"
	scripts/notices.sh "$(FEATURES)" > "$(DESTDIR)$(PREFIX)/share/doc/umbrella/NOTICES"
	install -d "$(DESTDIR)$(BASHDIR)" "$(DESTDIR)$(ZSHDIR)" "$(DESTDIR)$(FISHDIR)"
	"$(BINARY)" completions bash > "$(DESTDIR)$(BASHDIR)/umbrella"
	"$(BINARY)" completions zsh > "$(DESTDIR)$(ZSHDIR)/_umbrella"
	"$(BINARY)" completions fish > "$(DESTDIR)$(FISHDIR)/umbrella.fish"
	install -d "$(DESTDIR)$(SBINDIR)" "$(DESTDIR)$(UNITDIR)" "$(DESTDIR)/etc/umbrella"
	ln -sfn "$(PREFIX)/bin/umbrella" "$(DESTDIR)$(SBINDIR)/mount.fuse.umbrella"
	ln -sfn "$(PREFIX)/bin/umbrella" "$(DESTDIR)$(SBINDIR)/mount.umbrella"
	for unit in umbrella@.service umbrella-disk@.service umbrella-write-back@.service; do \
	    sed 's|@BINDIR@|$(PREFIX)/bin|g' "packaging/$$unit" > "$(DESTDIR)$(UNITDIR)/$$unit"; \
	done

uninstall: ## take away what `make install` put in place; configurations stay
	rm -rf "$(DESTDIR)$(PREFIX)/share/doc/umbrella"
	rm -f "$(DESTDIR)$(PREFIX)/bin/umbrella" "$(DESTDIR)$(SBINDIR)/mount.fuse.umbrella" \
	    "$(DESTDIR)$(SBINDIR)/mount.umbrella" "$(DESTDIR)$(UNITDIR)/umbrella@.service" \
	    "$(DESTDIR)$(BASHDIR)/umbrella" "$(DESTDIR)$(ZSHDIR)/_umbrella" "$(DESTDIR)$(FISHDIR)/umbrella.fish" \
	    "$(DESTDIR)$(UNITDIR)/umbrella-disk@.service" "$(DESTDIR)$(UNITDIR)/umbrella-write-back@.service"

clean: ## what was built, the test programs too
	cargo clean
