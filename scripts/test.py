#!/usr/bin/env python3
"""Every test, one program after the other. Prints a line for each, and at the end all output of those that fail.

LANES=N runs as many at a time: faster, but a `sync` of one may disturb another.
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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
URING_SWITCH = Path("/sys/module/fuse/parameters/enable_uring")
# A program that has not ended by then hangs, seconds.
TIME_LIMIT = 2400
PYTHON, MODEL_CHECK = "python", "fs model_check"
# The longest first, so that none is left over at the end.
LONGEST = ["cli pool", MODEL_CHECK, "cli posix", PYTHON, "block lib", "cli hanging", "reproductions quick", "cli disk", "fs hanging"]
# `mkfs.btrfs` asks for the file behind each loop device, also for those on a mount whose daemon was killed or stopped.
KILL_DAEMONS = {"cli crash", "cli disk_kills", "cli hanging", "cli log_disk", "fs hanging", "fs kills"}
MAKE_BTRFS = {"cli kinds", "cli pool", "cli write_back", "cli write_back_run", "fs branches", "writeback bpf"}
# These build something first, and wait for each other.
BUILD = {PYTHON, MODEL_CHECK}
# None of one runs beside one of the other.
APART = [(KILL_DAEMONS, MAKE_BTRFS), (BUILD, BUILD)]
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
# Tests that need the machine for themselves.
ALONE = {
    "cli pool": "idle::no_thread_of_an_idle_pool_runs_but_for_its_probes",
    "fuse mount": "transports::the_first_mount_switches_io_uring_on_and_uses_it",
}


@dataclass(eq=False)
class Job:
    name: str
    """Crate and program, as `cli pool`."""
    command: list[str]
    folder: Path = ROOT
    variables: dict[str, str] = field(default_factory=dict)
    expected: str = ""
    """A part of its output, also when it passes."""

    def runs_beside(self, other):
        mine, others = (job.name.removesuffix(ON_DEVICE) for job in (self, other))
        return not any(mine in one and others in two or mine in two and others in one for one, two in APART)


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


def alone(job):
    return Job(f"{job.name} {ALONE[job.name]}", [*job.command, "--ignored", "--exact", ALONE[job.name]], job.folder, job.variables, "1 passed")


def all_jobs(workspace):
    programs = list(built(*workspace))
    jobs = programs + [Job(PYTHON, ["scripts/python.sh"])]
    # Its locks are those of the model checker: a build of its own.
    jobs.append(Job(MODEL_CHECK, ["cargo", "test", "--locked", "-p", "umbrella-fs", "--features", "model-check", "--test", "model_check"]))
    umbrella = Path(programs[0].command[0]).parent.parent / "umbrella"
    jobs.append(Job("the same files through mergerfs and a pool", ["scripts/policies-beside-mergerfs.py", "--short"], variables={"UMBRELLA": str(umbrella)}))
    last = [alone(job) for job in programs if job.name in ALONE]
    if URING_SWITCH.exists():
        jobs += [on_device(job) for job in programs if job.name in FROM_DEVICE]
    else:
        last = [job for job in last if not job.name.startswith("fuse")]
    rank = {name: place for place, name in enumerate(LONGEST)}
    return sorted(jobs, key=lambda job: rank.get(job.name, len(LONGEST))), last


class Lanes:
    """Runs jobs, some at a time. A job that may not run beside what is running waits."""

    def __init__(self, jobs, started, failed):
        self.waiting = jobs
        self.running = {}
        self.failed = failed
        self.started = started
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
                if code == 0 and job.expected not in text:
                    code = f"no {job.expected!r} in its output"
            with self.changed:
                del self.running[job]
                self.changed.notify_all()
                now = time.monotonic()
                print(f"{now - self.started:6.0f} s  {job.name}: {summary(text) if code == 0 else f'FAILED ({code})'}, {now - started:.0f} s", flush=True)
                if code != 0:
                    self.failed.append((job, text))

    def run(self, lanes):
        with ThreadPoolExecutor(lanes) as threads:
            running = [threads.submit(self.lane) for _ in range(lanes)]
            try:
                for lane in running:
                    lane.result()
            except BaseException:
                self.waiting.clear()
                for process in filter(None, list(self.running.values())):
                    os.killpg(process.pid, signal.SIGTERM)
                raise


def summary(text):
    results = re.findall(r"^test result: ok\. (\d+) passed; \d+ failed; (\d+) ignored", text, re.MULTILINE)
    return f"{sum(int(passed) for passed, _ in results)} passed" if results else "passed"


def main():
    os.chdir(ROOT)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    subprocess.run(["scripts/unmount-dead.sh"], check=True)
    # Loads the module. Until then the kernel does not say whether it knows io_uring.
    with contextlib.suppress(OSError), open("/dev/fuse"):
        pass
    workspace = ["--workspace"]
    if tuple(map(int, re.findall(r"\d+", platform.release())[:2])) >= (6, 18):
        workspace += ["--features", "umbrella-fuse/live-tests"]
    else:
        print(f"skipped: the FUSE crate's own mounts, on both transports (`make test-fuse`): they need Linux 6.18, this is {platform.release()}")

    jobs, last = all_jobs(workspace)
    last.insert(0, Job("examples in the docs of code", ["cargo", "test", "--locked", "--doc", *workspace]))
    total, started, failed = len(jobs) + len(last), time.monotonic(), []
    try:
        for some, lanes in (jobs, int(os.environ.get("LANES", "1"))), (last, 1):
            Lanes(some, started, failed).run(lanes)
    finally:
        # Also of a run that is ended.
        for job, text in failed:
            print(f"\n=== {job.name}\n{text}")
    if failed:
        sys.exit(f"failed, {len(failed)} of {total}: " + ", ".join(job.name for job, _ in failed))
    print(f"all {total} passed in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
