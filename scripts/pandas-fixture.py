#!/usr/bin/env python3
"""Writes the fixture of a Parquet trace as pandas makes one: timestamps, a categorical column, a nullable column, an index.

    scripts/pandas-fixture.py crates/lab/tests/fixtures/sample.pandas.parquet

Needs pandas and pyarrow (the fixture that is there: pandas 3.1.1, pyarrow 26.0.1).
"""

import sys

import pandas

MICROS = [0, 250, 1_000, 1_500, 70_000_000, 70_000_100]
frame = pandas.DataFrame(
    {
        "host": ["a"] * len(MICROS),
        "timestamp": pandas.Timestamp("2026-01-02T03:04:05", tz="UTC") + pandas.to_timedelta(MICROS, unit="us"),
        "op": pandas.Categorical(["write", "write", "read", "write", "write", "read"]),
        "offset": [1 << 20, (1 << 20) + 4096, 0, (1 << 20) + 512, 1 << 32, 1 << 20],
        # Pandas has no integers with gaps: a column with one would be of floating-point numbers.
        "length": [4096.0, 8192.0, 512.0, 1024.0, 65_536.0, 4096.0],
        "device": pandas.array(["sda"] * len(MICROS), dtype="string"),
    }
)
frame.index = range(10, 10 + len(MICROS))
frame.to_parquet(sys.argv[1], row_group_size=4)
