//! `kymo diff --of 'offcpu report'`: the tables of another command on both sides, row by row.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, bail};
use kymo_compare::{
    CompareOptions, Comparison, FunctionKey, Measure, MeasureKind, RunSums, StackFrameKey,
};
use kymo_model::{Note, NoteKind};
use kymo_table::{AnswerSchema, Column, ColumnType, Role, Unit};
use kymo_view::Ledger;
use kymo_view::diff::DiffReport;
use serde_json::Value;

use super::read::{note_once, note_sequential, reasons};
use super::{Args, judge, note_comparison, show};
use crate::exit;

/// Columns that identify a row in one recording only.
const NUMBERS: [&str; 7] = ["pid", "tid", "ppid", "address", "inode", "parent_tid", "incarnation"];

/// Table of one recording.
struct AnswerRun {
    /// Sums of the rows, for each column.
    columns: Vec<RunSums>,
    /// First and last time of the recording, where the answer has them.
    span: Option<(u64, u64)>,
    /// Doubts.
    notes: Vec<Note>,
}

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
    let read = |paths: &[PathBuf]| -> anyhow::Result<Vec<AnswerRun>> {
        paths.iter().map(|path| plan.read(path)).collect()
    };
    let sides = [read(before)?, read(after)?];
    let mut ledger = Ledger::default();
    let runs = sides.iter().flatten().zip(before.iter().chain(after));
    let notes = runs.flat_map(|(run, path)| {
        run.notes.iter().map(|note| (path.display().to_string(), note.clone()))
    });
    note_once(notes, &mut ledger);
    note_sequential(
        sides.each_ref().map(|side| side.iter().map(|run| run.span).collect()),
        &mut ledger,
    );
    let of_column = |side: &[AnswerRun], at: usize| -> Vec<RunSums> {
        side.iter().filter_map(|run| run.columns.get(at).cloned()).collect()
    };
    let [before_runs, after_runs] = &sides;
    let measures = plan.sums.iter().enumerate().map(|(at, (name, unit))| Measure {
        kind: MeasureKind::Count,
        name: name.clone(),
        unit,
        before: of_column(before_runs, at),
        after: of_column(after_runs, at),
    });
    // A column without any value in it says nothing.
    let has_values = |m: &Measure| m.before.iter().chain(&m.after).any(|run| run.whole > 0.0);
    let measures: Vec<Measure> = measures.filter(has_values).collect();
    if measures.is_empty() {
        let notes = sides.iter().flatten().flat_map(|run| &run.notes);
        bail!("kymo {words}: no rows in any of the recordings{}", reasons(notes));
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
    show(args, report, &ledger, None)
}

impl Plan {
    fn new(words: &str) -> anyhow::Result<Plan> {
        let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        let schemas = kymo_analysis::answer_schemas();
        let comparable = || schemas.iter().filter_map(|schema| Some((schema, main_table(schema)?)));
        let named = comparable().filter_map(|found| Some((found.0.named_by(&words)?, found)));
        let Some((_, (_, (table, columns)))) = named.max_by_key(|(length, _)| *length) else {
            let known = comparable().flat_map(|(schema, _)| schema.command_words());
            let known: Vec<String> = known.map(|words| words.join(" ")).collect();
            bail!(
                "--of {}: not a command whose rows add up; there are {}",
                words.join(" "),
                known.join(", ")
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

    /// Runs the command on one recording.
    fn read(&self, path: &Path) -> anyhow::Result<AnswerRun> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(&self.words).arg("--json").arg("-i").arg(path).stdin(Stdio::null());
        let output = command.output().context("cannot start kymo")?;
        let name = path.display().to_string();
        let of_command = || format!("{name}: kymo {}", self.words.join(" "));
        let (told, reasons) = exit::parse_said(&output.stderr);
        if !output.status.success() {
            bail!("{}: {}", of_command(), reasons.join("; "));
        }
        let answer: Value = serde_json::from_slice(&output.stdout).with_context(of_command)?;
        let doubts = told.into_iter().filter(|note| note["doubt"].as_bool() == Some(true));
        let notes = doubts.filter_map(|note| {
            let text = |member: &str| note[member].as_str();
            let kind = NoteKind::ALL.iter().find(|kind| Some(kind.code()) == text("kind"))?;
            Some(Note::doubt(*kind, text("fact")?.to_owned(), text("advice").map(str::to_owned)))
        });
        let notes = notes.collect();
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
        let span = answer["first_ns"].as_u64().zip(answer["last_ns"].as_u64());
        Ok(AnswerRun { columns: sums, span, notes })
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
