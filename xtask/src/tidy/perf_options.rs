//! The table of perf's long options: `perf_options.txt` holds what kymo has of them, and
//! docs/perf.md is the page made of it. With perf there, a test looks whether its help lists
//! an option that has no row; `cargo xtask perf-options` asks the program which it knows, and which it refuses by name.

use std::fmt::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};

use super::Checkout;
use crate::cargo;

const DATA: &str = "xtask/src/tidy/perf_options.txt";
const PAGE: &str = "docs/perf.md";

/// State of options that are taken and change nothing.
const NO_EFFECT: &str = "no effect: ";

/// One row of the table.
#[derive(Clone, Debug, PartialEq)]
struct OptionRow<'a> {
    /// With its subcommand, if it has one.
    command: &'a str,
    option: &'a str,
    versions: &'a str,
    state: &'a str,
}

impl<'a> OptionRow<'a> {
    fn parse(line: &'a str) -> Option<OptionRow<'a>> {
        let mut cells = line.splitn(4, " | ");
        let mut cell = || cells.next().filter(|cell| !cell.is_empty());
        let row =
            OptionRow { command: cell()?, option: cell()?, versions: cell()?, state: cell()? };
        row.is_valid().then_some(row)
    }

    fn is_valid(&self) -> bool {
        let why = self.state.strip_prefix("cannot: ").or(self.state.strip_prefix(NO_EFFECT));
        let state =
            ["known", "not yet"].contains(&self.state) || why.is_some_and(|why| !why.is_empty());
        state && ["6.1", "7.2", "6.1 7.2"].contains(&self.versions)
    }
}

/// Rows of the data file, in its order, and the lines that are none.
fn parse_rows(data: &str) -> (Vec<OptionRow<'_>>, Vec<&str>) {
    let (mut rows, mut bad) = (Vec::new(), Vec::new());
    for line in data.lines().filter(|line| !line.starts_with('#')) {
        match OptionRow::parse(line) {
            Some(row) => rows.push(row),
            None => bad.push(line),
        }
    }
    (rows, bad)
}

pub(super) fn findings(checkout: &Checkout) -> Vec<String> {
    let text = |name| checkout.texts.iter().find(|file| file.name == name);
    let Some(data) = text(DATA) else { return vec![format!("{DATA}: not there")] };
    let (rows, bad) = parse_rows(&data.text);
    let mut found: Vec<String> =
        bad.iter().map(|line| format!("{DATA}: no row of the table: `{line}`")).collect();
    for (i, row) in rows.iter().enumerate() {
        let same = |r: &OptionRow<'_>| r.command == row.command && r.option == row.option;
        if rows.iter().take(i).any(same) {
            found.push(format!("{DATA}: two rows of {} --{}", row.command, row.option));
        }
    }
    if text(PAGE).is_none_or(|page| page.text != render_page(&rows)) {
        found.push(format!("{PAGE}: differs from {DATA}; `cargo xtask perf-options` renews it"));
    }
    found
}

/// Asks the release program which options it knows, and renews the data and the page.
pub(crate) fn renew(program: Option<&str>) -> anyhow::Result<()> {
    let program = match program {
        Some(program) => program.into(),
        None => cargo::build_release()?,
    };
    let path = crate::root().join(DATA);
    let data = std::fs::read_to_string(&path).context(DATA)?;
    let (mut rows, bad) = parse_rows(&data);
    if let Some(line) = bad.first() {
        bail!("{DATA}: no row of the table: `{line}`");
    }
    let mut states = Vec::new();
    for row in &rows {
        states.push(state_in(&program, row)?);
    }
    for (row, state) in rows.iter_mut().zip(&states) {
        row.state = state;
    }
    let mut text: String =
        data.lines().filter(|l| l.starts_with('#')).map(|l| format!("{l}\n")).collect();
    for OptionRow { command, option, versions, state } in &rows {
        let _ = writeln!(text, "{command} | {option} | {versions} | {state}");
    }
    std::fs::write(&path, &text).context(DATA)?;
    std::fs::write(crate::root().join(PAGE), render_page(&rows)).context(PAGE)?;
    println!("perf-options: {}", summary(&rows));
    Ok(())
}

/// State of the option in the program. `--help` after it keeps the command from doing anything, or
/// is refused as the option's value.
fn state_in(program: &std::path::Path, row: &OptionRow<'_>) -> anyhow::Result<String> {
    let option = format!("--{}", row.option);
    let output = Command::new(program)
        .args(row.command.split(' '))
        .args([&option, "--help"])
        .stdin(Stdio::null())
        .current_dir(std::env::temp_dir())
        .output()
        .with_context(|| program.display().to_string())?;
    let error = String::from_utf8_lossy(&output.stderr);
    let refused = format!("unexpected argument '{option}' found");
    let by_name = format!("error: kymo {} has no {option}: ", row.command);
    if let Some(reason) = error.lines().find_map(|line| line.strip_prefix(&by_name)) {
        return Ok(format!("cannot: {reason}"));
    }
    if error.contains("unrecognized subcommand") || error.contains(&refused) {
        return Ok("not yet".to_owned());
    }
    let help = Command::new(program).args(row.command.split(' ')).arg("--help").output()?;
    let help = String::from_utf8_lossy(&help.stdout);
    Ok(reason_without_effect(&help, &option)
        .map_or("known".to_owned(), |why| format!("{NO_EFFECT}{why}")))
}

/// Reason in the help of an option without effect.
fn reason_without_effect(help: &str, option: &str) -> Option<String> {
    let is_of = |line: &&str| {
        let words = line.trim_start().split([' ', ',', '.']);
        line.trim_start().starts_with('-') && words.take(3).any(|word| word == option)
    };
    let mut lines = help.lines().skip_while(|line| !is_of(line));
    lines.next()?;
    // The text stands below the option.
    let text = lines.map(str::trim).take_while(|line| !line.is_empty() && !line.starts_with('-'));
    let text = text.collect::<Vec<_>>().join(" ");
    text.strip_prefix("No effect: ").map(str::to_owned)
}

fn summary(rows: &[OptionRow<'_>]) -> String {
    let count = |state: &str| rows.iter().filter(|row| row.state.starts_with(state)).count();
    let (known, idle) = (count("known"), count(NO_EFFECT));
    let (cannot, later) = (count("cannot"), count("not yet"));
    format!(
        "{} options: {known} known, {idle} taken without effect, {cannot} cannot be, {later} not yet",
        rows.len()
    )
}

fn render_page(rows: &[OptionRow<'_>]) -> String {
    let mut page = String::from(HEAD);
    let _ = writeln!(page, "{}.", summary(rows));
    for commands in rows.chunk_by(|a, b| a.command == b.command) {
        let Some(first) = commands.first() else { continue };
        let _ = writeln!(page, "\n## perf {}\n", first.command);
        page.push_str("| option | perf | kymo |\n|---|---|---|\n");
        for row in commands {
            let _ = writeln!(page, "| `--{}` | {} | {} |", row.option, row.versions, row.state);
        }
    }
    page
}

const HEAD: &str = "\
# perf's options

Long options listed by `perf COMMAND -h` of perf 6.1 and 7.2, and their state in the kymo command of
the same name.

- **known**: kymo has an option with this name. It need not do the same: see `kymo COMMAND --help`.
Tests compare some of the options with perf, not all.
- **no effect**: kymo accepts the option, which changes nothing because it is always or never in
effect; the command's `--help` gives the reason.
- **not yet**: kymo refuses it with `unexpected argument`, or lacks the command.
- **cannot**: refused by name, with the reason and an alternative.

Not covered: `perf archive` and `perf kmem stat`, which have no help of their own, subcommands that
only record, and commands that are not in the table. This page is generated from
`xtask/src/tidy/perf_options.txt`; `cargo xtask perf-options` updates both from the program.

Started through a link named `perf`, kymo behaves like perf 7.2 where the two differ: `stat` derives
and names metrics as perf 7 does, and none for events given with `-e`; `trace` writes perf's lines
to standard error; `record -e cycles` records a clock, with a note, if the machine cannot count
cycles; `record -z` writes COMPRESSED2 records, which perf reads since 6.16; `script` shows addresses
of call chains in the process and not in the binary; `report` shows latency next to the overhead for
a recording with context switches; usage errors have exit status 129.

";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kymo_testkit::{Need, Outcome, peer, require};

    use super::*;

    /// Long options in a help of perf's.
    fn listed_options(help: &str) -> BTreeSet<&str> {
        help.lines()
            .filter(|line| line.starts_with("    ") && !line.starts_with("         "))
            .filter_map(|line| {
                let line = line.trim_start();
                let short = line.starts_with('-') && line.get(2..4) == Some(", ");
                let long = if short { line.get(4..)? } else { line }.strip_prefix("--")?;
                long.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').next()
            })
            .filter(|name| !name.is_empty())
            .collect()
    }

    #[test]
    fn options_are_found_in_a_help() {
        let help = " Usage: x\n\n    -a, --all-cpus   all\n        --no-big <n>  of --small\n\
                    \t\t\t  --text\n    -D               raw\n";
        assert_eq!(listed_options(help), ["all-cpus", "no-big"].into());
    }

    #[test]
    fn options_without_effect_are_distinguished() {
        let help = "  -v, --verbose...\n          No effect: stated in\n          notes\n\n      --sort <KEYS>\n          By keys\n";
        let reason = |option| reason_without_effect(help, option);
        assert_eq!(reason("--verbose").unwrap(), "stated in notes");
        assert_eq!((reason("--sort"), reason("--none")), (None, None));
    }

    #[track_caller]
    fn every_option_has_a_row(perf: impl Fn(&[&str]) -> Outcome, version: &str) {
        let data = std::fs::read_to_string(crate::root().join(DATA)).unwrap();
        let (rows, _) = parse_rows(&data);
        let commands: BTreeSet<&str> = rows.iter().map(|row| row.command).collect();
        for command in commands {
            let arguments: Vec<&str> = command.split(' ').chain(["-h"]).collect();
            let out = perf(&arguments);
            let help = [out.stdout, out.stderr].concat();
            let of_version = |row: &&OptionRow<'_>| {
                row.command == command && row.versions.split(' ').any(|v| v == version)
            };
            let rows: BTreeSet<&str> = rows.iter().filter(of_version).map(|r| r.option).collect();
            assert_eq!(listed_options(&help), rows, "perf {command} -h of {version}\n{help}");
        }
    }

    /// Whether the perf that is there is of the version that the table is of.
    fn is_version(perf: impl Fn(&[&str]) -> Outcome, version: &str) -> bool {
        let said = perf(&["--version"]).stdout;
        let number = said.trim().strip_prefix("perf version ").unwrap_or_default();
        let same = number == version || number.starts_with(&format!("{version}."));
        if !same {
            println!("SKIPPED: the table is of perf {version}; here is `{}`", said.trim());
        }
        same
    }

    #[test]
    fn every_option_of_the_installed_perf_has_a_row() {
        let installed = |args: &[&str]| kymo_testkit::perf(args);
        if require(&[Need::Perf]) && is_version(installed, "6.1") {
            every_option_has_a_row(installed, "6.1");
        }
    }

    #[test]
    fn every_option_of_the_newest_perf_has_a_row() {
        let newest = |args: &[&str]| peer("perf").run(args);
        if require(&[Need::NewestPeers]) && is_version(newest, "7.2") {
            every_option_has_a_row(newest, "7.2");
        }
    }
}
