"""Traces in memory."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

from . import _native
from ._missing import need

_ENDINGS = {
    ".msr.csv": "msr",
    ".msr": "msr",
    ".spc": "spc",
    ".iolog": "fio3",
    ".vscsi": "vscsi",
    ".parquet": "parquet",
}


class Trace:
    """A block trace in memory: what was asked of a disk, and when.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "tiny.csv"
    >>> _ = file.write_text("0,sda,W,0,4096,\\n250,sda,R,4096,512,\\n")
    >>> trace = Trace.open(file)
    >>> len(trace), trace.format, trace.devices
    (2, 'csv', ['sda'])
    """

    __slots__ = ("_native",)

    def __init__(self, *_ignored):
        raise TypeError("use Trace.open, Trace.from_pandas or Trace.from_arrow")

    @classmethod
    def _of(cls, native: _native.Trace) -> Trace:
        trace = object.__new__(cls)
        trace._native = native
        return trace

    @classmethod
    def open(cls, path: str | os.PathLike, *, format: str | None = None, lenient: bool = False) -> Trace:
        """Reads a file of any format that ``umbrella lab trace info`` knows.

        ``format`` overrides what is found out from the content. ``lenient`` leaves out what cannot be read.
        """
        return cls._of(_native.Trace.open(os.fspath(path), format=format, lenient=lenient))

    @classmethod
    def from_arrow(cls, table, name: str = "table") -> Trace:
        """Takes a table with the columns of docs/traces.md: time, offset, size, op, and perhaps device.

        Anything that speaks Arrow's C data interface will do: tables of pyarrow, polars, DuckDB, pandas.
        """
        arrow, parquet = need("pyarrow", "pandas"), need("pyarrow.parquet", "pandas")
        if not isinstance(table, arrow.Table):
            table = arrow.table(table)
        written = io.BytesIO()
        parquet.write_table(table, written, compression="zstd", use_dictionary=True)
        return cls._of(_native.Trace.from_parquet(written.getbuffer().tobytes(), name))

    @classmethod
    def from_pandas(cls, frame, name: str = "frame") -> Trace:
        """Takes a DataFrame with the columns of docs/traces.md.

        >>> import pandas
        >>> frame = pandas.DataFrame({"time_us": [0, 250], "op": ["write", "read"], "offset": [0, 4096], "size": [4096, 512]})
        >>> len(Trace.from_pandas(frame))
        2
        """
        return cls.from_arrow(need("pyarrow", "pandas").Table.from_pandas(frame, preserve_index=False), name)

    def __arrow_c_array__(self, requested_schema=None):
        return self._native.__arrow_c_array__(requested_schema)

    def to_arrow(self):
        """The requests as a pyarrow.RecordBatch that shares this trace's memory."""
        return need("pyarrow", "pandas").record_batch(self)

    def to_pandas(self):
        """The requests as a pandas.DataFrame."""
        need("pandas", "pandas")
        return self.to_arrow().to_pandas()

    def write(self, path: str | os.PathLike, format: str | None = None) -> None:
        """Writes a file; by its ending where no format is given, compressed if that ends with .gz or .zst."""
        if format is None:
            name = Path(path).name.removesuffix(".gz").removesuffix(".zst")
            format = next((known for ending, known in _ENDINGS.items() if name.endswith(ending)), "csv")
        self._native.write(os.fspath(path), format)

    @property
    def name(self) -> str:
        """The file that it was read from, or the name that it was given."""
        return self._native.name

    @property
    def format(self) -> str:
        """The format that it was read as."""
        return self._native.format

    @property
    def devices(self) -> list[str]:
        """The devices' names, in the order in which they appear."""
        return self._native.devices

    def summary(self) -> dict:
        """Its figures, as ``umbrella lab trace info --json`` has them."""
        return json.loads(self._native.summary_json())

    def __len__(self) -> int:
        return len(self._native)

    def __repr__(self) -> str:
        return f"<Trace {self.name!r}: {len(self)} requests of {len(self.devices)} devices>"

    def __reduce__(self):
        return _of_parquet, (self._native.to_parquet(), self.name)


def _of_parquet(parquet: bytes, name: str) -> Trace:
    return Trace._of(_native.Trace.from_parquet(parquet, name))
