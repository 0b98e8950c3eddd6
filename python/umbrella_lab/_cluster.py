"""Runs on a Dask cluster.

A task is a few runs. Dask runs a task again when its worker is lost; a task gives its rows once, when it is done, so no run
is in the results twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from ._missing import need
from ._runs import Planned
from ._trace import Trace

# Runs of a task: enough that a task costs more than the scheduler's work for it, few enough that little is lost with a worker.
_MOST_RUNS = 32
# Tasks for each thread of the cluster, so that none waits for a long last one.
_TASKS_PER_THREAD = 16


@lru_cache(maxsize=4)
def _plan(asked: str, trace: Trace | None) -> Planned:
    return Planned(asked, trace)


def _run(asked: str, trace: Trace | None, numbers: list[int]) -> list[dict[str, Any]]:
    """A task. A worker plans once for all of its tasks: it is given the same trace for each."""
    return _plan(asked, trace).run(numbers, 1)


def batches(client: Any, planned: Planned, numbers: list[int]) -> Iterator[tuple[list[int], list[dict[str, Any]]]]:
    """Runs these on the cluster; numbers and rows of each task as it is done."""
    distributed = need("distributed", "cluster")
    if not isinstance(client, distributed.Client):
        raise TypeError(f"the client is a dask.distributed.Client, not {type(client).__name__}")
    threads = max(1, sum(client.nthreads().values()))
    size = max(1, min(_MOST_RUNS, len(numbers) // (_TASKS_PER_THREAD * threads)))
    parts = [numbers[begin : begin + size] for begin in range(0, len(numbers), size)]
    trace = planned.trace
    shared = None if trace is None else client.scatter(trace, broadcast=True)
    # Impure: what was run for another sweep is not looked up.
    futures = {client.submit(_run, planned.asked, shared, part, pure=False): part for part in parts}
    try:
        for future in distributed.as_completed(list(futures)):
            part = futures.pop(future)
            yield part, future.result()
            future.release()
    finally:
        client.cancel(list(futures))
