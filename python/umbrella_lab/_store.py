"""Results that are kept as they come, in a folder of Parquet files.

A file is there whole or not at all: it gets its name when it is complete. Each row has the run's name in the column
``cell``, by which a later sweep knows what is done. Files are only ever read as Parquet.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ._missing import need

Row = dict[str, Any]

# Rows that wait for the next file, and for how long.
_ROWS = 1000
_SECONDS = 10.0


def cell_name(identity: str) -> str:
    """A short name for a run."""
    return hashlib.sha256(identity.encode()).hexdigest()[:32]


class Store:
    """A folder of results."""

    def __init__(self, folder: str | os.PathLike):
        self.folder = Path(folder)
        self.parquet = need("pyarrow.parquet", "cluster")
        self.arrow = need("pyarrow", "cluster")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.waiting: list[Row] = []
        self.last_write = time.monotonic()

    def done(self) -> dict[str, Row]:
        """The rows that are there, by the names of their runs."""
        rows: dict[str, Row] = {}
        for file in sorted(self.folder.glob("*.parquet")):
            try:
                table = self.parquet.read_table(file)
                found = table.to_pylist() if "cell" in table.column_names else None
            except (self.arrow.ArrowInvalid, OSError) as error:
                raise ValueError(f"{file} cannot be read ({error}): move it away to repeat its runs") from error
            if found is None:
                raise ValueError(f"{file} has no results of a sweep: name another folder")
            rows.update((row["cell"], row) for row in found)
        return rows

    def add(self, rows: Iterable[Row]) -> None:
        """Keeps rows, in a file now or soon."""
        self.waiting.extend(rows)
        if len(self.waiting) >= _ROWS or time.monotonic() - self.last_write > _SECONDS:
            self.write()

    def write(self) -> None:
        """Writes what waits."""
        if self.waiting:
            name = f"{time.time_ns():020}-{uuid.uuid4().hex[:8]}"
            part = self.folder / f".{name}.part"
            names = dict.fromkeys(name for row in self.waiting for name in row)
            table = self.arrow.Table.from_pylist([{name: row.get(name) for name in names} for row in self.waiting])
            self.parquet.write_table(table, part)
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            part.rename(self.folder / f"{name}.parquet")
            self.waiting.clear()
        self.last_write = time.monotonic()


def collect(
    cells: list[str],
    finished: Callable[[list[int]], Iterable[tuple[list[int], list[Row]]]],
    store: Store | None,
    progress: Callable[[int, int], None] | None,
) -> list[Row]:
    """The rows of all runs in their order: those that the store has, and those that ``finished`` gives for the others."""
    rows = {} if store is None else {cell: row for cell, row in store.done().items() if cell in set(cells)}
    missing = [number for number, cell in enumerate(cells) if cell not in rows]
    if progress is not None:
        progress(len(rows), len(cells))
    try:
        for numbers, new in finished(missing) if missing else ():
            named = [{"cell": cells[number], **row} for number, row in zip(numbers, new, strict=True)]
            fresh = [row for row in named if row["cell"] not in rows]
            rows.update((row["cell"], row) for row in fresh)
            if store is not None:
                store.add(fresh)
            if progress is not None:
                progress(len(rows), len(cells))
    finally:
        # Also after Ctrl-C: what has finished is kept.
        if store is not None:
            store.write()
    return [{name: value for name, value in rows[cell].items() if name != "cell"} for cell in cells]
