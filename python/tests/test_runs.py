"""Runs on this machine."""

import signal
import threading
import time

import pyarrow.parquet
import pytest

import umbrella_lab as lab
from umbrella_lab import Trace

SMALL = {"scale": 0.01}


@pytest.fixture
def trace():
    rows = range(200)
    return Trace.from_arrow(
        pyarrow.table(
            {
                "time_us": [100 * row for row in rows],
                "op": ["write" if row % 3 else "read" for row in rows],
                "offset": [4096 * (row * 7919 % 5000) for row in rows],
                "size": [4096] * 200,
            }
        ),
        name="made",
    )


def test_a_run_has_its_setting_and_every_figure():
    (row,) = lab.run("cscan", "rnd-write", seed=7, memory="256MiB", **SMALL)
    assert (row["policy"], row["seed"], row["input"]) == ("cscan", 7, "rnd-write")
    assert row["time_s"] > 0 and row["bytes_written"] > 0


def test_a_trace_in_memory_is_replayed_like_its_file(trace, tmp_path):
    trace.write(tmp_path / "made.parquet")
    again = Trace.open(tmp_path / "made.parquet")
    figures = [{**lab.run("cscan", of).rows[0], "input": ""} for of in (trace, again, trace)]
    assert figures[0] == figures[1] == figures[2]


def test_results_are_tables():
    results = lab.compare(["file", "cscan"], "rnd-write", **SMALL)
    assert len(results) == 6
    assert results.to_pandas().groupby("policy").size().to_dict() == {"cscan": 3, "file": 3}
    assert pyarrow.table(results).num_rows == 6


def test_a_sweep_has_each_value_of_what_it_sweeps():
    results = lab.sweep(["zone", "file"], "rnd-write", {"zone": ["2MiB", "8MiB"]}, **SMALL)
    assert sorted(str(row.get("zone")) for row in results) == ["2MiB", "8MiB", "None"]
    assert results.to_arrow().num_rows == 3


def test_a_sweep_goes_on_where_it_was(tmp_path, monkeypatch):
    over = {"seed": range(12)}
    first = lab.sweep(["file"], "rnd-write", over, results=tmp_path, threads=1, **SMALL)
    ran = []
    original = lab._runs.Planned.run
    monkeypatch.setattr(lab._runs.Planned, "run", lambda self, numbers, *more: (ran.extend(numbers), original(self, numbers, *more))[1])
    again = lab.sweep(["file"], "rnd-write", {"seed": range(14)}, results=tmp_path, threads=1, **SMALL)
    assert ran == [12, 13]
    assert again.rows[:12] == first.rows
    assert pyarrow.parquet.read_table(tmp_path).num_rows == 14


def test_a_folder_of_something_else_is_refused(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(ValueError, match="name another folder"):
        lab.sweep(["file"], "rnd-write", {"seed": [1]}, results=tmp_path, **SMALL)
    (tmp_path / "other.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(ValueError, match="move it away"):
        lab.sweep(["file"], "rnd-write", {"seed": [1]}, results=tmp_path, **SMALL)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: lab.run("fiel", "rnd-write"), 'did you mean "file"'),
        (lambda: lab.run("file", "no-such"), "no-such"),
        (lambda: lab.run("file", "rnd-write", memory="much"), "memory"),
        (lambda: lab.run("file", "rnd-write", memroy="1GiB"), "memroy"),
        (lambda: lab.run("file", "rnd-write", wrap=True), "for traces"),
        (lambda: lab.sweep(["file"], "rnd-write", {"seed": [1]}, seed=2), "swept twice"),
    ],
)
def test_an_error_says_what_is_wrong(call, says):
    with pytest.raises(ValueError, match=says):
        call()


def test_another_input_is_refused():
    with pytest.raises(TypeError, match="a Trace or the spec of a workload, not int"):
        lab.run("file", 5)


def test_progress_reaches_the_end():
    told = []
    lab.compare(["file", "cscan"], "rnd-write", progress=lambda *of: told.append(of), **SMALL)
    assert told[-1] == (6, 6)


def test_other_threads_go_on_while_runs_are_under_way():
    """Python's lock is not held: another thread counts meanwhile."""
    counted, ended = [0], threading.Event()

    def count():
        while not ended.is_set():
            counted[0] += 1
            time.sleep(0.001)

    thread = threading.Thread(target=count)
    thread.start()
    before = counted[0]
    seen = []
    lab.compare(["file"], "rnd-write", progress=lambda *_: seen.append(counted[0]), scale=0.05)
    ended.set()
    thread.join()
    assert seen[-1] > before


@pytest.fixture
def heeds_ctrl_c():
    """Who starts the tests in the background may have the signal ignored: then Python does not heed it either."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_ends_runs_that_would_go_on():
    """The first progress says that runs are under way; then comes the signal."""
    # More than the command line shows in a table.
    over = {"seed": range(20_000)}
    sent = []

    def interrupt(done, _all):
        if not sent:
            sent.append(done)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        lab.compare(["file"], "rnd-write", seeds=over["seed"], progress=interrupt, scale=0.1)
