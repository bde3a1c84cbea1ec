//! The prompt of `kymo sql`: statements end with `;`, words that begin with `.` are the prompt's own.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use kymo_kernel::output_file::PRIVATE;
use kymo_kernel::process::{Signal, Signals, die_by};
use kymo_model::UntrustedText;
use kymo_sql::{Recordings, TableReference, VIEWS};
use kymo_sqlite::is_complete;
use kymo_table::RowFormat;
use kymo_view::Ledger;
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::MemHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Context, Editor, Helper};

const HELP: &str = "\
.tables [PATTERN]   tables, or those whose names contain PATTERN
.schema TABLE       columns of a table
.mode text|csv|json form of results
.help               this list
.quit               end (as Ctrl-D does)
Statements end with `;`; Ctrl-C stops one. Tab completes names; the up arrow brings back
earlier statements.
";

/// Entries of the history that are kept.
const MOST_ENTRIES: usize = 1000;

/// Words of SQL that are completed.
const KEYWORDS: [&str; 38] = [
    "ALL",
    "AND",
    "AS",
    "ASC",
    "BETWEEN",
    "BY",
    "CASE",
    "CAST",
    "COUNT",
    "DESC",
    "DISTINCT",
    "ELSE",
    "END",
    "EXISTS",
    "FROM",
    "GROUP",
    "HAVING",
    "IN",
    "INNER",
    "IS",
    "JOIN",
    "LEFT",
    "LIKE",
    "LIMIT",
    "MAX",
    "MIN",
    "NOT",
    "NULL",
    "OFFSET",
    "ON",
    "OR",
    "ORDER",
    "OVER",
    "PARTITION",
    "SELECT",
    "SUM",
    "THEN",
    "WHERE",
];

/// Directory of the history: `$XDG_STATE_HOME/kymo` or `~/.local/state/kymo`.
pub(crate) fn history_directory() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".local/state"));
    Some(absolute("XDG_STATE_HOME").or_else(home)?.join("kymo"))
}

/// Statements of earlier prompts. Without a place for them none are kept.
struct History {
    file: Option<File>,
}

impl History {
    /// Opens the file, and adds its entries to an editor.
    fn open(editor: &mut Editor<Words, MemHistory>) -> History {
        let path = history_directory().map(|directory| directory.join("sql_history"));
        let Some(path) = path else { return History { file: None } };
        let text = std::fs::read(&path).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let entries: Vec<&str> = text.lines().collect();
        let kept = entries.get(entries.len().saturating_sub(MOST_ENTRIES)..).unwrap_or_default();
        for entry in kept {
            // Only what cannot be kept in memory is an error.
            let _ = editor.add_history_entry(unescape(entry));
        }
        let mut options = File::options();
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, PRIVATE);
        if entries.len() <= 2 * MOST_ENTRIES {
            return History { file: options.append(true).create(true).open(path).ok() };
        }
        let mut file = options.write(true).create(true).truncate(true).open(path).ok();
        if let Some(file) = &mut file {
            // A history that is cut is no reason to end.
            let _ = file.write_all((kept.join("\n") + "\n").as_bytes());
        }
        History { file }
    }

    fn add(&mut self, entry: &str) {
        if let Some(file) = &mut self.file {
            // As above.
            let _ = file.write_all(format!("{}\n", escape(entry)).as_bytes());
        }
    }
}

/// An entry of several lines as one line.
fn escape(entry: &str) -> String {
    entry.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "")
}

fn unescape(line: &str) -> String {
    let mut text = String::new();
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('n') => text.push('\n'),
                Some(c) => text.push(c),
                None => {}
            },
            c => text.push(c),
        }
    }
    text
}

/// Names that are completed.
struct Words {
    tables: Vec<TableReference>,
}

impl Words {
    /// Words that a line may go on with at its end, and where they begin.
    fn candidates(&self, line: &str) -> (usize, Vec<String>) {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let start = line.rfind(|c| !is_word(c)).map_or(0, |at| at + 1);
        let (before, word) = line.split_at(start);
        if before == "." {
            let own = ["help", "mode", "quit", "schema", "tables"].map(str::to_owned);
            return (start, own.into_iter().filter(|name| name.starts_with(word)).collect());
        }
        let lower = word.to_ascii_lowercase();
        let is_named = |table: &&TableReference| {
            line.split(|c| !is_word(c)).any(|word| word.eq_ignore_ascii_case(&table.name))
        };
        let named: Vec<&TableReference> = self.tables.iter().filter(is_named).collect();
        let columns = named.iter().flat_map(|table| &table.columns).map(|(name, ..)| name.clone());
        let mut all: Vec<String> = self.tables.iter().map(|table| table.name.clone()).collect();
        all.extend(VIEWS.iter().map(|view| view.name.to_owned()));
        all.extend(columns);
        if before.trim_start().starts_with('.') || before.ends_with('.') {
            all.retain(|name| name.starts_with(&lower));
        } else {
            let is_lower = word.chars().any(|c| c.is_ascii_lowercase());
            let cased = |word: &str| {
                if is_lower { word.to_ascii_lowercase() } else { word.to_owned() }
            };
            all.extend(KEYWORDS.iter().map(|word| cased(word)));
            all.retain(|name| name.to_ascii_lowercase().starts_with(&lower));
        }
        all.sort();
        all.dedup();
        (start, all)
    }
}

impl Completer for Words {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        at: usize,
        _: &Context<'_>,
    ) -> Result<(usize, Vec<String>), ReadlineError> {
        Ok(self.candidates(line.get(..at).unwrap_or_default()))
    }
}

impl Hinter for Words {
    type Hint = String;
}

impl Highlighter for Words {}

impl Validator for Words {
    fn validate(
        &self,
        context: &mut ValidationContext<'_>,
    ) -> Result<ValidationResult, ReadlineError> {
        let text = context.input().trim();
        let is_whole = text.is_empty() || text.starts_with('.') || is_complete(text);
        Ok(if is_whole { ValidationResult::Valid(None) } else { ValidationResult::Incomplete })
    }
}

impl Helper for Words {}

/// Ctrl-C while a statement is answered.
pub(crate) struct Interrupts {
    signals: Signals,
}

impl Interrupts {
    /// Begins to listen; to be called before other threads begin.
    pub(crate) fn listen() -> io::Result<Interrupts> {
        Ok(Interrupts { signals: Signals::listen(&[Signal::Int])? })
    }

    /// Sets the flag at the first Ctrl-C while a statement is answered; the second ends kymo. While
    /// a line is read, Ctrl-C is a key.
    fn watch(self, flag: Arc<AtomicBool>) -> io::Result<()> {
        let watch = move || {
            while self.signals.wait(None, None).is_ok() {
                while let Ok(Some(_)) = self.signals.next() {
                    if flag.swap(true, Ordering::Relaxed) {
                        die_by(Signal::Int);
                    }
                }
            }
        };
        // It ends with the program.
        std::thread::Builder::new().name("interrupts".to_owned()).spawn(watch).map(|_| ())
    }
}

/// Reads statements and words of the prompt's own until the end; `query` answers a statement.
pub(crate) fn run(
    recordings: &Arc<Recordings>,
    interrupts: Interrupts,
    format: RowFormat,
    mut query: impl FnMut(&str, RowFormat) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let config = Config::builder().auto_add_history(false).max_history_size(MOST_ENTRIES);
    let config = config.context("the prompt")?.build();
    let entries = MemHistory::with_config(&config);
    let mut editor: Editor<Words, MemHistory> =
        Editor::with_history(config, entries).context("the prompt")?;
    editor.set_helper(Some(Words { tables: Recordings::reference() }));
    let mut history = History::open(&mut editor);
    let mut format = format;
    let mut told = String::new();
    let flag = recordings.interrupt_flag();
    interrupts.watch(flag.clone()).context("the prompt")?;
    sayln!(
        "SQL on {}; .help lists what there is beside it",
        UntrustedText::new(recordings.arguments().trim_start_matches("-i ")).to_text()
    );
    loop {
        flag.store(false, Ordering::Relaxed);
        let text = match editor.readline("sql> ") {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => continue,
            Err(ReadlineError::Eof) => return Ok(()),
            Err(error) => return Err(error).context("the prompt"),
        };
        let text = text.trim();
        if text.is_empty() {
            continue;
        }
        // Only what cannot be kept in memory is an error.
        let _ = editor.add_history_entry(text);
        history.add(text);
        if let Some(words) = text.strip_prefix('.') {
            let words: Vec<&str> = words.trim_end_matches(';').split_whitespace().collect();
            match words[..] {
                ["quit" | "exit" | "q"] => return Ok(()),
                ["mode", name] => match mode(name) {
                    Some(chosen) => format = chosen,
                    None => sayln!("kymo: .mode is text, csv or json"),
                },
                _ => own(&words).context("standard output")?,
            }
            continue;
        }
        if let Err(error) = query(text, format) {
            sayln!("kymo: {error:#}");
        }
        let ledger = Ledger::from_notes(recordings.notes()).to_text("");
        if ledger != told && !ledger.is_empty() {
            sayln!("\n{}", ledger.trim_end());
        }
        told = ledger;
    }
}

fn mode(name: &str) -> Option<RowFormat> {
    match name {
        "text" => Some(RowFormat::Text),
        "csv" => Some(RowFormat::Csv),
        "json" => Some(RowFormat::Json),
        _ => None,
    }
}

/// Prints what a word of the prompt's own asks for.
fn own(words: &[&str]) -> io::Result<()> {
    let mut out = crate::streams::stdout();
    let tables = Recordings::reference();
    match *words {
        ["tables"] | ["tables", _] => {
            let part = words.get(1).copied().unwrap_or_default();
            for table in tables.iter().filter(|table| table.name.contains(part)) {
                super::write_table(&mut out, table)?;
            }
            for view in VIEWS.iter().filter(|view| view.name.contains(part)) {
                super::write_view(&mut out, view, false)?;
            }
        }
        ["schema", name] => match tables.iter().find(|table| table.name == name) {
            Some(table) => super::write_columns(&mut out, table)?,
            None => match VIEWS.iter().find(|view| view.name == name) {
                Some(view) => writeln!(out, "{}", view.statement())?,
                None => sayln!("kymo: no table {name:?}; .tables lists them"),
            },
        },
        _ => out.write_all(HELP.as_bytes())?,
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_several_lines_come_back_as_they_were() {
        for entry in ["SELECT 1;", "SELECT '\\n',\n  2 -- two\n;", "\\", ""] {
            assert!(!escape(entry).contains('\n'));
            assert_eq!(unescape(&escape(entry)), entry);
        }
    }

    #[test]
    fn tables_their_columns_and_words_are_completed() {
        let words = Words { tables: Recordings::reference() };
        let of = |line: &str| words.candidates(line).1;
        assert_eq!(of("SELECT * FROM sched_sl"), ["sched_slice"]);
        assert_eq!(words.candidates("SELECT * FROM sched_sl").0, 14);
        // Columns of tables that are named, in any order.
        assert!(of("SELECT wakeup").is_empty());
        assert_eq!(of("SELECT s.x FROM sched_slice s WHERE s.wakeup_d"), ["wakeup_delay"]);
        assert_eq!(of("sel"), ["select"]);
        assert_eq!(of("SEL"), ["SELECT"]);
        assert_eq!(of(".sch"), ["schema"]);
        assert_eq!(of(".schema perf_sa"), ["perf_sample"]);
    }
}
