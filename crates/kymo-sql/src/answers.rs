//! Answers of `kymo-analysis` as tables.

use std::sync::Arc;

use kymo_analysis::block_io::{
    BlockConfig, BlockGrouping, BlockNames, BlockTable, FileName, block_notes,
};
use kymo_analysis::kmem::{
    KmemConfig, KmemTables, PageallocTables, page_notes, process_notes, read_kmem, slab_notes,
};
use kymo_analysis::kwork::{CpuUsage, KworkConfig, KworkTable, KworkTimes, kwork_notes};
use kymo_analysis::locks::{
    ContentionConfig, LockGroup, USUAL_STACK, contention_notes, count_contention, count_futexes,
    futex_notes,
};
use kymo_analysis::offcpu::{OffCpuConfig, count_off_cpu, off_cpu_notes};
use kymo_analysis::syscalls::{
    CallNames, SyscallConfig, SyscallTable, count_syscalls, syscall_notes,
};
use kymo_analysis::tasks::{LatencyConfig, LatencyTable, SchedSelection, sched_notes};
use kymo_events::{EventSelection, EventSource, SourceError};
use kymo_model::Note;
use kymo_sqlite::{SqlType, TableDeclaration};
use kymo_table::{Answer, Cell, Column, ColumnData, ColumnTable, ColumnType, WordList};

use crate::reference::TableReference;

/// Names a system call by its number.
pub type CallName = fn(i64) -> Option<&'static str>;

/// Words that answers need and that this crate does not have.
#[derive(Clone, Copy)]
pub struct AnswerWords {
    /// Names of system calls of an architecture.
    pub calls: fn(Option<&str>) -> CallName,
    /// Names of errors.
    pub errors: fn(i32) -> Option<&'static str>,
    /// Arguments of each of the slowest calls, on a machine of an architecture.
    pub arguments: fn(&SyscallTable, Option<&str>) -> Vec<String>,
}

/// System calls in `syscalls_slowest`.
const SLOWEST_CALLS: usize = 1_000;

/// Answer with what the readers say.
type Made = Result<(Answer, Vec<Note>), SourceError>;

/// An answer: its name in the schema, the table that it is called by in SQL, and how it is made.
struct AnswerEntry {
    answer: &'static str,
    main: &'static str,
    make: fn(&EventSource, AnswerWords) -> Made,
}

const ANSWERS: [AnswerEntry; 11] = [
    AnswerEntry { answer: "sched_latency", main: "tasks", make: latency },
    AnswerEntry { answer: "offcpu", main: "tasks", make: offcpu },
    AnswerEntry { answer: "syscalls", main: "calls", make: syscalls },
    AnswerEntry { answer: "lock_contention", main: "locks", make: contention },
    AnswerEntry { answer: "lock_futex", main: "futexes", make: futexes },
    AnswerEntry { answer: "kwork_report", main: "rows", make: kwork },
    AnswerEntry { answer: "kwork_top", main: "tasks", make: kwork_top },
    AnswerEntry { answer: "kmem_stat", main: "", make: kmem },
    AnswerEntry { answer: "kmem_pagealloc", main: "processes", make: pagealloc },
    AnswerEntry { answer: "io_latency", main: "rows", make: io_latency },
    AnswerEntry { answer: "io_top", main: "processes", make: io_top },
];

fn latency(source: &EventSource, _: AnswerWords) -> Made {
    let selection = SchedSelection::default();
    let table =
        LatencyTable::count(source, &LatencyConfig { selection: &selection, by_task: true })?;
    let notes = table.read.summary.notes(source).into_iter();
    let notes = notes.chain(sched_notes(&table.read, "kymo sched record")).collect();
    Ok((table.answer(true), notes))
}

fn offcpu(source: &EventSource, _: AnswerWords) -> Made {
    let selection = SchedSelection::default();
    let table = count_off_cpu(source, &OffCpuConfig { selection: &selection, by_task: false })?;
    let notes = table.read.summary.notes(source).into_iter().chain(off_cpu_notes(&table)).collect();
    Ok((table.answer(), notes))
}

fn syscalls(source: &EventSource, words: AnswerWords) -> Made {
    let config = SyscallConfig {
        selection: EventSelection::default(),
        calls: Vec::new(),
        slowest: SLOWEST_CALLS,
        failed_only: false,
        name_of: (words.calls)(source.architecture().as_deref()),
    };
    let table = count_syscalls(source, &config)?;
    let notes = table.summary.notes(source).into_iter().chain(syscall_notes(&table)).collect();
    let arguments = (words.arguments)(&table, source.architecture().as_deref());
    Ok((table.answer(CallNames { errno: words.errors, arguments: &arguments }, true), notes))
}

fn contention(source: &EventSource, _: AnswerWords) -> Made {
    let config = ContentionConfig { max_stack: USUAL_STACK, ..ContentionConfig::default() };
    let table = count_contention(source, &config)?;
    let notes =
        table.summary.notes(source).into_iter().chain(contention_notes(&table, source)).collect();
    Ok((table.answer(LockGroup::Caller), notes))
}

fn futexes(source: &EventSource, words: AnswerWords) -> Made {
    let name_of = (words.calls)(source.architecture().as_deref());
    let table = count_futexes(source, &EventSelection::default(), name_of)?;
    let notes = table.summary.notes(source).into_iter().chain(futex_notes(&table)).collect();
    Ok((table.answer(), notes))
}

fn kwork(source: &EventSource, _: AnswerWords) -> Made {
    let table = KworkTable::count(source, &KworkConfig::default(), false)?;
    let notes = table.read.summary.notes(source).into_iter().chain(kwork_notes(&table.read));
    let notes = notes.collect();
    Ok((table.answer(KworkTimes::Runtime, None, true), notes))
}

fn kwork_top(source: &EventSource, _: AnswerWords) -> Made {
    let config = KworkConfig { switches: true, ..KworkConfig::default() };
    let usage = CpuUsage::count(source, &config)?;
    let notes = usage.read.summary.notes(source).into_iter().chain(kwork_notes(&usage.read));
    let notes = notes.collect();
    Ok((usage.answer(None), notes))
}

fn kmem(source: &EventSource, _: AnswerWords) -> Made {
    let config = KmemConfig {
        slab: true,
        slab_by_ptr: true,
        pages: true,
        pages_by_page: true,
        ..KmemConfig::default()
    };
    let read = read_kmem(source, &config)?;
    let mut notes = read.summary.notes(source);
    if read.events.0 > 0 || read.events.1 == 0 {
        notes.extend(slab_notes(&read));
    }
    if read.events.1 > 0 {
        notes.extend(page_notes(&read));
    }
    let tables =
        KmemTables { slab: true, pages: true, callers: true, addresses: true, live_only: false };
    Ok((read.stat_answer(tables), notes))
}

fn pagealloc(source: &EventSource, _: AnswerWords) -> Made {
    let config = KmemConfig { pages: true, processes: true, ..KmemConfig::default() };
    let read = read_kmem(source, &config)?;
    let notes = read.summary.notes(source).into_iter();
    let notes = notes.chain(page_notes(&read)).chain(process_notes(&read)).collect();
    let shown =
        PageallocTables { ignore_pid: false, by_parent: false, max_stack: 16, vmstat: None };
    Ok((read.pagealloc_answer(shown), notes))
}

fn blocks(source: &EventSource, answer: fn(&BlockTable, BlockNames<'_>) -> Answer) -> Made {
    let table = BlockTable::count(source, &BlockConfig::default())?;
    let notes = table.read.summary.notes(source).into_iter();
    let notes = notes.chain(block_notes(&table.read, source)).collect();
    // Names are of the machine that is here, which need not be the one that was recorded.
    let names = BlockNames { devices: &|_| None, files: &|_| FileName::default() };
    Ok((answer(&table, names), notes))
}

fn io_latency(source: &EventSource, _: AnswerWords) -> Made {
    blocks(source, |table, names| table.latency(names, false))
}

fn io_top(source: &EventSource, _: AnswerWords) -> Made {
    blocks(source, |table, names| table.top(names, BlockGrouping::Process, false))
}

/// Table of an answer.
pub(crate) struct AnswerTable {
    pub(crate) name: String,
    answer: &'static str,
    table: String,
    columns: Vec<Column>,
    command: String,
}

/// All tables of answers.
pub(crate) fn answer_tables() -> Vec<AnswerTable> {
    let schemas = kymo_analysis::answer_schemas();
    let mut all = Vec::new();
    for entry in &ANSWERS {
        let Some(schema) = schemas.iter().find(|schema| schema.name == entry.answer) else {
            debug_assert!(false, "no answer {}", entry.answer);
            continue;
        };
        let command = schema.commands.split(" --json").next().unwrap_or_default();
        for (table, columns) in schema.tables() {
            let name = if table == entry.main {
                entry.answer.to_owned()
            } else {
                format!("{}_{table}", entry.answer)
            };
            all.push(AnswerTable {
                name,
                answer: entry.answer,
                table: table.to_owned(),
                columns: columns.to_vec(),
                command: command.to_owned(),
            });
        }
    }
    all
}

impl AnswerTable {
    fn columns(&self) -> impl Iterator<Item = (String, SqlType, &'static str)> {
        let of = |column: &Column| match column.of {
            ColumnType::Integer | ColumnType::Boolean => SqlType::Integer,
            ColumnType::Number => SqlType::Real,
            _ => SqlType::Text,
        };
        let columns = self.columns.iter();
        let columns = columns
            .map(move |column| (column.name.replace('.', "_"), of(column), column.documentation));
        let machine = ("machine_id".to_owned(), SqlType::Integer, "number of the recording");
        columns.chain(std::iter::once(machine))
    }

    pub(crate) fn declaration(&self) -> TableDeclaration {
        let columns = self.columns().map(|(name, of, _)| (name, of)).collect();
        TableDeclaration { name: self.name.clone(), columns, sorted: None }
    }

    pub(crate) fn reference(&self) -> TableReference {
        let columns = self.columns().map(|(name, of, text)| (name, of, text.to_owned()));
        TableReference {
            name: self.name.clone(),
            documentation: format!("`{}` of the answer of `{}`", self.table, self.command),
            columns: columns.collect(),
        }
    }
}

/// Tables of the answer that a table is of, by their names in SQL, and notes by recording.
#[expect(clippy::type_complexity, reason = "two lists")]
pub(crate) fn read_answer<'s>(
    of: &AnswerTable,
    sources: impl Iterator<Item = &'s EventSource>,
    words: AnswerWords,
) -> Result<(Vec<(String, ColumnTable)>, Vec<Vec<Note>>), String> {
    let Some(entry) = ANSWERS.iter().find(|entry| entry.answer == of.answer) else {
        return Err(format!("no answer {}", of.answer));
    };
    let all = answer_tables();
    let mut tables: Vec<(&AnswerTable, Vec<GrowingColumn>, usize)> = all
        .iter()
        .filter(|table| table.answer == of.answer)
        .map(|table| (table, table.columns().map(|(_, of, _)| GrowingColumn::new(of)).collect(), 0))
        .collect();
    let mut all_notes = Vec::new();
    for (machine, source) in sources.enumerate() {
        let (answer, notes) = (entry.make)(source, words).map_err(|error| error.to_string())?;
        all_notes.push(notes);
        for (table, columns, count) in &mut tables {
            let made = answer.table(&table.table);
            let places: Vec<Option<usize>> = table
                .columns
                .iter()
                .map(|column| made.columns.iter().position(|found| found.name == column.name))
                .collect();
            for row in made.rows {
                for (column, place) in columns.iter_mut().zip(&places) {
                    let of = place.and_then(|at| made.columns.get(at));
                    let cell = place.and_then(|at| row.get(at)).unwrap_or(&Cell::Null);
                    column.push(cell, of.map(|column| &column.of));
                }
                if let Some(column) = columns.last_mut() {
                    column.push(&Cell::Int(machine as i64), None);
                }
                *count += 1;
            }
        }
    }
    let made = tables.into_iter().map(|(table, columns, rows)| {
        let columns = columns.into_iter().map(GrowingColumn::finish).collect();
        (table.name.clone(), ColumnTable { columns, rows })
    });
    Ok((made.collect(), all_notes))
}

/// Column of an answer under way.
struct GrowingColumn {
    data: ColumnData,
    words: WordList,
}

impl GrowingColumn {
    fn new(of: SqlType) -> GrowingColumn {
        let data = match of {
            SqlType::Integer => ColumnData::integers(),
            SqlType::Real => ColumnData::Reals(Vec::new()),
            SqlType::Text => ColumnData::Texts { codes: Vec::new(), words: Arc::default() },
        };
        GrowingColumn { data, words: WordList::default() }
    }

    fn push(&mut self, cell: &Cell, of: Option<&ColumnType>) {
        match (&mut self.data, cell) {
            (data @ ColumnData::Reals(_), _) => data.push_real(cell.float()),
            (data @ ColumnData::Integers { .. }, _) => data.push_integer(match cell {
                Cell::Int(n) => Some(*n),
                Cell::Bool(yes) => Some((*yes).into()),
                // Addresses and hashes: the same bits.
                Cell::Unsigned(n) => Some(n.cast_signed()),
                _ => None,
            }),
            (data, Cell::Null) => data.push_small(None),
            (data, Cell::Text(text)) => data.push_small(Some(self.words.intern_bytes(text))),
            (data, cell) => {
                let text = of.map_or_else(String::new, |of| cell.to_json(of).to_string());
                data.push_small(Some(self.words.intern(&text)));
            }
        }
    }

    fn finish(self) -> ColumnData {
        match self.data {
            ColumnData::Texts { codes, .. } => {
                ColumnData::Texts { codes, words: Arc::new(self.words) }
            }
            data => data,
        }
    }
}
