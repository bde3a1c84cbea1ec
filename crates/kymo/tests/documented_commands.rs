//! Commands that the README and the book show: kymo's parser accepts each, with its options.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::{Path, PathBuf};

use kymo_testkit::run;

/// Documents whose commands a reader types as they stand.
const DOCUMENTS: &[&str] =
    &["README.md", "docs/start", "docs/guides", "docs/concepts", "docs/coming-from"];

#[test]
fn every_command_shown_is_accepted() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (mut tried, mut refused) = (0, Vec::new());
    for page in DOCUMENTS.iter().flat_map(|name| pages(&root.join(name))) {
        let text = std::fs::read_to_string(&page).unwrap();
        for (line, command) in shown(&text) {
            for words in kymo_calls(&command) {
                tried += 1;
                let mut args: Vec<&str> = words.iter().map(String::as_str).collect();
                // Help comes last, so that everything before it has been parsed.
                args.push("--help");
                let outcome = run(env!("CARGO_BIN_EXE_kymo"), &args);
                if outcome.status != 0 {
                    let reason = outcome.stderr.lines().next().unwrap_or_default().to_owned();
                    let page = page.strip_prefix(&root).unwrap().display();
                    refused.push(format!("{page}:{line}: kymo {}: {reason}", words.join(" ")));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(tried > 150, "only {tried} commands found");
}

fn pages(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = std::fs::read_dir(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut pages: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.sort();
    pages
}

/// Command lines of a document: in shell blocks, after prompts of console blocks, and in code
/// spans that begin with `kymo`.
fn shown(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut block: Option<&str> = None;
    let mut continued = false;
    for (number, line) in text.lines().enumerate() {
        if let Some(info) = line.strip_prefix("```") {
            block = block.is_none().then_some(info);
            continued = false;
            continue;
        }
        let command = match block {
            Some("console") if continued => Some(line.strip_prefix("> ").unwrap_or(line)),
            Some("console") => line.strip_prefix("$ ").or_else(|| line.strip_prefix("> ")),
            Some("sh") => Some(line),
            Some(_) => None,
            None => {
                let spans = line.split('`').skip(1).step_by(2);
                let commands = spans.filter(|span| span.starts_with("kymo "));
                found.extend(commands.map(|span| (number + 1, span.to_owned())));
                None
            }
        };
        let Some(command) = command else { continue };
        match found.last_mut().filter(|_| continued) {
            Some((_, before)) => {
                before.push(' ');
                before.push_str(command);
            }
            None => found.push((number + 1, command.to_owned())),
        }
        // A quote or a backslash at the end continues in the next line.
        let whole = found.last().map_or("", |(_, command)| command.as_str());
        continued = whole.ends_with('\\') || whole.matches('\'').count() % 2 == 1;
    }
    found
}

/// Arguments of each call of kymo in a command line, up to the command that kymo starts.
fn kymo_calls(line: &str) -> Vec<Vec<String>> {
    let mut calls = Vec::new();
    for words in simple_commands(line) {
        let Some((program, args)) = words.split_first() else { continue };
        if program == "kymo" && !args.iter().any(|word| word == "COMMAND") {
            let own = args.iter().take_while(|word| *word != "--");
            calls.push(own.cloned().collect());
        }
    }
    calls
}

/// A line as a shell divides it into commands and words, as far as documents need it.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut chars = line.chars().peekable();
    let mut redirected = false;
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let word = word.get_or_insert_default();
                word.extend(chars.by_ref().take_while(|next| *next != c));
            }
            // The output of another command stands for a number.
            '$' if chars.peek() == Some(&'(') => {
                chars.by_ref().take_while(|next| *next != ')').for_each(drop);
                word.get_or_insert_default().push('1');
            }
            '\\' => {}
            '#' if word.is_none() => break,
            c if c.is_whitespace() || "|;&><()".contains(c) => {
                if let Some(word) = word.take()
                    && !std::mem::take(&mut redirected)
                {
                    words.push(word);
                }
                if "|;&()".contains(c) && !words.is_empty() {
                    commands.push(std::mem::take(&mut words));
                }
                if matches!(c, '>' | '<') {
                    // `2>` names a stream, not an argument.
                    words.pop_if(|last| last == "2");
                    redirected = true;
                }
            }
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word.filter(|_| !redirected));
    commands.push(words);
    commands
}

#[test]
fn lines_are_divided_as_a_shell_does() {
    let calls =
        kymo_calls("kymo record -q -o a -- sh -c 'x | y' > /dev/null; kymo script -i a | head");
    assert_eq!(calls, [vec!["record", "-q", "-o", "a"], vec!["script", "-i", "a"]]);
    let calls = kymo_calls("kymo profile -p $(head -1 pid) --timeout 5 2>/dev/null # comment");
    assert_eq!(calls, [vec!["profile", "-p", "1", "--timeout", "5"]]);
}
