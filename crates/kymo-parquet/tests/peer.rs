//! Tables as DuckDB reads them: names, types, values and metadata.

use std::path::PathBuf;
use std::process::Command;

use kymo_parquet::{ParquetTable, ReadTableError, table_to_parquet};
use kymo_table::{Answer, ColumnSet, Name};

/// Python with DuckDB, in a virtual environment below `target/`; made on first use.
fn duckdb() -> Option<PathBuf> {
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/parquet-peer");
    let python = target.join("bin/python");
    let has_duckdb = || {
        let mut command = Command::new(&python);
        let status = command.args(["-c", "import duckdb"]).output().map(|out| out.status);
        status.is_ok_and(|status| status.success())
    };
    if !has_duckdb() {
        let _ = Command::new("python3").args(["-m", "venv"]).arg(&target).output();
        let _ = Command::new(target.join("bin/pip")).args(["install", "-q", "duckdb"]).output();
    }
    if has_duckdb() {
        return Some(python);
    }
    assert!(std::env::var_os("CI").is_none(), "no DuckDB: `pip install duckdb` fails");
    eprintln!("SKIPPED: no DuckDB: `pip install duckdb` fails");
    None
}

#[derive(Clone)]
struct Row {
    number: u64,
    name: Option<Vec<u8>>,
}

fn rows() -> ColumnSet<'static, Row> {
    ColumnSet::new()
        .key("address", "Address.", |r: &Row, ()| u64::MAX - r.number)
        .key("comm", "Name of the task.", |r, ()| r.name.clone().map(Name))
        .sum("total_ns", "Time.", |r, ()| r.number * 1_000_003)
        .measure("start_ns", "Start.", |r, ()| (r.number % 3 > 0).then_some(r.number * 7))
        .measure("ratio", "Ratio.", |r, ()| r.number as f64 / 8.0)
        .measure("is_odd", "Whether the number is odd.", |r, ()| r.number % 2 == 1)
        .measure("none", "Null in all rows.", |_, ()| None::<u32>)
        .key("state", "State.", |r, ()| if r.number % 2 == 0 { "on" } else { "off" })
        .of(&["on", "off"])
        .detail("hidden", "Shown where it is chosen.", |_, ()| vec![1u32])
}

fn answer(rows_of: Vec<Row>) -> Answer {
    let each = |all: &Vec<Row>, (): &(), row: &mut dyn FnMut(&Row)| all.iter().for_each(row);
    Answer::of("x", ColumnSet::new().table("rows", "", rows(), each), &rows_of, &())
}

/// More rows than a row group has; names with NUL, beyond ASCII, empty and null.
fn all_rows(count: u64) -> Answer {
    let name = |n: u64| match n % 5 {
        0 => None,
        1 => Some(b"a\0b".to_vec()),
        2 => Some("größer \u{1f680}".into()),
        3 => Some(Vec::new()),
        _ => Some(format!("task {}", n % 1000).into_bytes()),
    };
    answer((0..count).map(|number| Row { number, name: name(number) }).collect())
}

#[test]
fn duckdb_reads_the_values_that_were_written() {
    let Some(python) = duckdb() else { return };
    let count = 130_000;
    let answer = all_rows(count);
    let bytes = table_to_parquet("rows", answer.table("rows"), &[("kymo.per", "run")]).unwrap();
    let file = std::env::temp_dir().join(format!("kymo-parquet-{}.parquet", std::process::id()));
    std::fs::write(&file, &bytes).unwrap();
    // The values are computed again there, from the number of the row.
    let script = r#"
import duckdb, sys
path, count = sys.argv[1], int(sys.argv[2])
sql = duckdb.connect()
rows = sql.execute(f"select * from read_parquet('{path}')").fetchall()
names = [(d[0], str(d[1])) for d in sql.description]
assert names == [('address', 'BIGINT'), ('comm', 'VARCHAR'), ('total_ns', 'BIGINT'),
    ('start_ns', 'BIGINT'), ('ratio', 'DOUBLE'), ('is_odd', 'BOOLEAN'), ('none', 'BIGINT'),
    ('state', 'VARCHAR')], names
assert len(rows) == count, len(rows)
for n, row in enumerate(rows):
    name = [None, 'a\0b', 'größer \U0001f680', '', f'task {n % 1000}'][n % 5]
    want = (-1 - n, name, n * 1000003, n * 7 if n % 3 else None, n / 8, n % 2 == 1, None,
        'off' if n % 2 else 'on')
    assert row == want, (n, row, want)
meta = sql.execute(f"select row_group_id, path_in_schema, compression, encodings, stats_min_value, stats_max_value, row_group_num_rows from parquet_metadata('{path}')").fetchall()
assert {m[2] for m in meta} == {'ZSTD'}, meta
assert [m[6] for m in meta if m[1] == 'comm'] == [122880, count - 122880], meta
total = next(m for m in meta if m[0] == 0 and m[1] == 'total_ns')
assert 'DELTA_BINARY_PACKED' in total[3] and total[4] == '0' and total[5] == str(122879 * 1000003), total
comm = next(m for m in meta if m[1] == 'comm')
assert 'DICTIONARY' in comm[3], comm
keys = dict(sql.execute(f"select key, value from parquet_kv_metadata('{path}')").fetchall())
for key, value in {'kymo.schema': '1', 'kymo.table': 'rows', 'kymo.per': 'run',
    'kymo.doc.comm': 'Name of the task.', 'kymo.unit.total_ns': 'ns',
    'kymo.unit.start_ns': "ns of the recording's clock"}.items():
    assert keys[key.encode()] == value.encode(), (key, keys)
assert b'kymo.unit.comm' not in keys
print('equal')
"#;
    let out = Command::new(python).args(["-c", script]).arg(&file).arg(count.to_string()).output();
    let out = out.unwrap();
    std::fs::remove_file(&file).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(text(&out.stdout), "equal\n", "{}", text(&out.stderr));
}

#[test]
fn what_was_written_is_read_back_without_times() {
    let mut answer = all_rows(125_000);
    let names = ["address", "comm", "ratio", "is_odd", "none", "state"].map(str::to_owned);
    answer.choose("rows", &names).unwrap();
    let table = answer.table("rows");
    let bytes = table_to_parquet("rows", table, &[]).unwrap();
    let read = ParquetTable::parse(&bytes, "rows", table.columns).unwrap();
    assert_eq!(read.rows, 125_000);
    for n in (0..125_000).step_by(997).chain([122_879, 122_880, 124_999]) {
        let number = n as i64;
        assert_eq!(read.integer("address", n), Some(-1 - number));
        assert_eq!(read.number("ratio", n), Some(number as f64 / 8.0));
        assert_eq!(read.boolean("is_odd", n), Some(n % 2 == 1));
        assert_eq!(read.integer("none", n), None);
        let task = format!("task {}", n % 1000);
        let name = [None, Some("a\0b"), Some("größer \u{1f680}"), Some(""), Some(task.as_str())];
        assert_eq!(read.text("comm", n), name[n % 5], "{n}");
        assert_eq!(read.text("state", n), Some(if n % 2 == 1 { "off" } else { "on" }));
    }
    assert_eq!(read.fact("kymo.doc.comm"), Some("Name of the task."));
}

#[test]
fn cells_without_a_counterpart_are_refused() {
    let refused = |answer: &Answer| {
        table_to_parquet("rows", answer.table("rows"), &[]).unwrap_err().to_string()
    };
    let rows_of = vec![
        Row { number: 0, name: Some(b"a".to_vec()) },
        Row { number: 1, name: Some(b"\xff".to_vec()) },
    ];
    assert_eq!(refused(&answer(rows_of)), "column comm, row 1: not UTF-8: \\xff");
    let above = Answer::of(
        "x",
        ColumnSet::new().table(
            "rows",
            "",
            ColumnSet::new().sum("count", "", |n: &u64, ()| *n),
            |all: &Vec<u64>, (), row| all.iter().for_each(row),
        ),
        &vec![1 << 62, 1 << 63],
        &(),
    );
    let reason = "column count, row 1: 9223372036854775808 is above 9223372036854775807";
    assert!(refused(&above).starts_with(reason), "{}", refused(&above));
    let mut lists = all_rows(1);
    lists.choose("rows", &["hidden".to_owned()]).unwrap();
    assert!(refused(&lists).starts_with("column hidden: lists, maps"), "{}", refused(&lists));
}

/// A foreign file, another version, another table, another type, and claims of many rows.
#[test]
fn other_files_are_refused_by_name() {
    let mut answer = all_rows(10);
    answer.choose("rows", &["comm".to_owned(), "ratio".to_owned()]).unwrap();
    let table = answer.table("rows");
    let bytes = table_to_parquet("rows", table, &[]).unwrap();
    let parse = |bytes: &[u8]| ParquetTable::parse(bytes, "rows", table.columns).unwrap_err();
    let replaced = |from: &[u8], to: &[u8]| {
        let at = bytes.windows(from.len()).position(|w| w == from).unwrap();
        let mut bytes = bytes.clone();
        bytes[at..at + from.len()].copy_from_slice(to);
        bytes
    };
    assert_eq!(parse(&replaced(b"kymo.schema", b"pyro.schema")), ReadTableError::Foreign);
    let version = replaced(b"kymo.schema\x18\x011", b"kymo.schema\x18\x017");
    assert_eq!(parse(&version), ReadTableError::Version("7".to_owned()));
    let error = ParquetTable::parse(&bytes, "baseline", table.columns).unwrap_err();
    assert!(matches!(error, ReadTableError::Table { .. }), "{error}");
    let other = all_rows(1);
    let error = ParquetTable::parse(&bytes, "rows", other.table("rows").columns).unwrap_err();
    assert_eq!(error, ReadTableError::Schema("address".to_owned()));
}
