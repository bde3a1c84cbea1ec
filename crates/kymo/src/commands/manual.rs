//! `kymo manual`: manual pages and shell completions, made from the flags that the
//! program itself was built with, so that a single copied file has them along.

mod complete;
mod markdown;
mod topics;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use clap::Command;
use complete::Shell;
use kymo_kernel::output_file::{self, SHARED};
use kymo_kernel::terminal_output::output_is_terminal;

/// Flags of `kymo manual`.
#[derive(clap::Args)]
#[command(after_long_help = "\
EXAMPLES
  kymo manual record                       the help of a command
  kymo manual record | man -l -            its manual page
  kymo manual run.7 | man -l -             the language of `kymo run`
  kymo manual --dir /usr/local/share/man   install all pages
  kymo manual --completions bash > /etc/bash_completion.d/kymo
  kymo manual --skill > skills/kymo/SKILL.md   a page for agents")]
pub(crate) struct Args {
    /// Command, or `kymo.7`, `run.7` (the language) or `warnings.7` [default: kymo itself]
    #[arg(value_name = "COMMAND", conflicts_with_all = ["dir", "completions"])]
    command: Option<String>,
    /// Write all pages to this directory: `man1/kymo-record.1`, …, `man7/kymo-run.7`, …
    #[arg(long, value_name = "DIR", conflicts_with = "completions")]
    dir: Option<PathBuf>,
    /// Write the reference pages of the book into this directory
    #[arg(long, value_name = "DIR", hide = true, conflicts_with_all = ["dir", "completions"])]
    markdown: Option<PathBuf>,
    /// Print completions for this shell
    #[arg(long, value_name = "SHELL")]
    completions: Option<Shell>,
    /// Print a page for agents: which command answers what, as Markdown
    #[arg(long, conflicts_with_all = ["dir", "completions"])]
    skill: bool,
    /// Print the words that may continue a command line, for the shell
    #[arg(long, hide = true)]
    complete: bool,
    #[arg(last = true, hide = true)]
    words: Vec<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut cli = crate::full_command_line();
    let mut text = Vec::new();
    if let Some(shell) = args.completions {
        text.extend_from_slice(shell.script().as_bytes());
    } else if args.skill {
        text.extend_from_slice(include_str!("manual/skill.md").as_bytes());
    } else if args.complete {
        cli.build();
        for candidate in complete::candidates(&cli, &args.words) {
            writeln!(text, "{candidate}")?;
        }
    } else if let Some(dir) = &args.markdown {
        let pages = all_commands(cli).into_iter().map(|(name, command)| {
            (markdown::file_name(&name), markdown::page(&command, &name).into_bytes())
        });
        write(dir, pages)?;
        let topics =
            topics::all().map(|page| (format!("{}.7.md", page.name), page.markdown().into_bytes()));
        write(dir, topics.into_iter())?;
        return Ok(ExitCode::SUCCESS);
    } else if let Some(topic) = args.command.as_deref().and_then(topic_page) {
        text = topic.into_bytes();
    } else {
        // Roff is not readable on a terminal; the help has the same text.
        if args.dir.is_none() && output_is_terminal() {
            return show_help(cli, args.command.as_deref());
        }
        let pages = pages(cli)?;
        if let Some(dir) = &args.dir {
            let commands = pages.into_iter().map(|(name, page)| (format!("{name}.1"), page));
            write(&dir.join("man1"), commands)?;
            let topics = topics::all();
            let topics = topics.iter().map(|p| (format!("{}.7", p.name), p.roff().into_bytes()));
            write(&dir.join("man7"), topics)?;
            return Ok(ExitCode::SUCCESS);
        }
        let wanted = args.command.map_or("kymo".to_owned(), |c| format!("kymo-{c}"));
        match pages.into_iter().find(|(name, _)| *name == wanted) {
            Some((_, page)) => text = page,
            None => bail!("no page {wanted}; `kymo --help` lists the commands"),
        }
    }
    crate::screen::page();
    let mut out = crate::streams::stdout().lock();
    out.write_all(&text).and_then(|()| out.flush()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// Page of section 7 for `kymo.7`, `run.7` or `warnings.7`: roff, or plain text on a terminal.
fn topic_page(typed: &str) -> Option<String> {
    let name = typed.strip_suffix(".7")?;
    let wanted = if name == "kymo" { name.to_owned() } else { format!("kymo-{name}") };
    let page = topics::all().into_iter().find(|page| page.name == wanted)?;
    Some(if output_is_terminal() { page.markdown() } else { page.roff() })
}

/// The help of kymo or of a command.
fn show_help(mut cli: Command, command: Option<&str>) -> anyhow::Result<ExitCode> {
    cli.build();
    let of = match command {
        Some(name) => cli.find_subcommand_mut(name),
        None => Some(&mut cli),
    };
    let Some(of) = of else {
        bail!("no page kymo-{}; `kymo --help` lists the commands", command.unwrap_or_default());
    };
    let text = of.render_long_help().to_string();
    crate::screen::page();
    let mut out = crate::streams::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("standard output")?;
    Ok(ExitCode::SUCCESS)
}

/// kymo and each of its commands, also those of commands, by the words that call them. Names,
/// versions and global flags reach the commands only when built.
fn all_commands(cli: Command) -> Vec<(String, Command)> {
    let mut cli = cli.disable_help_subcommand(true);
    cli.build();
    let mut all = vec![("kymo".to_owned(), cli)];
    let mut next = 0;
    while let Some((name, command)) = all.get(next) {
        let inner =
            command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
        let inner: Vec<_> =
            inner.map(|c| (format!("{name} {}", c.get_name()), c.clone())).collect();
        next += 1;
        all.splice(next..next, inner);
    }
    all
}

/// The page of kymo and of each command, by name: `kymo-sched-latency`.
fn pages(cli: Command) -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    let pages = all_commands(cli).into_iter().map(|(name, command)| {
        let name = name.replace(' ', "-");
        // clap names a command's page after the command alone.
        let text = page(command.display_name(name.clone()))?;
        Ok((name, text))
    });
    pages.collect()
}

fn page(command: Command) -> anyhow::Result<Vec<u8>> {
    let mut text = Vec::new();
    let version = concat!("kymo ", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command).source(version);
    man.render(&mut text).context("a manual page")?;
    Ok(text)
}

fn write(dir: &Path, pages: impl Iterator<Item = (String, Vec<u8>)>) -> anyhow::Result<()> {
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    for (name, text) in pages {
        let path = dir.join(name);
        output_file::open(&path, SHARED)
            .and_then(|mut file| file.write_all(&text))
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use super::pages;

    /// Number of commands below one, at all levels.
    fn below(command: &clap::Command) -> usize {
        let inner = command.get_subcommands();
        let inner = inner.filter(|c| c.get_name() != "help" && !c.is_hide_set());
        inner.map(|c| 1 + below(c)).sum()
    }

    #[test]
    fn each_page_has_all_flags_of_its_command() {
        let mut cli = crate::full_command_line();
        cli.build();
        let pages = pages(crate::full_command_line()).unwrap();
        let shown = |c: &&clap::Command| c.get_name() != "help" && !c.is_hide_set();
        let commands: Vec<_> = cli.get_subcommands().filter(shown).collect();
        assert_eq!(pages.len(), 1 + below(&cli));
        for command in commands {
            let name = format!("kymo-{}", command.get_name());
            let (_, text) = pages.iter().find(|(n, _)| *n == name).unwrap();
            // roff writes a hyphen that is one as `\-`.
            let text = String::from_utf8(text.clone()).unwrap().replace("\\-", "-");
            assert!(text.contains(&format!(".TH {name} 1")), "{name}: {}", &text[..200]);
            for flag in command.get_arguments().filter(|a| !a.is_hide_set()) {
                let Some(long) = flag.get_long() else { continue };
                assert!(text.contains(&format!("--{long}")), "{name}: no --{long}");
            }
        }
    }
}
