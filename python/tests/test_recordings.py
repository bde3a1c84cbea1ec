"""Recordings of the corpus, which perf and trace-cmd made, beside what these tools say of them."""

import re
import subprocess
import sys
import threading
import warnings

import pytest

import kymotrace

PERF = "perf-data/x86_64"
ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT sum(i) FROM n"


def ns(seconds: str) -> int:
    whole, part = seconds.split(".")
    return int(whole) * 10**9 + int(part.ljust(9, "0"))


def test_runs_are_those_of_perf_sched_timehist(fixtures):
    recording = kymotrace.open(fixtures / PERF / "sched.data")
    lines = (fixtures / PERF / "sched.timehist.txt").read_text().splitlines()
    shape = re.compile(
        r"\s*(\d+\.\d+) \[(\d+)\]\s+.*\[(\d+)(?:/\d+)?\]\s+(\d+\.\d+)\s+(\d+\.\d+)\s+(\d+\.\d+)"
    )
    perf = [match.groups() for match in map(shape.match, lines) if match]
    assert len(perf) > 100
    tids = dict(recording.table("thread", ["utid", "tid"]))
    # timehist has a line at the end of each run.
    columns = ["ts", "dur", "cpu", "utid", "wakeup_delay"]
    ours = {
        ((ts + dur) // 1000, cpu): (tids[utid], dur, delay)
        for ts, dur, cpu, utid, delay in recording.table("sched_slice", columns)
        if dur is not None
    }
    compared = 0
    for time, cpu, tid, _, delay, run in perf:
        found = ours.get((ns(time) // 1000, int(cpu)))
        # The first run of a CPU has no beginning in the recording.
        if float(run) == 0 or found is None:
            continue
        assert found[0] == int(tid), time
        assert abs(found[1] - float(run) * 1e6) <= 1000, time
        if float(delay) > 0:
            assert abs((found[2] or 0) - float(delay) * 1e6) <= 1000, time
        compared += 1
    assert compared > 0.9 * len(perf)


def test_events_and_fields_are_those_of_perf_script(fixtures):
    recording = kymotrace.open(fixtures / PERF / "tracepoints.data")
    lines = (fixtures / PERF / "tracepoints.script.txt").read_text().splitlines()
    events = list(recording.events())
    assert len(events) == len(lines)
    for event, line in zip(events, lines):
        comm, tid, cpu, time, name = line.split()[:5]
        assert (event.comm, event.tid, event.cpu) == (comm, int(tid), int(cpu.strip("[]")))
        assert event.ts // 1000 == ns(time.rstrip(":")) // 1000
        assert event.name == name.rstrip(":")
    exits = [event.args["ret"] for event in events if event.name == "syscalls:sys_exit_getppid"]
    assert exits == [0x55] * len(exits) and exits
    (write,) = recording.events("sys_enter_write")
    assert (write.args["fd"], write.args["buf"], write.args["count"]) == (2, 0x402000, 5)
    (executed,) = recording.events("sched:sched_process_exec")
    assert executed.args["filename"] == "./spin-short"


def test_stacks_are_those_of_perf_script(fixtures):
    symfs = fixtures / "elf/x86_64/symfs"
    recording = kymotrace.open(fixtures / PERF / "fp.data", symfs=symfs)
    text = (fixtures / PERF / "fp.script.txt").read_text()
    wanted = []
    for block in text.strip().split("\n\n"):
        head, *frames = block.splitlines()
        time = re.search(r"(\d+\.\d+):", head).group(1)
        names = [re.sub(r"\+0x.*", "", frame.split()[1]) for frame in frames]
        wanted.append((ns(time) // 1000, [name for name in names if name != "[unknown]"]))
    rows = recording.sql("SELECT ts / 1000, stack(callsite_id) FROM perf_sample ORDER BY ts")
    assert len(rows) == len(wanted)
    for (ts, stack), (time, names) in zip(rows, wanted):
        assert ts == time
        assert stack.split(";")[: len(names)] == names


def test_trace_dat_and_ctf(fixtures):
    recording = kymotrace.open(fixtures / "trace-dat/x86_64/kymo.dat")
    lines = (fixtures / "trace-dat/x86_64/kymo.report.txt").read_text().splitlines()
    lines = [line for line in lines if re.search(r"\[\d+\]\s+\d+\.\d+:", line)]
    names = [re.search(r"\d+\.\d+: (\S+):", line).group(1) for line in lines]
    assert recording.table("ftrace_event", ["name"]).column("name") == names
    both = kymotrace.open(
        fixtures / "trace-dat/x86_64/kymo.dat", fixtures / PERF / "tracepoints.data"
    )
    assert both.table("recording", ["machine_id"]).column("machine_id") == [0, 1]


def test_queries_and_tables_agree(fixtures):
    recording = kymotrace.open(fixtures / PERF / "sched.data")
    for table in kymotrace.Recording.tables():
        columns = kymotrace.Recording.columns(table)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kymotrace.TraceWarning)
            read = recording.table(table)
            queried = recording.sql(f'SELECT * FROM "{table}"')
        assert read.column_names == queried.column_names == [name for name, _, _ in columns]
        assert list(read) == list(queried), table
        kinds = {"int": int, "float": float, "str": str}
        for (name, kind, documentation), values in zip(columns, zip(*read)):
            assert documentation, name
            assert {type(value) for value in values} <= {kinds[kind], type(None)}, name


def test_a_window_of_time(fixtures):
    recording = kymotrace.open(fixtures / PERF / "sched.data")
    times = recording.table("sched_slice", ["ts"]).column("ts")
    start, end = times[10], times[50]
    rows = recording.table("sched_slice", ["dur", "ts"], time=(start, end))
    assert rows.column_names == ["dur", "ts"]
    assert rows.column("ts") == [ts for ts in times if start <= ts < end]
    assert len(recording.table("sched_slice", time=(end, start))) == 0
    assert len(recording.table("sched_slice", time=(0, 2**63 - 1))) == len(times)
    with pytest.raises(ValueError, match="no column ts"):
        recording.table("thread", time=(0, 1))


def test_rows_and_columns(fixtures):
    recording = kymotrace.open(fixtures / PERF / "tracepoints.data")
    rows = recording.sql("SELECT 1 AS a, NULL AS b, 'x' AS c UNION ALL SELECT 2, NULL, NULL")
    assert rows[0] == (1, None, "x") and rows[-1] == (2, None, None)
    assert rows.to_pydict() == {"a": [1, 2], "b": [None, None], "c": ["x", None]}
    assert (len(rows), rows.num_rows) == (2, 2)
    with pytest.raises(IndexError):
        rows[2]
    with pytest.raises(KeyError):
        rows.column("d")
    mixed = recording.sql("SELECT 1 AS n UNION ALL SELECT NULL UNION ALL SELECT 3")
    assert mixed.column("n") == [1, None, 3]
    with pytest.raises(kymotrace.Error, match="column n has integers and text"):
        recording.sql("SELECT 1 AS n UNION ALL SELECT 'x'")


def test_what_is_wrong_is_an_error(fixtures, tmp_path):
    with pytest.raises(ValueError):
        kymotrace.open()
    with pytest.raises(kymotrace.Error):
        kymotrace.open(tmp_path / "none.data")
    (tmp_path / "text").write_text("no recording\n" * 100)
    with pytest.raises(kymotrace.Error):
        kymotrace.open(tmp_path / "text")
    recording = kymotrace.open(fixtures / PERF / "tracepoints.data")
    for query in ["SELEC 1", "DROP TABLE thread", "ATTACH 'x' AS x", "PRAGMA user_version = 1"]:
        with pytest.raises(kymotrace.Error):
            recording.sql(query)
    with pytest.raises(kymotrace.Error, match="no table nothing"):
        recording.table("nothing")
    with pytest.raises(kymotrace.Error, match="no column nothing; it has id, utid"):
        recording.table("thread", ["nothing"])
    limited = kymotrace.open(fixtures / PERF / "tracepoints.data", time_limit=0.2)
    with pytest.raises(kymotrace.Error):
        limited.sql(ENDLESS)
    assert limited.sql("SELECT 1")[0] == (1,)


def test_ctrl_c_ends_a_query(fixtures):
    code = f"""
import kymotrace, os, signal, threading
recording = kymotrace.open({str(fixtures / PERF / "tracepoints.data")!r})
threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    recording.sql({ENDLESS!r})
except KeyboardInterrupt:
    print("interrupted", recording.sql("SELECT 1")[0])
"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert result.stdout == "interrupted (1,)\n", result.stderr


def test_damage_is_a_warning(fixtures, tmp_path):
    whole = (fixtures / PERF / "sched.data").read_bytes()
    cut = tmp_path / "cut.data"
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.warns(kymotrace.TraceWarning):
        recording = kymotrace.open(cut)
        rows = recording.table("sched_slice", ["ts"])
    assert len(rows) > 10
    assert recording.notes


def test_threads_use_one_recording(fixtures):
    recording = kymotrace.open(fixtures / PERF / "sched.data")
    counts = []

    def count():
        counts.append(recording.sql("SELECT count(*) FROM sched_slice")[0][0])
        counts.append(len(recording.table("sched_slice", ["cpu"])))

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(counts) == 16 and len(set(counts)) == 1


def test_a_table_outlives_its_recording(fixtures):
    table = kymotrace.open(fixtures / PERF / "sched.data").table("sched_slice", ["ts", "dur"])
    stream = table.__arrow_c_stream__()
    assert len(table.column("ts")) == len(table)
    del table
    assert stream is not None
