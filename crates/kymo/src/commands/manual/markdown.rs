//! The reference pages of the book: a page of Markdown for each command, from its flags.

use std::fmt::Write as _;

use clap::{Arg, Command};

/// Columns of the notes of a page.
const NOTES_WIDTH: usize = 90;

/// The page of a command: usage, text, options under their headings, examples.
pub(super) fn page(command: &Command, name: &str) -> String {
    let mut page = format!("# {name}\n");
    let about = command.get_long_about().or_else(|| command.get_about());
    if let Some(about) = about {
        page.extend(["\n", &escaped(&about.to_string()), "\n"]);
    }
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage);
    page.extend(["\n```text\n", usage.trim_end(), "\n```\n"]);
    let commands: Vec<_> =
        command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help").collect();
    if !commands.is_empty() {
        page.push_str("\n## Commands\n\n");
        for inner in commands {
            let about = inner.get_about().map(ToString::to_string).unwrap_or_default();
            let file = file_name(&format!("{name} {}", inner.get_name()));
            let _ = writeln!(page, "- [`{}`]({file}): {}", inner.get_name(), escaped(&about));
        }
    }
    let visible = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    let mut headings: Vec<&str> = vec!["Arguments", "Options"];
    headings.extend(visible().filter_map(Arg::get_help_heading));
    let mut written: Vec<&str> = Vec::new();
    for heading in headings {
        if written.contains(&heading) {
            continue;
        }
        written.push(heading);
        let below: Vec<_> = visible().filter(|arg| heading_of(arg) == heading).collect();
        if below.is_empty() {
            continue;
        }
        let _ = write!(page, "\n## {}\n\n", escaped(heading));
        below.into_iter().for_each(|arg| page.push_str(&item(arg)));
    }
    if let Some(after) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        page.push_str("\n## Notes and examples\n\n```text\n");
        after.to_string().trim_end().lines().for_each(|line| push_wrapped(&mut page, line));
        page.push_str("```\n");
    }
    page
}

/// Appends a line, broken at spaces if it is prose.
fn push_wrapped(page: &mut String, line: &str) {
    if line.starts_with(' ') {
        page.extend([line, "\n"]);
        return;
    }
    let mut width = 0;
    for word in line.split(' ') {
        let word_width = word.chars().count();
        if width > 0 {
            let is_full = width + 1 + word_width > NOTES_WIDTH;
            page.push(if is_full { '\n' } else { ' ' });
            width = if is_full { 0 } else { width + 1 };
        }
        page.push_str(word);
        width += word_width;
    }
    page.push('\n');
}

/// The file of the page of a command, `kymo-sched-latency.md`.
pub(super) fn file_name(name: &str) -> String {
    format!("{}.md", name.replace(' ', "-"))
}

fn heading_of(arg: &Arg) -> &str {
    let own = if arg.is_positional() { "Arguments" } else { "Options" };
    arg.get_help_heading().unwrap_or(own)
}

/// An option as an item of a list, its details below.
fn item(arg: &Arg) -> String {
    let mut item = format!("- `{}`", arg.to_string().replace('`', "'"));
    if let (Some(short), Some(_)) = (arg.get_short(), arg.get_long()) {
        item = format!("- `-{short}`, {}", &item[2..]);
    }
    let help = arg.get_long_help().or_else(|| arg.get_help());
    let help = help.map(ToString::to_string).unwrap_or_default();
    if !help.is_empty() {
        let _ = write!(item, ": {}", escaped(&help).replace('\n', "\n  "));
    }
    let defaults: Vec<_> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    if !defaults.is_empty() && arg.get_action().takes_values() && !arg.is_hide_default_value_set() {
        let _ = write!(item, " [default: `{}`]", defaults.join(" "));
    }
    let possible: Vec<_> =
        arg.get_possible_values().into_iter().filter(|value| !value.is_hide_set()).collect();
    if !possible.is_empty() && arg.get_action().takes_values() && !arg.is_hide_possible_values_set()
    {
        let names: Vec<_> = possible.iter().map(|v| format!("`{}`", v.get_name())).collect();
        let _ = write!(item, " [possible values: {}]", names.join(", "));
    }
    item.push('\n');
    item
}

/// Text in which no character is markup but the backticks that it has itself.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let is_paired = text.matches('`').count().is_multiple_of(2);
    let mut in_code = false;
    for c in text.chars() {
        match c {
            '`' if is_paired => in_code = !in_code,
            '`' | '*' | '_' | '<' | '>' | '[' | ']' | '\\' | '#' | '|' if !in_code => {
                out.push('\\');
            }
            _ => {}
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use clap::{Arg, Command};

    use super::{escaped, page};

    #[test]
    fn a_page_has_all_parts_and_no_markup_of_the_help() {
        let mut command = Command::new("dance")
            .about("Dances on <floor> with *stars*")
            .arg(Arg::new("steps").short('s').long("steps").value_name("N").help("Number of `a_b`"))
            .arg(Arg::new("partner").help("Who leads"))
            .after_help("kymo dance -s 3\n".to_owned() + &"step ".repeat(30))
            .subcommand(Command::new("tango").about("In two"));
        command.build();
        let page = page(&command, "kymo dance");
        for part in [
            "# kymo dance\n\nDances on \\<floor\\> with \\*stars\\*\n",
            "- [`tango`](kymo-dance-tango.md): In two\n",
            "## Options\n\n- `-s`, `--steps <N>`: Number of `a_b`\n",
            "## Arguments\n\n- `[partner]`: Who leads\n",
            &format!("```text\nkymo dance -s 3\n{}\n", "step ".repeat(18).trim_end()),
            &format!("{}\n```\n", "step ".repeat(12).trim_end()),
        ] {
            assert!(page.contains(part), "{part:?} is not in\n{page}");
        }
        assert_eq!(escaped("one ` tick"), "one \\` tick");
    }
}
