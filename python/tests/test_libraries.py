"""Libraries that read tables by the C interface of Arrow; each test needs one of them."""

import pytest

import kymotrace

PERF = "perf-data/x86_64"
COLUMNS = ["ts", "dur", "cpu", "thread_name", "wakeup_delay"]


@pytest.fixture
def recording(fixtures):
    return kymotrace.open(fixtures / PERF / "sched.data")


def test_pyarrow(recording):
    pyarrow = pytest.importorskip("pyarrow")
    ours = recording.table("sched_slice", COLUMNS)
    table = pyarrow.table(ours)
    table.validate(full=True)
    assert table.to_pydict() == ours.to_pydict()
    assert table.schema.field("ts").type == pyarrow.int64()
    # No copy: two readers see one memory.
    again = pyarrow.table(ours)
    address = lambda t: t.column("ts").chunk(0).buffers()[1].address
    assert address(table) == address(again)
    # The memory stays when all else is gone.
    del ours, again
    values = table.column("dur").to_pylist()
    assert len(values) == table.num_rows


def test_every_table_is_valid(recording):
    pyarrow = pytest.importorskip("pyarrow")
    for name in kymotrace.Recording.tables():
        ours = recording.table(name)
        table = pyarrow.table(ours)
        table.validate(full=True)
        assert table.to_pydict() == ours.to_pydict(), name


def test_polars(recording):
    polars = pytest.importorskip("polars")
    ours = recording.table("sched_slice", COLUMNS)
    frame = polars.DataFrame(ours)
    assert frame.rows() == list(ours)
    by_name = frame.group_by("thread_name").agg(polars.col("dur").sum()).rows()
    query = "SELECT thread_name, coalesce(sum(dur), 0) FROM sched_slice GROUP BY thread_name"
    assert {str(name): dur for name, dur in by_name} == {
        str(name): dur for name, dur in recording.sql(query)
    }


def test_pandas(recording):
    pandas = pytest.importorskip("pandas", minversion="3.0")
    pytest.importorskip("pyarrow")
    ours = recording.table("sched_slice", ["ts", "cpu", "thread_name"])
    frame = pandas.DataFrame.from_arrow(ours)
    assert list(frame["ts"]) == ours.column("ts")
    assert list(frame["thread_name"].astype(object)) == ours.column("thread_name")


def test_duckdb(recording):
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("pyarrow")
    runs = recording.table("sched_slice", ["cpu", "dur", "thread_name"])
    query = "SELECT cpu, count(*), sum(dur)::BIGINT FROM {} GROUP BY cpu ORDER BY cpu"
    theirs = duckdb.sql(query.format("runs")).fetchall()
    ours = list(recording.sql(query.format("sched_slice").replace("::BIGINT", "")))
    assert theirs == ours
