//! `kymo test`: workloads to be recorded, and a look at what recording needs.

mod self_tests;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_kernel::output_file::{self, SHARED};
use kymo_kernel::workloads::WORKLOADS;

use self_tests::{Outcome, SELF_TESTS, SelfTest};

/// Flags of `kymo test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Tests by number or part of a name; `list` to list them; arguments of a workload
    #[arg(value_name = "TEST")]
    words: Vec<String>,
    /// Run a workload: noploop [SECONDS], thloop [SECONDS [THREADS]], …
    #[arg(short, long, value_name = "NAME")]
    workload: Option<String>,
    /// List the workloads
    #[arg(long)]
    list_workloads: bool,
    /// Print details of each test
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
    /// Write the results to this file as JUnit XML [default: test.xml]
    #[arg(
        short,
        long,
        value_name = "FILE",
        num_args = 0..=1,
        default_missing_value = "test.xml",
        require_equals = false
    )]
    junit: Option<PathBuf>,
    /// No effect: tests run in this process
    #[arg(short = 'F', long)]
    dont_fork: bool,
    /// No effect: tests run one after another
    #[arg(short = 'S', long)]
    sequential: bool,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut out = crate::streams::stdout();
    if args.list_workloads {
        let names: String = WORKLOADS.iter().map(|w| format!("{}\n", w.name)).collect();
        out.write_all(names.as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = &args.workload {
        let Some(workload) = WORKLOADS.iter().find(|workload| workload.name == name) else {
            bail!("no workload '{name}'; `kymo test --list-workloads` lists them");
        };
        workload.run(&args.words).with_context(|| format!("workload {name}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if let [word] = &args.words[..]
        && word == "list"
    {
        for (i, test) in SELF_TESTS.iter().enumerate() {
            writeln!(out, "{:3}: {}", i + 1, test.name)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = SELF_TESTS.iter().enumerate().filter(|(i, test)| {
        args.words.is_empty() || args.words.iter().any(|word| test.is_meant(*i, word))
    });
    let mut results = Vec::new();
    for (i, test) in chosen {
        let outcome = (test.run)();
        writeln!(out, "{:3}: {:<60}: {}", i + 1, test.name, outcome.word())?;
        if args.verbose > 0 {
            out.write_all(outcome.details().as_bytes())?;
        }
        results.push((test, outcome));
    }
    if let Some(path) = &args.junit {
        let xml = junit(&results);
        output_file::open(path, SHARED)
            .and_then(|mut file| file.write_all(xml.as_bytes()))
            .with_context(|| path.display().to_string())?;
    }
    let failed = results.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
    Ok(ExitCode::from(u8::from(failed)))
}

/// Results in the XML that JUnit introduced.
fn junit(results: &[(&SelfTest, Outcome)]) -> String {
    let count = |is: fn(&Outcome) -> bool| results.iter().filter(|(_, o)| is(o)).count();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<testsuites>\n  <testsuite name=\"kymo\" \
         tests=\"{}\" failures=\"{}\" skipped=\"{}\">\n",
        results.len(),
        count(|o| matches!(o, Outcome::Failed(_))),
        count(|o| matches!(o, Outcome::Skipped(_)))
    );
    for (test, outcome) in results {
        let name = escape(test.name);
        let within = match outcome {
            Outcome::Passed(_) => String::new(),
            Outcome::Failed(why) => format!("<failure message=\"{}\"/>", escape(why)),
            Outcome::Skipped(why) => format!("<skipped message=\"{}\"/>", escape(why)),
        };
        xml.push_str(&format!(
            "    <testcase classname=\"kymo\" name=\"{name}\">{within}</testcase>\n"
        ));
    }
    xml.push_str("  </testsuite>\n</testsuites>\n");
    xml
}

/// Text between quotes or tags of XML, which has no place for control characters.
fn escape(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_reasons_cannot_end_an_element() {
        let test = &SELF_TESTS[0];
        let xml = junit(&[(test, Outcome::Failed("<a & \"b\">\u{1b}[0m".to_owned()))]);
        assert!(xml.contains("tests=\"1\" failures=\"1\" skipped=\"0\""), "{xml}");
        assert!(xml.contains("<failure message=\"&lt;a &amp; &quot;b&quot;&gt; [0m\"/>"), "{xml}");
    }
}
