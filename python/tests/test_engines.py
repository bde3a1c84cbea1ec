"""The questions of docs/fleet: the same rows in SQLite over a recording, and in engines over the
files of `kymo export`. KYMO names the program; without it, or an engine, tests are skipped."""

import json
import os
import pathlib
import re
import shutil
import subprocess

import pytest

import kymotrace

ROOT = pathlib.Path(__file__).parents[2]
PERF = "perf-data/x86_64"
RECORDINGS = ["sched.data", "tracepoints.data", "fp.data"]


def questions():
    text = (ROOT / "docs/fleet/questions.sql").read_text()
    found = re.findall(r"^-- (\d+)\. (.*?)\n(.*?);$", text, re.MULTILINE | re.DOTALL)
    assert [int(number) for number, _, _ in found] == list(range(1, 21))
    return {int(number): query for number, _, query in found}


def export(recording, to):
    program = os.environ.get("KYMO")
    if not program:
        pytest.skip("KYMO does not name the program")
    subprocess.run([program, "export", recording, "-o", to], check=True, capture_output=True)
    return {path.name: f"{path}/*/*.parquet" for path in (to / "v1").iterdir()}


def in_order(rows):
    rows = [tuple(row) for row in rows]
    return sorted(rows, key=lambda row: [(value is None, str(type(value)), value) for value in row])


def compare(recording, run):
    """The rows of each question in `run(query)` and in SQLite, where each has some in one of the
    recordings at least."""
    ours = kymotrace.open(recording)
    answered = set()
    for number, query in questions().items():
        wanted = in_order(ours.sql(query))
        assert in_order(run(query)) == wanted, number
        if any(value is not None for row in wanted for value in row):
            answered.add(number)
    return answered


def each(fixtures, tmp_path, connect):
    answered = set()
    for name in RECORDINGS:
        tables = export(fixtures / PERF / name, tmp_path / name)
        answered |= compare(fixtures / PERF / name, connect(tables))
    assert answered == set(questions())


def test_duckdb(fixtures, tmp_path):
    duckdb = pytest.importorskip("duckdb")

    def connect(tables):
        connection = duckdb.connect()
        for name, files in tables.items():
            source = f"read_parquet('{files}', hive_partitioning = false)"
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {source}")
        return lambda query: connection.execute(query).fetchall()

    each(fixtures, tmp_path, connect)


def test_datafusion(fixtures, tmp_path):
    datafusion = pytest.importorskip("datafusion")

    def connect(tables):
        context = datafusion.SessionContext()
        for name, files in tables.items():
            context.register_parquet(name, files.split("*")[0])

        def run(query):
            columns = context.sql(query).to_pydict()
            return list(zip(*columns.values()))

        return run

    each(fixtures, tmp_path, connect)


def test_clickhouse(fixtures, tmp_path):
    session = pytest.importorskip("chdb.session")

    def connect(tables):
        connection = session.Session(str(tmp_path / f"chdb-{len(list(tmp_path.iterdir()))}"))
        # Rows without a partner have null, as in SQL; integers are numbers in JSON.
        settings = "SETTINGS join_use_nulls = 1, output_format_json_quote_64bit_integers = 0"
        connection.query("CREATE DATABASE trace ENGINE = Atomic")
        connection.query("USE trace")
        for name, files in tables.items():
            source = f"file('{files}', Parquet)"
            connection.query(f"CREATE VIEW {name} AS SELECT * FROM {source}")

        def run(query):
            text = connection.query(f"{query} {settings}", "JSONCompact").bytes()
            return json.loads(text)["data"]

        return run

    each(fixtures, tmp_path, connect)


def test_spark(fixtures, tmp_path):
    pytest.importorskip("pyspark")
    if not shutil.which("java"):
        pytest.skip("Spark needs Java")
    from pyspark.sql import SparkSession

    # Two executors of one core over loopback, as far from one process as a machine allows.
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("kymo")
    for key, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    try:

        def connect(tables):
            for name, files in tables.items():
                spark.read.parquet(files).createOrReplaceTempView(name)
            return lambda query: [tuple(row) for row in spark.sql(query).collect()]

        each(fixtures, tmp_path, connect)
    finally:
        spark.stop()
