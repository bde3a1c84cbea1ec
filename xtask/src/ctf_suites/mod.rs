//! `cargo xtask ctf-suites DIR…`: the CTF traces below directories, such as the samples of
//! babeltrace's and Trace Compass's test suites, read by babeltrace2 and by kymo, and compared
//! event by event. Nothing of those suites is kept here.

mod pretty_text;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use kymo_testkit::peer;
use serde_json::Value;

use crate::cargo;
use pretty_text::{PrettyEvent, PrettyValue};

pub(crate) const USAGE: &str = "\
\x20 ctf-suites DIR… [--program KYMO] [--all]
                      every CTF trace below DIR read by babeltrace2 and by kymo, event by event;
                      of many traces that are the same only their number is shown, unless --all
";

/// An event in kymo's output.
#[derive(Debug)]
struct KymoEvent {
    time: String,
    name: String,
    fields: Value,
}

/// Events of a trace as a program read them, and the reason why there are no more.
struct Reading<T> {
    events: Vec<T>,
    error: Option<String>,
}

/// Comparison of the two readings of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Verdict {
    /// Equal events, to the end.
    Same,
    /// Equal events up to the point where both of them, or kymo alone, give this reason.
    Refused(String),
    /// babeltrace2 gives this reason, kymo reads it, and the events that babeltrace2 printed before
    /// are those of kymo.
    OnlyKymo(String),
    Differs(String),
}

pub(crate) fn main(args: &[&str]) -> anyhow::Result<()> {
    let (mut directories, mut program, mut all) = (Vec::new(), None, false);
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match *arg {
            "--program" => {
                let value = args.next().with_context(|| format!("no KYMO\n\n{USAGE}"))?;
                program = Some(PathBuf::from(value));
            }
            "--all" => all = true,
            other if other.starts_with('-') => {
                bail!("ctf-suites has no option {other}\n\n{USAGE}")
            }
            other => directories.push(Path::new(other)),
        }
    }
    if directories.is_empty() {
        bail!("no DIR\n\n{USAGE}");
    }
    let kymo = program.map_or_else(cargo::build_release, Ok)?;
    let kymo = kymo.canonicalize().with_context(|| kymo.display().to_string())?;
    println!("{}", peer("babeltrace2").version());
    let (mut count, mut different) = ([0u64; 4], 0);
    println!("{:>12} {:>8}  {:<40} trace", "babeltrace2", "kymo", "result");
    for directory in directories {
        let mut traces = Vec::new();
        find_traces(directory, &mut traces)?;
        traces.sort();
        for trace in traces {
            let theirs = babeltrace(&trace);
            let ours = read_by_kymo(&kymo, &trace)?;
            let verdict = compare(&theirs, &ours);
            let (kind, text) = match &verdict {
                Verdict::Same => (0, "same".to_owned()),
                Verdict::Refused(why) => (1, format!("refused: {why}")),
                Verdict::OnlyKymo(why) => (2, format!("read, which babeltrace2 is not: {why}")),
                Verdict::Differs(how) => (3, format!("DIFFERS: {how}")),
            };
            count[kind] += 1;
            different += u64::from(kind == 3);
            if all || kind != 0 {
                let shown = trace.strip_prefix(directory).unwrap_or(&trace).display();
                let (bt, own) = (theirs.events.len(), ours.events.len());
                println!("{bt:>12} {own:>8}  {text:<40} {shown}");
            }
        }
    }
    let [same, refused, only_kymo, differ] = count;
    println!(
        "{} traces: {same} the same, {refused} refused with a reason, {only_kymo} read that \
         babeltrace2 refuses, {differ} differ",
        count.iter().sum::<u64>()
    );
    if different > 0 {
        bail!("{different} differ");
    }
    Ok(())
}

/// The directories that hold a file named `metadata` that can be one of CTF.
fn find_traces(directory: &Path, traces: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| directory.display().to_string())?;
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find_traces(&entry.path(), traces)?;
        } else if entry.file_name() == "metadata" {
            traces.push(directory.to_owned());
        }
    }
    Ok(())
}

fn babeltrace(trace: &Path) -> Reading<PrettyEvent> {
    let mut command = peer("babeltrace2").command();
    command.args(["--clock-seconds", "--no-delta", "--fields=emf"]).arg(trace);
    let output = match command.env("LC_ALL", "C").output() {
        Ok(output) => output,
        Err(e) => return Reading { events: Vec::new(), error: Some(e.to_string()) },
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let mut events = Vec::new();
    for line in text.lines() {
        match PrettyEvent::parse(line) {
            Some(event) => events.push(event),
            None => return Reading { events, error: Some(format!("its line {line:?}")) },
        }
    }
    let error = (!output.status.success()).then(|| {
        let said = String::from_utf8_lossy(&output.stderr);
        // The first one is the cause, those after it pass it on.
        let cause = said.lines().find_map(|line| line.split_once(" E "));
        // Behind the place in its source.
        let text = cause.and_then(|(_, line)| line.split_once('@')?.1.split_once(' '));
        text.map_or_else(|| output.status.to_string(), |(_, text)| text.to_owned())
    });
    Reading { events, error }
}

fn read_by_kymo(kymo: &Path, trace: &Path) -> anyhow::Result<Reading<KymoEvent>> {
    let mut command = Command::new(kymo);
    command.args(["script", "--json", "--real-time"]).arg(trace);
    let output = command.output().with_context(|| kymo.display().to_string())?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut events = Vec::new();
    for line in text.lines() {
        let object: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        // Lost events are reported between them.
        let Some(name) = object["event"].as_str().map(str::to_owned) else { continue };
        // As it is written: a number of 64 bits with a fraction holds less.
        let time = line.split_once("\"time\":").map_or("", |(_, rest)| rest);
        let time = time.split(',').next().unwrap_or_default().to_owned();
        events.push(KymoEvent { time, name, fields: object["fields"].clone() });
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let error = (!output.status.success()).then(|| {
        let (objects, lines): (Vec<&str>, Vec<&str>) =
            said.lines().partition(|line| line.starts_with('{'));
        let damage = objects.iter().find_map(|line| damage_in(line));
        let why = damage.as_deref().or(lines.last().copied()).unwrap_or_default();
        let why = why.strip_prefix("kymo: ").unwrap_or(why);
        why.strip_prefix(&format!("{}: ", trace.display())).unwrap_or(why).to_owned()
    });
    Ok(Reading { events, error })
}

/// The first damage that a ledger reports.
fn damage_in(ledger: &str) -> Option<String> {
    let object: Value = serde_json::from_str(ledger).ok()?;
    let note = object["ledger"].as_array()?.iter().find(|note| note["kind"] == "damaged")?;
    note["fact"].as_str().map(str::to_owned)
}

fn compare(theirs: &Reading<PrettyEvent>, ours: &Reading<KymoEvent>) -> Verdict {
    if ours.error.as_deref().is_some_and(str::is_empty) {
        return Verdict::Differs("kymo fails without a reason".to_owned());
    }
    // Where one stops, only its events up to then are compared.
    let most = match (&theirs.error, &ours.error) {
        (None, None) if theirs.events.len() != ours.events.len() => {
            return Verdict::Differs("the number of events".to_owned());
        }
        _ => theirs.events.len().min(ours.events.len()),
    };
    // Which of two streams is read on before a damage is found is not defined.
    if let (Some(_), Some(why)) = (&theirs.error, &ours.error) {
        return Verdict::Refused(why.clone());
    }
    if let Some(event) = first_difference(&theirs.events[..most], &ours.events[..most]) {
        return Verdict::Differs(event);
    }
    match (&theirs.error, &ours.error) {
        (_, Some(why)) => Verdict::Refused(why.clone()),
        (Some(why), None) => Verdict::OnlyKymo(why.clone()),
        (None, None) => Verdict::Same,
    }
}

/// First difference between the events. Those of one time may come in any order.
fn first_difference(theirs: &[PrettyEvent], ours: &[KymoEvent]) -> Option<String> {
    let mut at = 0;
    while let Some(first) = theirs.get(at) {
        let same_time = theirs[at..].iter().take_while(|event| event.time == first.time).count();
        let mut left: Vec<&KymoEvent> = ours[at..at + same_time].iter().collect();
        for event in &theirs[at..at + same_time] {
            match left.iter().position(|own| is_same(event, own)) {
                Some(found) => _ = left.remove(found),
                None => {
                    let own = left.first().map(|own| format!("{own:?}")).unwrap_or_default();
                    return Some(format!("{event:?} is {own}"));
                }
            }
        }
        at += same_time;
    }
    None
}

fn is_same(theirs: &PrettyEvent, ours: &KymoEvent) -> bool {
    let is_of_that_time = theirs.time.as_ref().is_none_or(|time| is_same_time(time, &ours.time));
    is_of_that_time && theirs.name == ours.name && is_same_value(&theirs.payload, &ours.fields)
}

fn is_same_value(theirs: &PrettyValue, ours: &Value) -> bool {
    match (theirs, ours) {
        (PrettyValue::Structure(members), Value::Null) => members.is_empty(),
        (PrettyValue::Structure(members), Value::Object(fields)) => {
            members.len() == fields.len()
                && members.iter().all(|(name, value)| {
                    fields.get(name).is_some_and(|own| is_same_value(value, own))
                })
        }
        // Nothing in braces: an option without content, or a structure without members.
        (PrettyValue::Option(None), own) => {
            own.is_null() || own.as_object().is_some_and(serde_json::Map::is_empty)
        }
        // The option of a variant that is there has its name.
        (PrettyValue::Option(Some(value)), Value::Object(fields)) if fields.len() == 1 => {
            fields.values().all(|own| is_same_value(value, own))
        }
        (PrettyValue::Option(Some(value)), own) => is_same_value(value, own),
        (PrettyValue::Array(elements), Value::Array(own)) => {
            elements.len() == own.len()
                && elements.iter().zip(own).all(|(element, own)| is_same_value(element, own))
        }
        (PrettyValue::Integer(number), Value::Object(label)) => {
            label.get("value").is_some_and(|own| is_same_integer(*number, own))
        }
        (PrettyValue::Integer(number), own) => is_same_integer(*number, own),
        (PrettyValue::Real(number), own) => {
            // Six digits are written.
            own.as_f64().is_some_and(|own| (own - number).abs() <= number.abs() * 1e-5)
                || own.is_null() && !number.is_finite()
        }
        (PrettyValue::Bool(value), own) => own.as_bool() == Some(*value),
        (PrettyValue::Text(text), own) => own.as_str() == Some(text),
        _ => false,
    }
}

/// Clocks whose frequency is no part of a second are rounded to nanoseconds.
fn is_same_time(theirs: &str, ours: &str) -> bool {
    let nanos = |text: &str| text.replacen('.', "", 1).parse::<i128>().ok();
    nanos(theirs).zip(nanos(ours)).is_some_and(|(a, b)| (a - b).abs() <= 1)
}

/// A number in hexadecimal digits has no sign, a real one may have no fraction.
fn is_same_integer(theirs: i128, ours: &Value) -> bool {
    let own = ours.as_i64().map(i128::from).or(ours.as_u64().map(i128::from));
    if let Some(real) = ours.as_f64().filter(|_| own.is_none()) {
        return (real - theirs as f64).abs() <= real.abs() * 1e-5;
    }
    let as_bool = ours.as_bool().map(i128::from);
    own.or(as_bool).is_some_and(|own| {
        let wrapped = [8, 16, 32, 64].map(|bits| own + (1i128 << bits));
        own == theirs || own < 0 && wrapped.contains(&theirs)
    })
}
