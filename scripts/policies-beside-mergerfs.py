#!/usr/bin/env python3
"""Creates the same files through mergerfs and through a pool with the configuration that `umbrella from-mergerfs` writes, for every policy of creating, and
compares on which branches they lie: the table of docs/from-mergerfs.md, tried. Needs root, mergerfs and target/debug/umbrella (or the program in $UMBRELLA).

    scripts/policies-beside-mergerfs.py [--only mergerfs] [POLICY...]

Ends with 1 where the two differ. With --only mergerfs it prints what mergerfs does."""

import argparse
import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POLICIES = """all epall epff eplfs eplus epmfs eppfrd eprand ff lfs lus mfs msplfs msplus mspmfs msppfrd newest pfrd rand""".split()
RANDOM = {"eppfrd", "eprand", "msppfrd", "pfrd", "rand"}
# Where our page says that the two differ.
UNEQUAL = {"newest"}
MIB = 1 << 20
# Size of each branch and what is used of it, so that every policy has another favourite.
BRANCHES = {"a": (64, 40), "b": (96, 20), "c": (48, 12)}
# What exists before, and the branches that have it. `full` lies on a branch that has no room.
DIRECTORIES = {"some": "ac", "some/deep": "a", "every": "abc", "full": "d", "full/deep": "d"}
FILES = ["top", "some/x", "some/deep/x", "every/x", "full/x", "full/deep/x"]
# Enough for a branch that a random policy can take to be taken, but for one time in a million.
TIMES = 60


def run(*words, **more):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, **more)


class World:
    """Four file systems in memory; `d` has less than the least free space."""

    def __init__(self, folder):
        self.folder = folder
        self.mounts = []
        for name, (size, used) in {**BRANCHES, "d": (16, 14)}.items():
            branch = folder / name
            branch.mkdir()
            run("mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", branch)
            self.mounts.append(branch)
            (branch / ".used").write_bytes(bytes(used * MIB))
        for path, holders in DIRECTORIES.items():
            for holder in holders:
                (folder / holder / path).mkdir(parents=True)
        self.tree = folder / "tree"
        self.tree.mkdir()

    def close(self):
        for mount in reversed(self.mounts):
            run("umount", mount)

    def where(self, path):
        found = [name for name in "abcd" if (self.folder / name / path).exists()]
        return "".join(found)

    def create(self, policy):
        """For each file the branches that took it, or the error."""
        took = {}
        for file in FILES:
            took[file] = set()
            for number in range(TIMES if policy in RANDOM else 1):
                path = f"{file}{number}"
                try:
                    (self.tree / path).write_bytes(b"")
                    took[file].add(self.where(path))
                except OSError as error:
                    took[file].add(errno.errorcode[error.errno])
        return {file: " ".join(sorted(branches)) for file, branches in took.items()}


def options(policy):
    return f"category.create={policy},minfreespace=4M"


def through_mergerfs(policy):
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        try:
            branches = ":".join(f"{folder}/{name}" for name in "abcd")
            run("mergerfs", "-o", options(policy), branches, world.tree)
            try:
                return world.create(policy)
            finally:
                run("umount", world.tree)
        finally:
            world.close()


def through_umbrella(policy):
    program = os.environ.get("UMBRELLA", ROOT / "target/debug/umbrella")
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        environment = {**os.environ, "UMBRELLA_RUN_DIR": f"{folder}/run", "UMBRELLA_STATE_DIR": f"{folder}/state"}
        environment["UMBRELLA_LOG_DIR"] = folder
        try:
            branches = ":".join(f"{folder}/{name}" for name in "abcd")
            line = f"{branches} {world.tree} fuse.mergerfs {options(policy)} 0 0"
            config = f"{folder}/pool.toml"
            run(program, "from-mergerfs", "--output", config, line, env=environment)
            run(program, "mount", config, "--daemon", env=environment)
            try:
                return world.create(policy)
            finally:
                run(program, "unmount", config, env=environment)
        finally:
            world.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["mergerfs"])
    parser.add_argument("policies", nargs="*", default=POLICIES)
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("mergerfs"):
        sys.exit("this mounts mergerfs: run it as root, and install mergerfs (`apt-get install mergerfs`)")
    differ = False
    for policy in arguments.policies:
        theirs = through_mergerfs(policy)
        ours = {} if arguments.only else through_umbrella(policy)
        for file, taken in theirs.items():
            own = ours.get(file, "")
            # Of a random choice that makes the directory only the first is random: the others follow it there.
            first_choice = policy in RANDOM and file.startswith("full/") and {own, taken} <= {"a", "b", "c"}
            is_equal = arguments.only or own == taken or first_choice
            note = "" if is_equal else "  as documented" if policy in UNEQUAL else "  DIFFERS"
            differ |= note.endswith("DIFFERS")
            print(f"{policy:<8} {file:<12} {taken:<16} {own}{note}", flush=True)
    sys.exit(differ)


if __name__ == "__main__":
    main()
