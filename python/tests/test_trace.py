"""Traces: what comes in, what goes out, and that their memory is shared."""

import pickle

import pandas
import pyarrow
import pyarrow.parquet
import pytest

from umbrella_lab import Trace

CSV = "time_us,dev,op,offset_bytes,size_bytes,flags\n0,sda,W,0,4096,\n250,sdb,R,8192,512,\n1000.5,sda,D,4096,4096,\n"
ROWS = {
    "time_ns": [0, 250_000, 1_000_500],
    "device": ["sda", "sdb", "sda"],
    "op": ["write", "read", "discard"],
    "offset_bytes": [0, 8192, 4096],
    "size_bytes": [4096, 512, 4096],
}


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "tiny.csv"
    path.write_text(CSV)
    return Trace.open(path)


def test_a_file_is_read_and_described(trace):
    assert (len(trace), trace.format, trace.devices) == (3, "csv", ["sda", "sdb"])
    assert trace.summary()["writes"] == 1
    assert "3 requests of 2 devices" in repr(trace)


def test_columns_go_out_as_they_are_documented(trace):
    assert trace.to_arrow().to_pydict() == ROWS
    assert trace.to_pandas()["op"].tolist() == ROWS["op"]


def test_arrow_gets_the_memory_of_the_trace_itself(trace):
    addresses = [
        [buffer.address for column in batch.columns for buffer in column.buffers()[1:2]]
        for batch in (trace.to_arrow(), trace.to_arrow())
    ]
    assert addresses[0] == addresses[1]


def test_an_arrow_table_outlives_its_trace(trace):
    batch = trace.to_arrow()
    del trace
    assert batch.to_pydict() == ROWS


def test_tables_come_in_as_they_went_out(trace):
    for back in (
        Trace.from_arrow(trace.to_arrow()),
        Trace.from_arrow(trace),
        Trace.from_pandas(trace.to_pandas()),
        pickle.loads(pickle.dumps(trace)),
    ):
        assert back.to_arrow().to_pydict() == ROWS


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet", "out.iolog"])
def test_what_was_written_is_read_back(trace, tmp_path, name):
    trace.write(tmp_path / name)
    assert len(Trace.open(tmp_path / name)) == 3


def test_pandas_reads_what_we_write(trace, tmp_path):
    trace.write(tmp_path / "out.parquet")
    assert pandas.read_parquet(tmp_path / "out.parquet").to_dict("list") == ROWS


@pytest.mark.parametrize(
    ("column", "values", "says"),
    [
        ("time_us", [0, None, 2], "time is missing"),
        ("time_us", [0, -5, 2], "a whole number from 0 on"),
        ("op", ["read", "erase", "read"], "unknown operation"),
        ("op", [1, 2, 3], "is not a column of text"),
        ("offset", [0.5, 1.0, 2.0], "a whole number from 0 on"),
        ("size", ["a", "b", "c"], "is not a column of numbers"),
    ],
)
def test_a_wrong_column_is_named(column, values, says):
    columns = {"time_us": [0, 1, 2], "op": ["read"] * 3, "offset": [0] * 3, "size": [512] * 3} | {column: values}
    with pytest.raises(ValueError, match=says):
        Trace.from_arrow(pyarrow.table(columns))


def test_columns_that_are_missing_or_double_are_named():
    with pytest.raises(ValueError, match="no column has the offset: name one of them offset_bytes, offset"):
        Trace.from_arrow(pyarrow.table({"time_us": [0], "op": ["read"], "size": [1]}))
    with pytest.raises(ValueError, match="two columns have the size"):
        Trace.from_arrow(pyarrow.table({"time_us": [0], "op": ["read"], "offset": [0], "size": [1], "length": [1]}))
    with pytest.raises(ValueError, match="time_ns, time_us"):
        Trace.from_arrow(pyarrow.table({"time": [0], "op": ["read"], "offset": [0], "size": [1]}))


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_are_read(unit):
    times = pyarrow.array([10, 12], pyarrow.timestamp(unit))
    table = pyarrow.table({"time": times, "op": ["R", "w"], "offset": [0, 0], "size": [512, 512]})
    per_unit = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]
    assert Trace.from_arrow(table).to_arrow()["time_ns"].to_pylist() == [0, 2 * per_unit]


def test_a_compression_that_is_not_read_is_named(trace, tmp_path):
    pyarrow.parquet.write_table(pyarrow.table(ROWS), tmp_path / "out.parquet", compression="gzip")
    with pytest.raises(ValueError, match="compressed with gzip: write it with Snappy, Zstandard"):
        Trace.open(tmp_path / "out.parquet")


def test_a_file_that_is_not_there_or_is_no_trace_is_an_error_that_says_so(tmp_path):
    with pytest.raises(OSError, match="cannot open"):
        Trace.open(tmp_path / "missing.csv")
    (tmp_path / "five.txt").write_text("0 0 0 8 1\n")
    with pytest.raises(ValueError, match="name the format with format="):
        Trace.open(tmp_path / "five.txt")
    assert len(Trace.open(tmp_path / "five.txt", format="ascii")) == 1
    with pytest.raises(TypeError, match="Trace.open"):
        Trace()
