//! `kymo diff --of 'offcpu report'`: the tables of another command on both sides, row by row.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use kymo_compare::{
    CompareOptions, Comparison, FunctionKey, Measure, MeasureKind, RunSums, StackFrameKey,
};
use kymo_model::NoteKind;
use kymo_table::{AnswerSchema, Column, ColumnType, Role, Unit};
use kymo_view::Ledger;
use kymo_view::diff::DiffReport;
use serde_json::Value;

use super::{Args, judge, note_comparison, show};

/// Columns that identify a row in one recording only.
const NUMBERS: [&str; 7] = ["pid", "tid", "ppid", "address", "inode", "parent_tid", "incarnation"];

/// Doubts of the answers: the first of each kind, and their number.
type Notes = BTreeMap<NoteKind, (String, usize)>;

/// Table that is compared.
struct Plan {
    words: Vec<String>,
    table: String,
    keys: Vec<String>,
    /// Columns that add up, with their units.
    sums: Vec<(String, &'static str)>,
}

pub(super) fn run(
    args: &Args,
    words: &str,
    before: &[PathBuf],
    after: &[PathBuf],
) -> anyhow::Result<ExitCode> {
    let plan = Plan::new(words)?;
    let mut ledger = Ledger::default();
    let mut notes = Notes::new();
    let mut side = |paths: &[PathBuf]| -> anyhow::Result<Vec<Vec<RunSums>>> {
        paths.iter().map(|path| plan.read(path, &mut notes)).collect()
    };
    let (before_sums, after_sums) = (side(before)?, side(after)?);
    for (kind, (fact, count)) in notes {
        let others = if count > 1 {
            format!(" (and {} more notes of this kind)", count - 1)
        } else {
            String::new()
        };
        ledger.note(kind, format!("{fact}{others}"), None);
    }
    let of_column = |sums: &[Vec<RunSums>], at: usize| -> Vec<RunSums> {
        sums.iter().filter_map(|run| run.get(at).cloned()).collect()
    };
    let measures = plan.sums.iter().enumerate().map(|(at, (name, unit))| Measure {
        kind: MeasureKind::Count,
        name: name.clone(),
        unit,
        before: of_column(&before_sums, at),
        after: of_column(&after_sums, at),
    });
    // A column without any value in it says nothing.
    let has_values = |m: &Measure| m.before.iter().chain(&m.after).any(|run| run.whole > 0.0);
    let measures: Vec<Measure> = measures.filter(has_values).collect();
    if measures.is_empty() {
        bail!("kymo {words}: no rows in any of the recordings");
    }
    // Rows are sums already: one in each run is enough.
    let options =
        CompareOptions { margin: args.margin / 100.0, floor: Some(1), ..CompareOptions::default() };
    let comparison = Comparison::new(&measures, &options)?;
    note_comparison(&comparison, &mut ledger);
    let names = |paths: &[PathBuf]| paths.iter().map(|p| p.display().to_string()).collect();
    let report = DiffReport {
        gates: judge(args, &comparison, &ledger),
        comparison,
        sides: [names(before), names(after)],
        per: "run".to_owned(),
        run_word: "run",
        trees: Vec::new(),
    };
    show(args, &report, &ledger, None)
}

impl Plan {
    fn new(words: &str) -> anyhow::Result<Plan> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let schemas = kymo_analysis::answer_schemas();
        let comparable = || schemas.iter().filter_map(|schema| Some((schema, main_table(schema)?)));
        let named = comparable().filter_map(|found| Some((found.0.named_by(&words)?, found)));
        let Some((_, (_, (table, columns)))) = named.max_by_key(|(length, _)| *length) else {
            let known: Vec<&str> = comparable().map(|(schema, _)| schema.commands).collect();
            bail!(
                "--of {}: not a command whose rows add up; there are {}",
                words.join(" "),
                known.join("; ")
            );
        };
        let last = |column: &Column| column.name.rsplit('.').next().unwrap_or_default().to_owned();
        let keys = columns
            .iter()
            .filter(|c| c.role == Role::Key && is_plain(&c.of))
            .filter(|c| !NUMBERS.contains(&&*last(c)));
        let sums = columns
            .iter()
            .filter(|c| c.role == Role::Sum && !c.is_detail && is_plain(&c.of))
            .filter(|c| !last(c).starts_with("uncertain") && !last(c).starts_with("not_ended"));
        let unit = |column: &Column| match column.unit {
            Unit::Duration => "nanoseconds",
            Unit::Bytes => "bytes",
            _ => "count",
        };
        Ok(Plan {
            table: table.to_owned(),
            keys: keys.map(|c| c.name.to_string()).collect(),
            sums: sums.map(|c| (c.name.to_string(), unit(c))).collect(),
            words,
        })
    }

    /// Sums of the rows of one recording, for each column.
    fn read(&self, path: &Path, notes: &mut Notes) -> anyhow::Result<Vec<RunSums>> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(&self.words).arg("--json").arg("-i").arg(path).stdin(Stdio::null());
        let output = command.output().context("cannot start kymo")?;
        let name = path.display().to_string();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!(
                "{name}: kymo {}: {}",
                self.words.join(" "),
                said.trim().trim_start_matches("kymo: ")
            );
        }
        let answer: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{name}: kymo {}", self.words.join(" ")))?;
        let said = String::from_utf8_lossy(&output.stderr);
        let told = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        for note in told.flat_map(|told| told["ledger"].as_array().cloned().unwrap_or_default()) {
            let text = |member: &str| note[member].as_str().unwrap_or_default();
            let kind = NoteKind::ALL.iter().find(|kind| kind.code() == text("kind"));
            let Some(kind) = kind.filter(|_| note["doubt"].as_bool() == Some(true)) else {
                continue;
            };
            // Of each kind one, with the number of recordings that have it.
            notes.entry(*kind).or_insert_with(|| (format!("{name}: {}", text("fact")), 0)).1 += 1;
        }
        let mut sums: Vec<RunSums> = self.sums.iter().map(|_| RunSums::new(&*name, 1.0)).collect();
        for row in answer[&self.table].as_array().into_iter().flatten() {
            let key: Vec<String> =
                self.keys.iter().filter_map(|key| key_text(member(row, key))).collect();
            for ((column, _), run) in self.sums.iter().zip(&mut sums) {
                let value = member(row, column).as_f64().unwrap_or(0.0);
                if value > 0.0 {
                    let key = FunctionKey { name: key.join(" "), binary: String::new() };
                    let function = run.function(key);
                    run.add_stack(&[StackFrameKey { function, is_inlined: false }], value, 1);
                }
            }
        }
        Ok(sums)
    }
}

/// The first table of an answer whose rows add up.
fn main_table(schema: &AnswerSchema) -> Option<(&str, &[Column])> {
    let adds_up = |columns: &[Column]| {
        let has = |role: Role| columns.iter().any(|c| c.role == role && is_plain(&c.of));
        has(Role::Key) && has(Role::Sum)
    };
    schema.tables().find(|(_, columns)| !schema.is_lines && adds_up(columns))
}

fn is_plain(of: &ColumnType) -> bool {
    !matches!(
        of,
        ColumnType::List(_) | ColumnType::Map(_) | ColumnType::Table(_) | ColumnType::Record(_)
    )
}

/// A member by the name of its column: `queue.count` is in a group.
fn member<'a>(row: &'a Value, column: &str) -> &'a Value {
    column.split('.').fold(row, |value, name| &value[name])
}

fn key_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is) => Some(is.to_string()),
        _ => None,
    }
}
