//! Manual pages of section 7, also rendered as pages of the book: an overview, the language of
//! `run`, and the warnings and notes. The last two are generated from the tables that define them.

use std::fmt::Write as _;

use kymo_bpf::LANGUAGE_REFERENCE;
use kymo_model::{NoteKind, Weight};

/// Page on a topic.
pub(super) struct TopicPage {
    /// Name, as `man 7 NAME` has it.
    pub(super) name: &'static str,
    summary: &'static str,
    /// Heading of the page in the book.
    title: &'static str,
    text: String,
    sections: Vec<(&'static str, Vec<(String, String)>)>,
}

/// All pages.
pub(super) fn all() -> [TopicPage; 3] {
    [overview(), language(), warnings()]
}

fn overview() -> TopicPage {
    let table = |entries: &[(&str, &str)]| -> Vec<(String, String)> {
        entries.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect()
    };
    TopicPage {
        name: "kymo",
        summary: "count, profile and trace a running Linux system",
        title: "Overview",
        text:
            "kymo does the work of perf, trace-cmd, LTTng, bpftrace and strace in one program. It \
             reads and writes their file formats. Each result ends with warnings about anything \
             that could make it wrong. Each command has a page in section 1."
                .to_owned(),
        sections: vec![
            ("Commands by question", questions()),
            (
                "Recordings",
                table(&[
                    ("perf.data", "Samples and events, written by `kymo record` or perf."),
                    (
                        "trace.dat",
                        "Events from the ftrace ring buffer, written by `kymo trace -o` or \
                         trace-cmd.",
                    ),
                    ("CTF directory", "User-space events, and traces of LTTng."),
                    (
                        "FILE.bundle",
                        "Symbols for reading a recording on other machines (`kymo \
                      bundle`).",
                    ),
                ]),
            ),
            (
                "Selection",
                table(&[
                    ("--time START,END", "Time range, in seconds or percent."),
                    (
                        "--pid, --tid, --comm, --cpu, --cgroup",
                        "Processes, threads, task names, \
                      CPUs and cgroups.",
                    ),
                    ("-e EVENT", "Events: SYSTEM:NAME, with wildcards `*` and `?`."),
                    (
                        "--filter 'FIELD OPERATOR VALUE'",
                        "Events by their fields, in the kernel's syntax: == != < <= > >= & ~ \
                         (pattern), && || ! and parentheses.",
                    ),
                ]),
            ),
            (
                "Exit status",
                table(&[
                    ("0", "Success."),
                    ("1", "Failure, or a damaged recording whose readable part was shown."),
                    ("2", "Invalid command line."),
                    ("3", "The result has warnings, with `--strict`."),
                ]),
            ),
            (
                "Environment",
                table(&[
                    ("NO_COLOR", "No colors."),
                    ("KYMO_PAGER, PAGER", "Pager; empty or `cat` for none."),
                    ("KYMO_CACHE", "Cache directory, or `off`."),
                    ("DEBUGINFOD_URLS", "Servers for debugging information."),
                ]),
            ),
            (
                "Permissions",
                table(&[
                    (
                        "kernel.perf_event_paranoid",
                        "2: user space of own programs; 1: also the kernel; 0: also all CPUs; -1: \
                         also tracepoints.",
                    ),
                    ("kernel.kptr_restrict", "0: kernel function names without root."),
                    (
                        "CAP_PERFMON, CAP_BPF",
                        "Recording (CAP_PERFMON) and BPF programs (both) \
                      without root.",
                    ),
                ]),
            ),
        ],
    }
}

/// The table of `kymo` without arguments.
fn questions() -> Vec<(String, String)> {
    let lines = crate::QUESTIONS.lines();
    let parts = lines.filter_map(|line| line.split_once("kymo "));
    parts.map(|(question, rest)| (format!("kymo {rest}"), question.trim_end().to_owned())).collect()
}

fn language() -> TopicPage {
    let entries = |list: &[(&str, &str)]| {
        list.iter().map(|(form, text)| ((*form).to_owned(), (*text).to_owned())).collect()
    };
    TopicPage {
        name: "kymo-run",
        summary: "language of kymo run",
        title: "Language of run",
        text: "`kymo run` runs programs in bpftrace's language. A program consists of probes with \
             actions. `kymo run -e PROGRAM` and `kymo run FILE` run it in the kernel, or in user \
             space if the user cannot load BPF programs; `kymo run -l PATTERN` lists probes."
            .to_owned(),
        sections: LANGUAGE_REFERENCE.iter().map(|s| (s.heading, entries(s.entries))).collect(),
    }
}

fn warnings() -> TopicPage {
    let of = |weight: Weight| -> Vec<(String, String)> {
        let kinds = NoteKind::ALL.iter().filter(|kind| kind.weights().contains(&weight));
        kinds
            .map(|kind| (kind.code().to_owned(), format!("{} {}", kind.meaning(), kind.remedy())))
            .collect()
    };
    TopicPage {
        name: "kymo-warnings",
        summary: "warnings and notes at the end of results",
        title: "Warnings and notes by code",
        text: "Lines under `Trust:` are warnings: the result may be wrong or incomplete, and \
               `--strict` makes the exit status 3. Lines under `Note:` state how the result was \
               obtained. `--ledger FILE` writes both as JSON."
            .to_owned(),
        sections: vec![("Warnings", of(Weight::Doubt)), ("Notes", of(Weight::Choice))],
    }
}

impl TopicPage {
    /// The page for man(1).
    pub(super) fn roff(&self) -> String {
        let mut page = format!(
            ".TH {} 7 \"\" \"kymo {}\"\n.SH NAME\n{} \\- {}\n.SH DESCRIPTION\n{}\n",
            self.name,
            env!("CARGO_PKG_VERSION"),
            self.name,
            roff_text(self.summary),
            roff_text(&self.text)
        );
        for (heading, entries) in &self.sections {
            let _ = writeln!(page, ".SH \"{}\"", roff_text(&heading.to_uppercase()));
            for (form, text) in entries {
                let _ = writeln!(page, ".TP\n\\fB{}\\fR\n{}", roff_text(form), roff_text(text));
            }
        }
        page
    }

    /// The page of the book.
    pub(super) fn markdown(&self) -> String {
        let mut page = format!("# {}\n\n{}\n", self.title, self.text);
        for (heading, entries) in &self.sections {
            let _ = write!(page, "\n## {heading}\n\n");
            for (form, text) in entries {
                let _ = writeln!(page, "- `{}`: {}", form.replace('`', ""), escaped(text));
            }
        }
        page
    }
}

/// Markup of Markdown outside code spans is text here.
fn escaped(text: &str) -> String {
    let parts = text.split('`').enumerate().map(|(index, part)| {
        if index % 2 == 1 {
            return format!("`{part}`");
        }
        part.replace('*', "\\*").replace('_', "\\_").replace('<', "\\<")
    });
    parts.collect()
}

/// Text in which roff finds no markup; code spans become bold.
fn roff_text(text: &str) -> String {
    let mut out = String::new();
    for (index, part) in text.split('`').enumerate() {
        let part = part.replace('\\', "\\e").replace('-', "\\-");
        let is_code = index % 2 == 1;
        out.push_str(&if is_code { format!("\\fB{part}\\fR") } else { part });
    }
    // A line that begins so would be a request.
    if out.starts_with(['.', '\'']) { format!("\\&{out}") } else { out }
}

#[cfg(test)]
mod tests {
    use super::{all, roff_text};

    #[test]
    fn pages_have_every_entry_in_both_forms() {
        for page in all() {
            let (roff, markdown) = (page.roff(), page.markdown());
            let entries: usize = page.sections.iter().map(|(_, entries)| entries.len()).sum();
            assert_eq!(roff.matches("\n.TP\n").count(), entries, "{}", page.name);
            assert_eq!(markdown.matches("\n- `").count(), entries, "{}", page.name);
            assert!(entries > 10, "{}: {entries}", page.name);
            assert!(roff.starts_with(&format!(".TH {} 7 ", page.name)));
        }
        assert_eq!(roff_text("'a-\\n' `b`"), "\\&'a\\-\\en' \\fBb\\fR");
    }
}
