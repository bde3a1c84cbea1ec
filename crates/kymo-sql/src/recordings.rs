//! Recordings that are opened for queries, and their tables.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kymo_events::{EventSource, SourceError};
use kymo_model::{Note, NoteKind, recording_arguments};
use kymo_sqlite::{
    Database, LoadedTable, QueryError, QueryLimits, SqlType, TableDeclaration, TableSource,
};
use kymo_symbols::ResolverOptions;
use kymo_table::{ColumnTable, ColumnValue};

use crate::answers::{AnswerTable, AnswerWords, answer_tables, read_answer};
use crate::build::Put;
use crate::clocks;
use crate::export::{self, ExportedTable};
use crate::notes;
use crate::read::{MachineFacts, ReadError, ReadLimits, TablePass};
use crate::reference::TableReference;
use crate::schema::{ColumnKind, TABLES, TableId, TableView, VIEWS};

/// Recordings cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum RecordingsError {
    /// One of them.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// SQLite.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// Reading them.
    #[error("{0}")]
    Read(String),
}

/// Options of reading.
#[derive(Clone, Copy)]
pub struct RecordingsOptions {
    /// Bytes of tables.
    pub memory: u64,
    /// Words that answers need.
    pub words: AnswerWords,
}

/// Rows of a table.
#[derive(Clone, Debug)]
pub struct TableRows {
    /// Name and type of each column that was asked for, and its number among those of the rows.
    pub columns: Vec<(String, SqlType, usize)>,
    /// The rows.
    pub rows: Arc<LoadedTable>,
}

struct Machine {
    path: String,
    source: EventSource,
}

/// Tables and facts that are read so far.
#[derive(Default)]
struct State {
    /// Columns of tables of events that statements want.
    wanted: Vec<Option<u64>>,
    /// Columns that are read.
    read: Vec<Option<u64>>,
    tables: Vec<Option<Arc<LoadedTable>>>,
    answers: Vec<Option<Arc<LoadedTable>>>,
    facts: Vec<MachineFacts>,
    /// Tables that a query read and that have no rows.
    empty: Vec<TableId>,
    deadline: Option<Instant>,
}

/// Tables without rows that have no note by what fills them, and what the recordings lack.
const EMPTY: [(TableId, &str); 13] = [
    (TableId::FtraceEvent, "events of the kernel"),
    (TableId::ProgramEvent, "events of programs"),
    (TableId::PerfSample, "samples of counters"),
    (TableId::Callsite, "call stacks"),
    (TableId::Frame, "call stacks"),
    (TableId::Mapping, "call stacks"),
    (TableId::Args, "fields of events"),
    (TableId::Slice, "system calls, interrupts, function graphs or spans of programs"),
    (TableId::Counter, "counters"),
    (TableId::CounterTrack, "counters"),
    (TableId::Track, "system calls, interrupts, function graphs, spans of programs or counters"),
    (TableId::ClockSnapshot, "moments in several clocks"),
    (TableId::Cpu, "events with a CPU"),
];

/// Recordings as tables.
pub struct Recordings {
    machines: Mutex<Vec<Machine>>,
    paths: Vec<String>,
    options: RecordingsOptions,
    answers: Vec<AnswerTable>,
    state: Mutex<State>,
    interrupted: Arc<AtomicBool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn declaration(table: &crate::schema::TableSchema) -> TableDeclaration {
    let columns = table.columns.iter().map(|column| {
        let of = match column.kind {
            ColumnKind::Real => SqlType::Real,
            ColumnKind::Text => SqlType::Text,
            ColumnKind::Row | ColumnKind::Small | ColumnKind::Integer => SqlType::Integer,
        };
        (column.name.to_owned(), of)
    });
    TableDeclaration {
        name: table.name.to_owned(),
        columns: columns.collect(),
        sorted: table.sorted,
    }
}

impl Recordings {
    /// Opens recordings, each with a number of its own: `machine_id`.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn open(
        paths: &[PathBuf],
        symbols: impl Fn(&std::path::Path) -> ResolverOptions,
        options: RecordingsOptions,
    ) -> Result<Arc<Recordings>, RecordingsError> {
        let mut machines = Vec::new();
        for path in paths {
            let source = EventSource::open(std::slice::from_ref(path), symbols(path))?;
            let source = source.in_nanoseconds()?.beginning_together();
            machines.push(Machine { path: path.display().to_string(), source });
        }
        let paths = machines.iter().map(|machine| machine.path.clone()).collect();
        let answers = answer_tables();
        let state = State {
            wanted: vec![None; TABLES.len()],
            read: vec![None; TABLES.len()],
            tables: vec![None; TABLES.len()],
            answers: vec![None; answers.len()],
            facts: vec![MachineFacts::default(); machines.len()],
            empty: Vec::new(),
            deadline: None,
        };
        let (machines, state) = (Mutex::new(machines), Mutex::new(state));
        let interrupted = Arc::default();
        Ok(Arc::new(Recordings { machines, paths, options, answers, state, interrupted }))
    }

    /// All tables, for their reference.
    pub fn reference() -> Vec<TableReference> {
        let events = TABLES.iter().map(|table| TableReference {
            name: table.name.to_owned(),
            documentation: table.documentation.to_owned(),
            columns: declaration(table)
                .columns
                .into_iter()
                .zip(table.columns)
                .map(|((name, of), column)| (name, of, column.documentation.to_owned()))
                .collect(),
        });
        events.chain(answer_tables().into_iter().map(|answer| answer.reference())).collect()
    }

    /// A database over the tables.
    ///
    /// # Errors
    /// If SQLite fails.
    pub fn database(self: &Arc<Self>, limits: QueryLimits) -> Result<Database, RecordingsError> {
        let mut database = Database::open(limits)?.interrupted_by(self.interrupted.clone());
        for (number, table) in TABLES.iter().enumerate() {
            let source = EventRows { recordings: self.clone(), number };
            database.add_table(declaration(table), Arc::new(source))?;
        }
        for (number, answer) in self.answers.iter().enumerate() {
            let source = AnswerRows { recordings: self.clone(), number };
            database.add_table(answer.declaration(), Arc::new(source))?;
        }
        let this = self.clone();
        database.add_text_function("stack", 1, move |arguments| {
            this.stack_text(arguments.first().copied().flatten())
        })?;
        let this = self.clone();
        database.add_text_function("to_utc", -1, move |arguments| {
            let machine = arguments.get(1).copied().unwrap_or(Some(0));
            Ok(this.utc_text(arguments.first().copied().flatten(), machine))
        })?;
        let views: Vec<String> = VIEWS.iter().map(TableView::statement).collect();
        let this = self.clone();
        let calls = move |function: &str| {
            if function.eq_ignore_ascii_case("stack") {
                this.want(TableId::Callsite as usize, u64::MAX);
                this.want(TableId::Frame as usize, u64::MAX);
            }
        };
        database.seal(&views, Box::new(calls))?;
        Ok(database)
    }

    /// Queries, and reading for them, stop when this becomes true.
    pub fn interrupt_flag(&self) -> Arc<AtomicBool> {
        self.interrupted.clone()
    }

    /// Sets the time at which reading for the present query stops.
    pub fn set_deadline(&self, deadline: Option<Instant>) {
        lock(&self.state).deadline = deadline;
    }

    /// Notes on what was read, by recording; names of recordings where there are several.
    pub fn notes(&self) -> Vec<Note> {
        let state = lock(&self.state);
        let mut all: Vec<Note> = Vec::new();
        for (path, facts) in self.paths.iter().zip(&state.facts) {
            for note in &facts.notes {
                let mut note = note.clone();
                if self.paths.len() > 1 {
                    note.fact = format!("{path}: {}", note.fact);
                }
                if !all.contains(&note) {
                    all.push(note);
                }
            }
        }
        for (table, lacking) in EMPTY.iter().filter(|(table, _)| state.empty.contains(table)) {
            let name = table.schema().name;
            let fact = format!("{name} has no rows: there are no {lacking} in what was read");
            all.push(Note::doubt(NoteKind::Empty, fact, None));
        }
        all
    }

    /// Names of recordings that could be read in part only.
    pub fn damaged(&self) -> Vec<String> {
        let state = lock(&self.state);
        let all = self.paths.iter().zip(&state.facts);
        // Damage of a header's section is only noted.
        let is_damaged = |facts: &MachineFacts| {
            facts.is_damaged || facts.notes.iter().any(|note| note.kind == NoteKind::Damaged)
        };
        all.filter(|(_, facts)| is_damaged(facts)).map(|(path, _)| path.clone()).collect()
    }

    /// The recordings as arguments of a command.
    pub fn arguments(&self) -> String {
        recording_arguments(self.paths.iter().map(std::path::Path::new))
    }

    /// All tables of events, read in one pass, with their declarations; of answers those whose
    /// events there are.
    ///
    /// # Errors
    /// If reading fails, or a limit is reached.
    pub fn all_tables(
        self: &Arc<Self>,
    ) -> Result<Vec<(TableDeclaration, Arc<LoadedTable>)>, RecordingsError> {
        (0..TABLES.len()).for_each(|table| self.want(table, u64::MAX));
        let open = |number| self.rows(number).map_err(RecordingsError::Read);
        let tables = TABLES.iter().enumerate();
        tables.map(|(number, table)| Ok((declaration(table), open(number)?))).collect()
    }

    /// A table with the columns that are asked for, in their order, or all of them.
    ///
    /// # Errors
    /// If there is no such table or column, reading fails, or a limit is reached.
    pub fn table(
        self: &Arc<Self>,
        name: &str,
        columns: Option<&[String]>,
    ) -> Result<TableRows, RecordingsError> {
        let unknown = |text: String| Err(RecordingsError::Read(text));
        let event_table = TABLES.iter().position(|table| table.name == name);
        let answer = self.answers.iter().position(|answer| answer.name == name);
        let declaration = match (event_table, answer) {
            (Some(number), _) => TABLES.get(number).map(declaration),
            (None, Some(number)) => self.answers.get(number).map(|answer| answer.declaration()),
            (None, None) => None,
        };
        let Some(declaration) = declaration else {
            return unknown(format!("there is no table {name}"));
        };
        let all = declaration.columns.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        let mut chosen = Vec::new();
        for column in columns.unwrap_or(&all) {
            let Some(number) = all.iter().position(|known| known == column) else {
                let known = all.join(", ");
                return unknown(format!("table {name} has no column {column}; it has {known}"));
            };
            chosen.push(number);
        }
        let rows = match (event_table, answer) {
            (Some(number), _) => {
                self.want(number, chosen.iter().fold(0, |all, column| all | 1 << column));
                EventRows { recordings: self.clone(), number }.open()
            }
            (None, Some(number)) => self.answer_rows(number),
            (None, None) => return unknown(format!("there is no table {name}")),
        };
        let rows = rows.map_err(RecordingsError::Read)?;
        let columns = chosen.iter().filter_map(|number| {
            let (name, of) = declaration.columns.get(*number)?;
            Some((name.clone(), *of, *number))
        });
        Ok(TableRows { columns: columns.collect(), rows })
    }

    /// Tables for files that others read: each with `host` and `recording_id` before its own
    /// columns. All of them are read in one pass.
    ///
    /// # Errors
    /// If reading fails, or a limit is reached.
    pub fn exported(
        self: &Arc<Self>,
        host: &str,
        mut sink: impl FnMut(ExportedTable<'_>) -> Result<(), RecordingsError>,
    ) -> Result<(), RecordingsError> {
        let loaded = self.all_tables()?;
        let (identity, offset) = {
            let state = lock(&self.state);
            let machines = lock(&self.machines);
            let first = machines.first();
            let span = state.facts.first().and_then(|facts| facts.span);
            let name = first.map_or("", |machine| machine.path.rsplit('/').next().unwrap_or(""));
            let text = format!("{host}\0{name}\0{span:?}");
            let offset = first.and_then(|machine| machine.source.wall_offset());
            (export::identity(text.as_bytes()), offset)
        };
        for (schema, (_, rows)) in TABLES.iter().zip(&loaded) {
            let columns = export::columns(schema);
            let table = export::with_identity(rows.table(), host, identity);
            let sorted = schema.sorted.map(|at| at + 2);
            sink(ExportedTable {
                name: schema.name,
                columns: &columns,
                table: &table,
                sorted,
                identity,
                utc_offset: offset,
            })?;
        }
        Ok(())
    }

    /// Name of the host of the first recording, where it is stated.
    pub fn host(&self) -> Option<String> {
        lock(&self.machines).first()?.source.hostname()
    }

    /// Times of the first and the last event, of what was read.
    pub fn span(&self) -> Option<(u64, u64)> {
        lock(&self.state).facts.first().and_then(|facts| facts.span)
    }

    fn want(&self, table: usize, columns: u64) {
        let mut state = lock(&self.state);
        if let Some(slot) = state.wanted.get_mut(table) {
            *slot = Some(slot.unwrap_or(0) | columns);
        }
    }

    fn note_empty(&self, number: usize) {
        let mut state = lock(&self.state);
        let table = EMPTY.iter().map(|(table, _)| *table).find(|table| *table as usize == number);
        state.empty.extend(table);
    }

    /// Rows of a table of events.
    fn rows(&self, table: usize) -> Result<Arc<LoadedTable>, String> {
        let mut state = lock(&self.state);
        let is_read = |state: &State, table: usize| {
            let wanted = state.wanted.get(table).copied().flatten();
            let read = state.read.get(table).copied().flatten();
            match (wanted, read) {
                (None, _) => true,
                (Some(wanted), Some(read)) => wanted & !read == 0,
                (Some(_), None) => false,
            }
        };
        let loaded = state.tables.get(table).cloned().flatten().filter(|_| is_read(&state, table));
        if let Some(loaded) = loaded {
            return Ok(loaded);
        }
        let wanted: Vec<Option<u64>> = (0..TABLES.len())
            .map(|table| {
                let wanted = state.wanted.get(table).copied().flatten();
                wanted.filter(|_| !is_read(&state, table))
            })
            .collect();
        let made = self.read(&mut state, &wanted).map_err(|error| error.to_string())?;
        for (number, made) in made.into_iter().enumerate() {
            let Some((made, wanted)) = made.zip(wanted.get(number).copied().flatten()) else {
                continue;
            };
            let sorted = TABLES.get(number).and_then(|table| table.sorted);
            let made = Arc::new(LoadedTable::new(made, sorted));
            if let Some(slot) = state.tables.get_mut(number) {
                *slot = Some(made);
            }
            if let Some(slot) = state.read.get_mut(number) {
                *slot = Some(wanted);
            }
        }
        state.tables.get(table).cloned().flatten().ok_or_else(|| "an unknown table".to_owned())
    }

    fn read(
        &self,
        state: &mut State,
        wanted: &[Option<u64>],
    ) -> Result<Vec<Option<ColumnTable>>, ReadError> {
        let held = state.tables.iter().chain(&state.answers).flatten();
        let held = held.map(|loaded| loaded.table().size()).sum();
        let limits = ReadLimits {
            deadline: state.deadline,
            memory: self.options.memory,
            interrupted: &self.interrupted,
        };
        let mut pass = TablePass::new(wanted, limits, held, self.options.words.calls);
        let machines = lock(&self.machines);
        for (number, machine) in machines.iter().enumerate() {
            let facts = pass.read(number as u32, &machine.source)?;
            if let Some(slot) = state.facts.get_mut(number) {
                for note in facts.notes {
                    if !slot.notes.contains(&note) {
                        slot.notes.push(note);
                    }
                }
                (slot.span, slot.is_damaged) = (facts.span, facts.is_damaged);
            }
        }
        Ok(pass.finish(|fill| {
            let spans = state.facts.iter().filter_map(|facts| facts.span);
            let first = spans.clone().map(|span| span.0).min();
            let last = spans.map(|span| span.1).max();
            fill(TableId::TraceBounds, &mut |table| table.row([first.into(), last.into()]));
            fill(TableId::ClockSnapshot, &mut |table| {
                clocks::fill(machines.iter().map(|machine| &machine.source), table);
            });
            for (number, (machine, facts)) in machines.iter().zip(&state.facts).enumerate() {
                let source = &machine.source;
                let arch = source.architecture();
                let cpus = source.cpu_count().map(|cpus| cpus as u32);
                let clock = source.clock();
                let is_lossy = facts.is_damaged || facts.notes.iter().any(notes::is_loss);
                fill(TableId::Recording, &mut |table| {
                    table.row([
                        Put::Text(&machine.path),
                        Put::Text(&clock),
                        arch.as_deref().into(),
                        cpus.into(),
                        facts.span.map(|span| span.0).into(),
                        facts.span.map(|span| span.1).into(),
                        source.wall_offset().into(),
                        is_lossy.into(),
                    ]);
                });
                fill(TableId::Machine, &mut |table| {
                    table.row([arch.as_deref().into(), cpus.into()])
                });
                let number = Put::Small(number as u32);
                let cpus = cpus.map_or(Put::Null, |cpus| Put::Integer(cpus.into()));
                let texts = [
                    ("trace_path", Put::Null, Put::Text(&machine.path)),
                    ("trace_clock", Put::Null, Put::Text(&clock)),
                    ("system_machine", Put::Null, arch.as_deref().into()),
                    ("cpu_count", cpus, Put::Null),
                ];
                fill(TableId::Metadata, &mut |table| {
                    for (name, integer, text) in texts {
                        table.row([Put::Text(name), Put::Text("single"), integer, text, number]);
                    }
                });
            }
            let all: Vec<Vec<Note>> = state.facts.iter().map(|f| f.notes.clone()).collect();
            let schema = |id: TableId| crate::build::TableBuilder::new(id.schema(), 0);
            let (mut stats, mut trust) = (schema(TableId::Stats), schema(TableId::Trust));
            fill(TableId::Stats, &mut |table| notes::fill(&all, table, &mut trust));
            fill(TableId::Trust, &mut |table| notes::fill(&all, &mut stats, table));
        }))
    }

    /// Rows of the table of an answer.
    fn answer_rows(&self, number: usize) -> Result<Arc<LoadedTable>, String> {
        let mut state = lock(&self.state);
        if let Some(loaded) = state.answers.get(number).cloned().flatten() {
            return Ok(loaded);
        }
        let Some(answer) = self.answers.get(number) else {
            return Err("an unknown answer".to_owned());
        };
        let machines = lock(&self.machines);
        let sources = machines.iter().map(|machine| &machine.source);
        let (made, read) = read_answer(answer, sources, self.options.words)?;
        for (slot, notes) in state.facts.iter_mut().zip(read) {
            for note in notes {
                if !slot.notes.contains(&note) {
                    slot.notes.push(note);
                }
            }
        }
        // One reading makes all tables of the answer.
        for (number, table) in self.answers.iter().enumerate() {
            let found = made.iter().find(|(name, _)| *name == table.name);
            if let (Some((_, rows)), Some(slot)) = (found, state.answers.get_mut(number)) {
                *slot = Some(Arc::new(LoadedTable::new(rows.clone(), None)));
            }
        }
        state.answers.get(number).cloned().flatten().ok_or_else(|| "no such table".to_owned())
    }

    /// Functions of a stack, the innermost first, separated by `;`.
    fn stack_text(&self, site: Option<i64>) -> Result<Option<String>, String> {
        let sites = self.rows(TableId::Callsite as usize)?;
        let frames = self.rows(TableId::Frame as usize)?;
        let number = |value: ColumnValue<'_>| match value {
            ColumnValue::Integer(n) => usize::try_from(n).ok(),
            _ => None,
        };
        let mut names = Vec::new();
        let mut next = site.and_then(|site| usize::try_from(site).ok());
        while let Some(site) = next.filter(|site| *site < sites.table().rows) {
            let frame = number(sites.table().value(site, 3));
            let name = frame.map(|frame| frames.table().value(frame, 1));
            names.push(match name {
                Some(ColumnValue::Text(name)) => name.to_owned(),
                _ => "?".to_owned(),
            });
            next = number(sites.table().value(site, 2));
        }
        Ok((!names.is_empty()).then(|| names.join(";")))
    }

    /// A time of a recording's clock as UTC.
    fn utc_text(&self, time: Option<i64>, machine: Option<i64>) -> Option<String> {
        let machines = lock(&self.machines);
        let machine = machines.get(usize::try_from(machine?).ok()?)?;
        let offset = machine.source.wall_offset()?;
        let nanos = u64::try_from(time?).ok()?.checked_add(offset)?;
        Some(crate::utc::utc_text(nanos))
    }
}

struct EventRows {
    recordings: Arc<Recordings>,
    number: usize,
}

impl TableSource for EventRows {
    fn want(&self, columns: u64) {
        self.recordings.want(self.number, columns);
    }

    fn open(&self) -> Result<Arc<LoadedTable>, String> {
        let loaded = self.recordings.rows(self.number)?;
        if loaded.table().rows == 0 {
            self.recordings.note_empty(self.number);
        }
        Ok(loaded)
    }
}

struct AnswerRows {
    recordings: Arc<Recordings>,
    number: usize,
}

impl TableSource for AnswerRows {
    fn want(&self, _: u64) {}

    fn open(&self) -> Result<Arc<LoadedTable>, String> {
        self.recordings.answer_rows(self.number)
    }
}
