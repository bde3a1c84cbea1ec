//! Flags that all answers share which are tables: order, columns and number of rows, formats.

use std::io::{self, Write};

use anyhow::bail;
use clap::Arg;
use kymo_table::{Answer, AnswerSchema, SortAlias, SortKeys, check_columns};
use kymo_view::Ledger;

/// Flags of a table.
#[derive(Clone, clap::Args)]
pub(crate) struct TableArgs {
    /// Sort by these columns, largest numbers first; `-KEY` reverses the order
    #[arg(
        short = 's',
        long,
        value_name = "KEYS",
        value_delimiter = ',',
        allow_hyphen_values = true
    )]
    sort: Vec<String>,
    /// Show only these columns (names: docs/json.md)
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    columns: Vec<String>,
    /// Maximum number of rows
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The table as comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Words for the help of `--sort`, and its default.
pub(crate) fn sort_by(keys: &'static str, default: &'static str) -> impl FnOnce(Arg) -> Arg {
    move |arg| arg.help(format!("Sort keys: {keys}; or columns")).default_value(default)
}

/// Table of an answer that the flags are for.
pub(crate) struct MainTable {
    /// Name of the answer.
    pub(crate) answer: &'static str,
    /// Name of the table within.
    pub(crate) table: &'static str,
    /// Tables of the same columns that are sorted alike.
    pub(crate) alike: &'static [&'static str],
    /// Short words for columns.
    pub(crate) aliases: &'static [SortAlias],
}

/// Table of an answer that has several, with rows of different kinds.
pub(crate) struct OneTable {
    /// Its name.
    pub(crate) name: &'static str,
    /// Short words for columns.
    pub(crate) aliases: Vec<SortAlias>,
    /// Keys that it is sorted by if none is named that it has.
    pub(crate) usual: Vec<&'static str>,
}

/// Definitions of all answers that are tables.
fn answer_schemas() -> Vec<AnswerSchema> {
    let mut all = kymo_analysis::answer_schemas();
    all.push(kymo_view::diff::answer_schema());
    all
}

impl TableArgs {
    /// Whether an order is asked for.
    pub(crate) fn is_sorted(&self) -> bool {
        !self.sort.is_empty()
    }

    /// Keys of the order that is asked for.
    pub(crate) fn keys(&self) -> &[String] {
        &self.sort
    }

    /// Whether a number of rows is asked for.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Checks the keys of an answer whose tables have rows of different kinds: each is of one.
    ///
    /// # Errors
    /// If no table has a key.
    pub(crate) fn check_keys(&self, answer: &str, tables: &[OneTable]) -> anyhow::Result<()> {
        let schemas = answer_schemas();
        let schema = schemas.iter().find(|schema| schema.name == answer);
        let columns = |table: &OneTable| schema.map_or(&[][..], |schema| schema.table(table.name));
        for key in &self.sort {
            let mut errors = tables
                .iter()
                .map(|table| SortKeys::resolve(&[key], &table.aliases, columns(table)).err());
            if errors.all(|error| error.is_some()) {
                let mut aliases: Vec<SortAlias> =
                    tables.iter().flat_map(|table| table.aliases.iter().copied()).collect();
                aliases.sort_unstable();
                bail!("{}", SortKeys::unknown(key, &aliases, tables.iter().flat_map(columns)));
            }
        }
        Ok(())
    }

    /// Writes an answer whose tables have rows of different kinds: each is sorted by those of the
    /// keys that it has. As CSV and for chosen columns there is one table.
    ///
    /// # Errors
    /// If there is not one table where one is needed, a column does not exist, or writing fails.
    pub(crate) fn write_tables(
        &self,
        out: &mut dyn Write,
        answer: &mut Answer,
        tables: &[OneTable],
        (is_json, ledger): (bool, &Ledger),
        text: impl FnOnce(&Answer, &mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        for table in tables {
            let columns = answer.table(table.name).columns;
            let resolve = |key: &str| SortKeys::resolve(&[key], &table.aliases, columns).is_ok();
            let mut keys: Vec<&str> =
                self.sort.iter().map(String::as_str).filter(|key| resolve(key)).collect();
            if keys.is_empty() {
                keys.clone_from(&table.usual);
            }
            let keys =
                SortKeys::resolve(&keys, &table.aliases, columns).map_err(anyhow::Error::msg)?;
            answer.sort(table.name, &keys);
        }
        if !is_json && !self.csv && self.columns.is_empty() {
            return Ok(text(answer, out)?);
        }
        for table in tables {
            answer.limit(table.name, self.most(None));
        }
        if is_json && self.columns.is_empty() {
            return Ok(answer.write_json(out)?);
        }
        let [table] = tables else {
            let names: Vec<&str> = tables.iter().map(|table| table.name).collect();
            let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            bail!("--csv and --columns need a single table; the options select {there}");
        };
        let of = MainTable { answer: answer.name, table: table.name, alike: &[], aliases: &[] };
        let order = TableArgs { sort: Vec::new(), ..self.clone() };
        order.write(out, (answer, &of), (is_json, ledger), text)
    }

    /// Checks the names, before anything is read.
    ///
    /// # Errors
    /// If a key or column does not exist.
    pub(crate) fn check(&self, of: &MainTable) -> anyhow::Result<()> {
        let schemas = answer_schemas();
        let schema = schemas.iter().find(|schema| schema.name == of.answer);
        let columns = schema.map_or(&[][..], |schema| schema.table(of.table));
        check_columns(columns, &self.columns).map_err(anyhow::Error::msg)?;
        let keys = SortKeys::resolve(&self.sort, of.aliases, columns);
        keys.map(|_| ()).map_err(anyhow::Error::msg)
    }

    /// Whether columns may be shown that are not shown otherwise; `histogram`: histograms are.
    pub(crate) fn wants_details(&self, histogram: bool) -> bool {
        histogram || !self.columns.is_empty()
    }

    /// Rows at most, of a table that shows `rows` otherwise.
    pub(crate) fn most(&self, rows: Option<usize>) -> usize {
        self.limit.or(rows).unwrap_or(usize::MAX)
    }

    /// Writes the answer in the format that the flags choose; `text` writes it as text, with all
    /// of its rows in their order.
    ///
    /// # Errors
    /// If a name does not exist, or writing fails.
    pub(crate) fn write(
        &self,
        out: &mut dyn Write,
        (answer, of): (&mut Answer, &MainTable),
        (is_json, ledger): (bool, &Ledger),
        text: impl FnOnce(&Answer, &mut dyn Write) -> io::Result<()>,
    ) -> anyhow::Result<()> {
        let columns = answer.table(of.table).columns;
        let keys =
            SortKeys::resolve(&self.sort, of.aliases, columns).map_err(anyhow::Error::msg)?;
        answer.sort(of.table, &keys);
        of.alike.iter().for_each(|table| answer.sort(table, &keys));
        if !is_json && !self.csv && self.columns.is_empty() {
            return Ok(text(answer, out)?);
        }
        let dropped = answer.limit(of.table, self.most(None));
        if !self.columns.is_empty() {
            answer.choose(of.table, &self.columns).map_err(anyhow::Error::msg)?;
        }
        if is_json {
            answer.write_json(out)?;
        } else if self.csv {
            answer.write_csv(out, of.table, ",")?;
        } else {
            answer.write_plain(out, of.table, dropped)?;
            if !ledger.is_empty() {
                write!(out, "\n{}", ledger.to_text(""))?;
            }
        }
        Ok(())
    }
}
