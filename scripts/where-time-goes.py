#!/usr/bin/env python3
"""Where the time of common operations on a pool goes: on the file system below, in the daemon's handlers, and in handing each request over and back.
Prints the table of docs/performance.md. Needs root, postmark and target/release/umbrella (or the program in $UMBRELLA).

    scripts/where-time-goes.py [--files N] [--rounds N] [--transport io_uring|dev]

Each operation runs on ext4 (a loop device over a file in memory), on a pool over it, and on the same pool with a trace of requests. The times come from
the first two, the requests and the time in their handlers from the trace. What is left is handing over: waking the daemon and the caller, and FUSE's
part of the kernel. All are medians of the rounds, for one operation, in microseconds."""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = os.environ.get("UMBRELLA", ROOT / "target/release/umbrella")
# No caller waits for these.
ASYNCHRONOUS = {"release", "releasedir", "forget", "batch_forget", "interrupt"}
DIRECTORIES = 20
REQUEST = re.compile(r"^\d+\.\d+ #\d+ (\w+) .*?handler_us=([\d.]+)")
# Long enough for the trace to be in its file: it is written every 50 ms.
TRACED = 0.2


def run(*words, **more):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, **more)
    if done.returncode:
        sys.exit(f"{' '.join(str(word) for word in words)}: {done.stderr}{done.stdout}")
    return done.stdout


def create(path):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(file, b"x" * 1024)
    os.close(file)


def read(path):
    file = os.open(path, os.O_RDONLY)
    os.read(file, 1024)
    os.close(file)


def cool():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("2")


class Work:
    """The operations, in an order in which each finds what it needs. Each step gives the seconds for all files and how many operations they were."""

    def __init__(self, root, count, sources):
        self.root, self.sources = root, sources
        self.folders = [f"{root}/d{number:02}" for number in range(DIRECTORIES)]
        self.files = [f"{self.folders[number % DIRECTORIES]}/f{number:06}" for number in range(count)]
        self.renamed = [path.replace("/f", "/g") for path in self.files]
        for folder in self.folders:
            os.mkdir(folder)

    def each(self, function, *paths):
        begin = time.perf_counter()
        for arguments in zip(*paths):
            function(*arguments)
        return time.perf_counter() - begin, len(paths[0])

    def program(self, *words, operations=1, **more):
        begin = time.perf_counter()
        run(*words, **more)
        return time.perf_counter() - begin, operations

    def steps(self):
        count = len(self.files)
        yield "create, write 1 KiB, close", None, lambda: self.each(create, self.files)
        yield "stat, cold", cool, lambda: self.each(os.stat, self.files)
        yield "list names, cold, each file", cool, lambda: (self.each(os.listdir, self.folders)[0], count)
        yield "open, read 1 KiB, close", lambda: self.each(read, self.files), lambda: self.each(read, self.files)
        yield "rename", os.sync, lambda: self.each(os.rename, self.files, self.renamed)
        yield "unlink", None, lambda: self.each(os.unlink, self.renamed)
        tree = self.sources
        files = sum(len(names) for _, _, names in os.walk("/usr/include"))
        yield "untar, each file", None, lambda: self.program("tar", "-xf", tree, "-C", self.root, operations=files)
        yield "`rm -r`, each file", cool, lambda: self.program("rm", "-r", f"{self.root}/include", operations=files)
        for block in (512, 4096):
            transactions = count
            script = f"set location {self.root}\nset number {count // 2}\nset size 8192 65536\nset subdirectories 200\n"
            script += f"set transactions {transactions}\nset read {block}\nset write {block}\nset buffering false\nrun\nquit\n"
            yield f"postmark, {block} B blocks, each transaction", os.sync, lambda script=script: self.program(
                "postmark", input=script, operations=transactions
            )


class Pool:
    """A pool over one directory; with a trace if one is wanted."""

    def __init__(self, folder, branch, transport, trace=None):
        self.mount = folder / "pool"
        self.mount.mkdir(exist_ok=True)
        config = folder / "pool.toml"
        config.write_text(
            f'mount = "{self.mount}"\ndefault = ["a"]\ntransport = "{transport}"\n[[branch]]\nname = "a"\npath = "{branch}"\nrequire_mount = false\n'
        )
        self.environment = {**os.environ, "UMBRELLA_STATE_DIR": str(folder / f"state-{branch.name}")}
        words = ["mount", config, "--daemon", "--log", folder / "log"] + (["--trace-requests", trace] if trace else [])
        run(PROGRAM, *words, env=self.environment)

    def close(self):
        run(PROGRAM, "unmount", self.mount, env=self.environment)


def requests_of(trace, offset):
    """The requests that the trace has got since: how many of each a caller waited for, and the microseconds in their handlers."""
    time.sleep(TRACED)
    with open(trace) as file:
        file.seek(offset)
        text = file.read()
    counts, handlers = {}, 0.0
    for line in text.splitlines():
        if (found := REQUEST.match(line)) and found[1] not in ASYNCHRONOUS:
            counts[found[1]] = counts.get(found[1], 0) + 1
            handlers += float(found[2])
    return counts, handlers, offset + len(text.encode())


def measure(root, count, sources, results, trace=None):
    offset = trace.stat().st_size if trace else 0
    for name, before, step in Work(root, count, sources).steps():
        if before:
            before()
        if trace:
            _, _, offset = requests_of(trace, offset)
        seconds, operations = step()
        row = results.setdefault(name, [])
        if trace:
            counts, handlers, offset = requests_of(trace, offset)
            row.append(({name: number / operations for name, number in counts.items()}, handlers / operations))
        else:
            row.append(seconds / operations * 1e6)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=5000, help="how many small files (default: 5000)")
    parser.add_argument("--rounds", type=int, default=3, help="how often (default: 3)")
    parser.add_argument("--transport", default="io_uring", choices=["io_uring", "dev"])
    arguments = parser.parse_args()
    native, pool, traced = {}, {}, {}
    folder = Path(tempfile.mkdtemp(prefix="umbrella-time-"))
    memory = folder / "memory"
    disk = folder / "disk"
    mounted = []
    try:
        memory.mkdir()
        disk.mkdir()
        run("mount", "-t", "tmpfs", "-o", "size=6g", "tmpfs", memory)
        mounted.append(memory)
        image = memory / "image"
        run("truncate", "-s", "4G", image)
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        run("mount", "-o", "loop", image, disk)
        mounted.append(disk)
        sources = memory / "sources.tar"
        run("tar", "-cf", sources, "-C", "/usr", "include")
        for number in range(arguments.rounds):
            for kind in ("native", "pool", "traced"):
                branch = disk / f"{number}-{kind}"
                branch.mkdir()
                if kind == "native":
                    measure(branch, arguments.files, sources, native)
                else:
                    trace = folder / f"trace-{number}" if kind == "traced" else None
                    opened = Pool(folder, branch, arguments.transport, trace)
                    try:
                        measure(opened.mount, arguments.files, sources, traced if trace else pool, trace)
                    finally:
                        opened.close()
                shutil.rmtree(branch)
                os.sync()
    finally:
        for place in reversed(mounted):
            run("umount", place)
        shutil.rmtree(folder)
    print("| operation | ext4 | pool | ratio | requests waited for | in handlers | handing over | a request |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, samples in pool.items():
        ext4, whole = statistics.median(native[name]), statistics.median(samples)
        handlers = statistics.median(handlers for _, handlers in traced[name])
        counts = traced[name][-1][0]
        number = sum(counts.values())
        common = sorted(counts.items(), key=lambda pair: -pair[1])
        asked = ", ".join(f"{each:.2g} {kind}" for kind, each in common if each >= 0.05)
        rest = whole - handlers
        each = f"{rest / number:.1f}" if number >= 0.05 else ""
        print(f"| {name} | {ext4:.1f} | {whole:.1f} | {whole / ext4:.1f} | {number:.2f}: {asked} | {handlers:.1f} | {rest:.1f} | {each} |")


if __name__ == "__main__":
    main()
