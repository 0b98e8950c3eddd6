#!/usr/bin/env python3
"""Creates the same files through mergerfs and through a pool with the configuration that `umbrella from-mergerfs` writes, for every policy of creating, and
compares on which branches they lie: the tables of docs/from-mergerfs.md, tried. `mfs:a=NC` is the policy mfs with branch a in mode NC, and
`epmfs,moveonenospc=true` the policy epmfs with an option: what a full branch and names in other directories mean then.
Needs root, mergerfs and target/debug/umbrella (or the program in $UMBRELLA).

    scripts/policies-beside-mergerfs.py [--only mergerfs] [--short] [POLICY[:BRANCH=MODE][,OPTION=VALUE]...]

Ends with 1 where the two differ. With --only mergerfs it prints what mergerfs does. With --short it leaves out policies that are alike."""

import argparse
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
POLICIES = """all epall epff eplfs eplus epmfs eppfrd eprand ff lfs lus mfs msplfs msplus mspmfs msppfrd newest pfrd rand""".split()
# Branches in another mode than RW: the favourite of the policy, or the one that has the directory.
MODES = ["ff:a=NC", "mfs:b=NC", "epmfs:a=NC", "mspmfs:a=NC", "epff:b=NC", "ff:a=RO", "mfs:b=RO", "epmfs:a=RO"]
# Options of the whole pool. `,` alone: as they are without any.
OPTIONS = ["mfs,", "mfs,moveonenospc=true", "epmfs,", "epmfs,moveonenospc=true", "epmfs,ignorepponrename=true", "epmfs,rename-exdev=rel-symlink", "epmfs,link-exdev=rel-symlink"]
SHORT = ["ff", "mfs", "epmfs", "mspmfs", "mfs:b=NC", "ff:a=RO", "mfs,", "mfs,moveonenospc=true", "epmfs,", "epmfs,ignorepponrename=true"]
RANDOM = {"eppfrd", "eprand", "msppfrd", "pfrd", "rand"}
MIB = 1 << 20
# Size of each branch and what is used of it, so that every policy has another favourite.
BRANCHES = {"a": (64, 40), "b": (96, 20), "c": (48, 12)}
# What exists before, and the branches that have it. `full` lies on a branch that has no room.
DIRECTORIES = {"some": "ac", "some/deep": "a", "other": "b", "every": "abc", "full": "d", "full/deep": "d"}
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
        for holder in "abc":
            (folder / holder / f"every/old-{holder}").write_bytes(b"old")
        self.tree = folder / "tree"
        self.tree.mkdir()

    def close(self):
        for mount in reversed(self.mounts):
            run("umount", mount)

    def where(self, path):
        """The branches that have the name, `@` behind one where it is a symbolic link."""
        found = {name: self.folder / name / path for name in "abcd"}
        return "".join(name + "@" * at.is_symlink() for name, at in found.items() if os.path.lexists(at))

    def create(self, policy):
        """For each file the branches that took it, or the error."""
        took = {}
        for file in FILES:
            took[file] = set()
            for number in range(TIMES if policy in RANDOM else 1):
                path = f"{file}{number}"
                took[file].add(self.outcome(path, lambda path: path.write_bytes(b"")))
        return {file: " ".join(sorted(branches)) for file, branches in took.items()}

    def change(self, branch):
        """What becomes of a file that is on a branch: where each step leaves it, or the error."""
        old, new, link = f"every/old-{branch}", f"every/new-{branch}", f"every/link-{branch}"
        return {
            "append": self.outcome(old, lambda path: path.open("ab").write(b"more")),
            "chmod": self.outcome(old, lambda path: path.chmod(0o600)),
            "link": self.outcome(link, lambda path: path.hardlink_to(self.tree / old)),
            "rename": self.outcome(new, lambda path: (self.tree / old).rename(path)),
            "delete": self.outcome(new, lambda path: path.unlink()),
        }

    def extremes(self):
        """What becomes of a file whose branch is full, of a new one whose branch has no inodes left, and of names in directories of another branch."""

        def grow(path):
            with path.open("ab") as file:
                for _ in range(BRANCHES["c"][0]):
                    file.write(bytes(MIB))
                    file.flush()

        (self.folder / "a/some/deep/file").write_bytes(b"")
        found = {
            "rename": self.outcome("other/new", lambda path: (self.tree / "some/deep/file").rename(path)),
            "grow": self.outcome("every/old-c", grow),
        }
        (self.folder / "a/some/deep/second").write_bytes(b"")
        found["link"] = self.outcome("other/link", lambda path: path.hardlink_to(self.tree / "some/deep/second"))
        # The favourite of both policies: where most is free by now.
        favourite = max((self.folder / name for name in "abc"), key=lambda branch: os.statvfs(branch).f_bavail)
        used = os.statvfs(favourite)
        run("mount", "-o", f"remount,nr_inodes={used.f_files - used.f_ffree}", favourite)
        time.sleep(0.5)  # So long a pool may believe what it was told last.
        found["inodes"] = self.outcome("every/new", lambda path: path.write_bytes(b""))
        return found

    def outcome(self, path, step):
        try:
            step(self.tree / path)
            return self.where(path)
        except OSError as error:
            return errno.errorcode[error.errno]


def options(row):
    _, _, more = row.partition(",")
    return f"category.create={parts(row)[0]},minfreespace=4M" + (f",{more}" if more else "")


def parts(row):
    """The policy of a row, and the branches as mergerfs has them: with the mode of one, if it has another."""
    policy, _, mode = row.partition(",")[0].partition(":")
    return policy, mode.partition("=")


def branches_of(folder, mode):
    changed, equals, word = mode
    return ":".join(f"{folder}/{name}{equals + word if name == changed else ''}" for name in "abcd")


def tried(world, row):
    policy, (changed, equals, _) = parts(row)
    if "," in row:
        return world.extremes()
    return {**world.create(policy), **(world.change(changed) if equals else {})}


def through_mergerfs(row):
    _, mode = parts(row)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        try:
            run("mergerfs", "-o", options(row), branches_of(folder, mode), world.tree)
            try:
                return tried(world, row)
            finally:
                run("umount", world.tree)
        finally:
            world.close()


def through_umbrella(row):
    _, mode = parts(row)
    program = os.environ.get("UMBRELLA", ROOT / "target/debug/umbrella")
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder))
        environment = {**os.environ, "UMBRELLA_RUN_DIR": f"{folder}/run", "UMBRELLA_STATE_DIR": f"{folder}/state"}
        environment["UMBRELLA_LOG_DIR"] = folder
        try:
            line = f"{branches_of(folder, mode)} {world.tree} fuse.mergerfs {options(row)} 0 0"
            config = f"{folder}/pool.toml"
            run(program, "from-mergerfs", "--output", config, line, env=environment)
            run(program, "mount", config, "--daemon", env=environment)
            try:
                return tried(world, row)
            finally:
                run(program, "unmount", config, env=environment)
        finally:
            world.close()


def as_documented(row, file, taken, own):
    """Whether our page says that the two differ so."""
    policy, (_, _, mode) = parts(row)
    if "," in row:
        # mergerfs counts no inodes, moves nothing from a full branch unless it is asked to, and keeps paths.
        return taken == "ENOSPC" and file in ("grow", "inodes") or taken in ("EXDEV", "b@") and file in ("rename", "link")
    is_refused = mode and {taken, own} == {"EROFS", "ENOSPC"}
    is_read_only = mode == "RO" and (file == "append" or policy.startswith("ep") and taken == "EROFS")
    return policy == "newest" or is_refused or is_read_only


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=["mergerfs"])
    parser.add_argument("--short", action="store_true")
    parser.add_argument("policies", nargs="*")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or not shutil.which("mergerfs"):
        sys.exit("this mounts mergerfs: run it as root, and install mergerfs (`apt-get install mergerfs`)")
    differ = False
    for policy in arguments.policies or (SHORT if arguments.short else POLICIES + MODES + OPTIONS):
        theirs = through_mergerfs(policy)
        ours = {} if arguments.only else through_umbrella(policy)
        for file, taken in theirs.items():
            own = ours.get(file, "")
            # Of a random choice that makes the directory only the first is random: the others follow it there.
            first_choice = policy in RANDOM and file.startswith("full/") and {own, taken} <= {"a", "b", "c"}
            is_equal = arguments.only or own == taken or first_choice
            note = "" if is_equal else "  as documented" if as_documented(policy, file, taken, own) else "  DIFFERS"
            differ |= note.endswith("DIFFERS")
            print(f"{policy:<29} {file:<12} {taken:<16} {own}{note}", flush=True)
    sys.exit(differ)


if __name__ == "__main__":
    main()
