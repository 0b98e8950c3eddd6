"""Runs: one, a comparison, a sweep on this machine or on a cluster."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from . import _native, _store
from ._missing import need
from ._trace import Trace

Progress = Callable[[int, int], None]


class Results:
    """What came of runs: a row each, with the setting, what was swept, and every figure of ``umbrella lab list metrics``."""

    __slots__ = ("rows",)

    def __init__(self, rows: Iterable[dict[str, Any]]):
        self.rows: list[dict[str, Any]] = list(rows)

    def to_arrow(self):
        """A pyarrow.Table."""
        return need("pyarrow", "pandas").Table.from_pylist(_even(self.rows))

    def to_pandas(self):
        """A pandas.DataFrame."""
        return need("pandas", "pandas").DataFrame(_even(self.rows))

    def __arrow_c_stream__(self, requested_schema=None):
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self):
        return iter(self.rows)

    def __repr__(self) -> str:
        return f"<Results: {len(self)} runs>"

    def _repr_html_(self) -> str:
        return self.to_pandas().to_html()


def _even(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A policy without a swept parameter has no value of it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name) for name in names} for row in rows]


class Planned:
    """Runs on an input, and what a worker needs to plan them again."""

    def __init__(self, asked: str, trace: Trace | None):
        self.asked, self.trace = asked, trace
        self.native = _native.Plan(asked, trace._native if trace is not None else None)

    def cells(self) -> list[str]:
        """What each run is called, on any machine and at any time."""
        of = f"{_native.__version__} {self.trace._native.digest if self.trace is not None else ''} "
        return [_store.cell_name(of + identity) for identity in self.native.identities()]

    def run(self, numbers: Sequence[int], threads: int, progress: Progress | None = None) -> list[dict[str, Any]]:
        """Runs these."""
        return [json.loads(row) for row in self.native.run(list(numbers), threads, progress)]


def _planned(
    policies: str | Sequence[str],
    input: Trace | str,
    over: Mapping[str, Iterable[Any]],
    device: int | None,
    wrap: bool,
    machine: Mapping[str, Any],
) -> Planned:
    is_trace = isinstance(input, Trace)
    if not is_trace and not isinstance(input, str):
        raise TypeError(f"the input is a Trace or the spec of a workload, not {type(input).__name__}")
    if not is_trace and (device is not None or wrap):
        raise ValueError("device and wrap are for traces; a workload has its own disk")
    asked = {
        "policies": [policies] if isinstance(policies, str) else list(policies),
        "workload": None if is_trace else input,
        "sweeps": [(_option(name), [_text(value) for value in values]) for name, values in over.items()],
        "machine": [(_option(name), _text(value)) for name, value in machine.items()],
        "device": device,
        "wrap": wrap,
    }
    return Planned(json.dumps(asked), input if is_trace else None)


def _option(name: str) -> str:
    return name.replace("_", "-")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _threads(threads: int | None) -> int:
    return threads or len(os.sched_getaffinity(0))


def run(
    policy: str,
    input: Trace | str,
    *,
    device: int | None = None,
    wrap: bool = False,
    **machine: Any,
) -> Results:
    """Runs one policy on a trace or a workload; one row.

    ``machine`` has the options of ``umbrella lab run``: memory="1GiB", disk="modern", seed=2, scale=0.1, speed="max" ...
    Ctrl-C ends it.

    >>> run("cscan", "rnd-write", scale=0.01, seed=7).rows[0]["seed"]
    7
    """
    planned = _planned(policy, input, {}, device, wrap, machine)
    return Results(planned.run(range(len(planned.native.identities())), 1))


def compare(
    policies: Sequence[str],
    input: Trace | str,
    *,
    seeds: Iterable[int] | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    device: int | None = None,
    wrap: bool = False,
    **machine: Any,
) -> Results:
    """Runs policies on the same input; a row for each policy and seed.

    A workload is run with the seeds 1, 2 and 3 unless you say which.

    >>> len(compare(["file", "cscan"], "rnd-write", scale=0.01))
    6
    """
    if seeds is None and isinstance(input, str) and "seed" not in machine:
        seeds = (1, 2, 3)
    over = {} if seeds is None else {"seed": list(seeds)}
    planned = _planned(policies, input, over, device, wrap, machine)
    return Results(planned.run(range(len(planned.native.identities())), _threads(threads), progress))


def sweep(
    policies: Sequence[str],
    input: Trace | str,
    over: Mapping[str, Iterable[Any]],
    *,
    client: Any = None,
    results: str | os.PathLike | None = None,
    progress: Progress | bool | None = None,
    threads: int | None = None,
    device: int | None = None,
    wrap: bool = False,
    **machine: Any,
) -> Results:
    """Runs each policy with each combination of values.

    ``over`` has the values of each parameter: a policy's, a workload's, or the machine's. ``client`` is a
    dask.distributed.Client: the runs go to its workers, and those of a worker that is lost run again. ``results`` is a
    folder that gets Parquet files as runs finish: what is done there already is not run again. ``progress`` is called with
    the number of finished runs and of all; True prints them.

    >>> len(sweep(["zone"], "rnd-write", {"zone": ["2MiB", "8MiB"]}, scale=0.01))
    2
    """
    planned = _planned(policies, input, over, device, wrap, machine)
    tell = _print_progress if progress is True else progress or None
    store = None if results is None else _store.Store(results)
    if client is not None:
        from ._cluster import batches

        finished = lambda missing: batches(client, planned, missing)
    else:
        finished = lambda missing: _local_batches(planned, missing, _threads(threads))
    return Results(_store.collect(planned.cells(), finished, store, tell))


def _local_batches(planned: Planned, numbers: list[int], threads: int):
    """Batches of runs on this machine: their numbers and rows."""
    size = 8 * threads
    for begin in range(0, len(numbers), size):
        batch = numbers[begin : begin + size]
        yield batch, planned.run(batch, threads)


def _print_progress(done: int, all: int) -> None:
    print(f"\r{done} of {all} runs", end="\n" if done == all else "", file=sys.stderr, flush=True)
