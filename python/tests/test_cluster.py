"""Sweeps on a cluster of two workers on this machine. CELLS is how many runs the test of scale has."""

import os
import signal
import subprocess
import sys

import pyarrow.parquet
import pytest
from dask.distributed import Client, LocalCluster

import umbrella_lab as lab

CELLS = int(os.environ.get("CELLS", "200"))
SMALL = {"scale": 0.002, "memory": "1GiB"}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with Client(cluster) as client:
        yield client


def seeds(results):
    return [row["seed"] for row in results]


def test_a_cluster_gives_what_this_machine_gives(client):
    over = {"seed": range(6)}
    here = lab.sweep(["file", "cscan"], "rnd-write", over, **SMALL)
    assert lab.sweep(["file", "cscan"], "rnd-write", over, client=client, **SMALL).rows == here.rows


def test_a_trace_goes_to_the_workers(client, tmp_path):
    path = tmp_path / "tiny.csv"
    path.write_text("".join(f"{time},sda,W,{time * 4096},4096,\n" for time in range(100)))
    trace = lab.Trace.open(path)
    over = {"memory": ["64MiB", "128MiB"]}
    assert lab.sweep(["file"], trace, over, client=client).rows == lab.sweep(["file"], trace, over).rows


def test_a_lost_workers_runs_are_run_again_and_none_is_there_twice(cluster, client, tmp_path):
    killed = []

    def kill_one(done, _all):
        if done > 0 and not killed:
            killed.append(next(iter(cluster.workers.values())).pid)
            os.kill(killed[0], signal.SIGKILL)

    results = lab.sweep(
        ["file"], "rnd-write", {"seed": range(CELLS)}, client=client, results=tmp_path, progress=kill_one, **SMALL
    )
    assert killed
    assert seeds(results) == list(range(CELLS))
    assert sorted(pyarrow.parquet.read_table(tmp_path)["seed"].to_pylist()) == list(range(CELLS))


def test_an_interrupted_sweep_goes_on(client, tmp_path):
    def interrupt(done, _all):
        if done >= 10:
            raise KeyboardInterrupt

    over = {"seed": range(40)}
    with pytest.raises(KeyboardInterrupt):
        lab.sweep(["file"], "rnd-write", over, client=client, results=tmp_path, progress=interrupt, **SMALL)
    first = pyarrow.parquet.read_table(tmp_path).num_rows
    assert 10 <= first < 40
    told = []
    results = lab.sweep(
        ["file"], "rnd-write", over, client=client, results=tmp_path, progress=lambda *of: told.append(of), **SMALL
    )
    assert told[0] == (first, 40)
    assert seeds(results) == list(range(40))


def test_a_run_that_fails_says_why(client):
    with pytest.raises(ValueError, match="fiel"):
        lab.sweep(["fiel"], "rnd-write", {"seed": [1]}, client=client, **SMALL)
    with pytest.raises(TypeError, match="dask.distributed.Client"):
        lab.sweep(["file"], "rnd-write", {"seed": [1]}, client=object(), **SMALL)


def hand_over(address, folder):
    command = [sys.executable, "-m", "umbrella_lab", "--cluster", address, "--results", str(folder), "--policy", "file"]
    command += ["--workload", "rnd-write", "--sweep", "seed=1,2,3", "--set", "scale=0.002", "--set", "memory=1GiB"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_the_command_line_hands_over(cluster, tmp_path):
    done = hand_over(cluster.scheduler_address, tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("3 runs: ")
    assert pyarrow.parquet.read_table(tmp_path / "out").num_rows == 3
    again = hand_over(cluster.scheduler_address, tmp_path / "out")
    assert "3 of 3 runs" in again.stderr
