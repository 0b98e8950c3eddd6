#!/usr/bin/env python3
"""Every test, two programs at a time (LANES=N: as many). Prints a line for each program, and all output of those that fail.

Pools get their requests over io_uring where the kernel has it. There, the most telling suites run on /dev/fuse too.
"""

import contextlib
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
URING_SWITCH = Path("/sys/module/fuse/parameters/enable_uring")
# A program that has not ended by then hangs, seconds.
TIME_LIMIT = 2400
# The longest first, so that none is left over at the end.
LONGEST = ["cli pool", "cli posix", "python", "fs model_check", "block lib", "cli hanging", "reproductions quick", "cli disk", "fs hanging"]
# `mkfs.btrfs` asks for the file behind each loop device, also for those on a mount whose daemon was killed or stopped. So these two never run at once.
KILL_DAEMONS = {"cli crash", "cli disk_kills", "cli hanging", "cli log_disk", "fs hanging", "fs kills"}
MAKE_BTRFS = {"cli kinds", "cli pool", "cli write_back", "cli write_back_run", "fs branches", "writeback bpf"}
ON_DEVICE = " on /dev/fuse"
# Suites that also run with requests from /dev/fuse, and which of their tests.
FROM_DEVICE = {
    "cli pool": ["at_once::", "failing_calls::", "mounting::", "overflow::", "scenarios::", "staging::"],
    "cli posix": ["suites::pjdfstest_passes_without_passthrough", "suites::fsx_passes_where_the_first_branch_overflows"],
    "cli hanging": ["stopped::a_hung_branch_does_not_hang_the_others", "slow::others_go_on_while_many_wait"],
    "cli write_back": [],
    "cli crash": [],
    "cli model": [],
}


@dataclass(eq=False)
class Job:
    name: str
    """Crate and program, as `cli pool`."""
    command: list[str]
    folder: Path = ROOT
    variables: dict[str, str] = field(default_factory=dict)

    def runs_beside(self, other):
        mine, others = (job.name.removesuffix(ON_DEVICE) for job in (self, other))
        return not any(mine in one and others in two for one, two in ((KILL_DAEMONS, MAKE_BTRFS), (MAKE_BTRFS, KILL_DAEMONS)))


def built(*arguments):
    """The test programs that `cargo test` with these arguments would run."""
    command = ["cargo", "test", "--locked", "--no-run", "--message-format=json-render-diagnostics", *arguments]
    output = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
    for message in map(json.loads, filter(lambda line: line.startswith("{"), output.splitlines())):
        if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]:
            folder, target = Path(message["manifest_path"]).parent, message["target"]
            name = f"{folder.name} {target['name'] if 'test' in target['kind'] else target['kind'][0]}"
            yield Job(name, [message["executable"]], folder, {"CARGO_MANIFEST_DIR": str(folder)})


def on_device(job):
    return Job(job.name + ON_DEVICE, job.command + FROM_DEVICE[job.name], job.folder, {**job.variables, "UMBRELLA_TEST_TRANSPORT": "dev"})


def all_jobs(workspace):
    programs = list(built(*workspace))
    # Its locks are those of the model checker: a build of its own.
    jobs = programs + list(built("-p", "umbrella-fs", "--features", "model-check", "--test", "model_check"))
    jobs.append(Job("python", ["scripts/python.sh"]))
    umbrella = Path(programs[0].command[0]).parent.parent / "umbrella"
    jobs.append(Job("the same files through mergerfs and a pool", ["scripts/policies-beside-mergerfs.py", "--short"], variables={"UMBRELLA": str(umbrella)}))
    if URING_SWITCH.exists():
        jobs += [on_device(job) for job in programs if job.name in FROM_DEVICE]
    rank = {name: place for place, name in enumerate(LONGEST)}
    return sorted(jobs, key=lambda job: rank.get(job.name, len(LONGEST)))


class Lanes:
    """Runs jobs, some at a time. A job that may not run beside what is running waits."""

    def __init__(self, jobs):
        self.waiting = jobs
        self.running = {}
        self.failed = []
        self.started = time.monotonic()
        self.changed = threading.Condition()

    def next_job(self):
        with self.changed:
            while self.waiting:
                for job in self.waiting:
                    if all(job.runs_beside(other) for other in self.running):
                        self.waiting.remove(job)
                        self.running[job] = None
                        return job
                self.changed.wait()
        return None

    def lane(self):
        while job := self.next_job():
            started = time.monotonic()
            with tempfile.TemporaryFile("w+", errors="replace") as output:
                process = subprocess.Popen(
                    job.command, cwd=job.folder, env={**os.environ, **job.variables}, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
                self.running[job] = process
                try:
                    code = process.wait(TIME_LIMIT)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    code = f"still running after {TIME_LIMIT} s"
                output.seek(0)
                text = output.read()
            with self.changed:
                del self.running[job]
                self.changed.notify_all()
                now = time.monotonic()
                print(f"{now - self.started:6.0f} s  {job.name}: {summary(text) if code == 0 else f'FAILED ({code})'}, {now - started:.0f} s", flush=True)
                if code != 0:
                    self.failed.append((job, text))

    def run(self, lanes):
        threads = [threading.Thread(target=self.lane, daemon=True) for _ in range(lanes)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt:
            for process in filter(None, self.running.values()):
                os.killpg(process.pid, signal.SIGINT)
            raise


def summary(text):
    results = re.findall(r"^test result: ok\. (\d+) passed; \d+ failed; (\d+) ignored", text, re.MULTILINE)
    return f"{sum(int(passed) for passed, _ in results)} passed" if results else "passed"


def main():
    os.chdir(ROOT)
    subprocess.run(["scripts/unmount-dead.sh"], check=True)
    # Loads the module. Until then the kernel does not say whether it knows io_uring.
    with contextlib.suppress(OSError), open("/dev/fuse"):
        pass
    workspace = ["--workspace"]
    if tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 18):
        workspace += ["--features", "umbrella-fuse/live-tests"]
    else:
        print(f"skipped: the FUSE crate's own mounts, on both transports (`make test-fuse`): they need Linux 6.18, this is {platform.release()}")

    lanes = Lanes(all_jobs(workspace))
    total = len(lanes.waiting)
    lanes.run(int(os.environ.get("LANES", "2")))
    for job, text in lanes.failed:
        print(f"\n=== {job.name}\n{text}")
    subprocess.run(["cargo", "test", "--locked", "--doc", *workspace], check=True)
    if URING_SWITCH.exists() and "--features" in workspace:
        # Alone: meanwhile no other mount gets its requests over io_uring.
        alone = ["--test", "mount", "--", "--ignored", "the_first_mount_switches_io_uring_on_and_uses_it"]
        subprocess.run(["cargo", "test", "--locked", *workspace, *alone], check=True)
    if lanes.failed:
        sys.exit(f"failed, {len(lanes.failed)} of {total}: " + ", ".join(job.name for job, _ in lanes.failed))
    print(f"all {total} test programs passed in {time.monotonic() - lanes.started:.0f} s")


if __name__ == "__main__":
    main()
