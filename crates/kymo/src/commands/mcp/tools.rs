//! The tools: what they take, and the command that answers each.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use kymo_sql::Recordings;
use serde_json::{Map, Value, json};

use super::{answer, child, listing};

/// Longest time of an answer.
const LONGEST_ANSWER: Duration = Duration::from_secs(120);
/// Limit on time of a query, in seconds: it says which limit it was.
const LONGEST_QUERY: &str = "100";
/// Limit on memory of a query, in MiB.
const QUERY_MEMORY: &str = "1024";
/// Longest recording, in seconds, and what is usual.
const LONGEST_RECORDING: u64 = 600;
const USUAL_RECORDING: u64 = 10;

pub(super) struct Tools {
    pub(super) directory: PathBuf,
    pub(super) allows_recording: bool,
}

/// Arguments of a call.
struct Arguments<'a>(&'a Map<String, Value>);

impl<'a> Arguments<'a> {
    /// Arguments of which only these are known.
    fn new(value: &'a Value, known: &[&str]) -> anyhow::Result<Arguments<'a>> {
        let Value::Object(members) = value else { bail!("arguments are an object") };
        if let Some(name) = members.keys().find(|name| !known.contains(&name.as_str())) {
            bail!("unknown argument {name:?}; arguments: {}", known.join(", "));
        }
        Ok(Arguments(members))
    }

    fn text(&self, name: &str) -> anyhow::Result<Option<&'a str>> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if text.contains('\0') => bail!("{name}: a NUL character"),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => bail!("{name}: not a string"),
        }
    }

    fn needed(&self, name: &str) -> anyhow::Result<&'a str> {
        self.text(name)?.with_context(|| format!("{name} is missing"))
    }

    /// One text or several.
    fn texts(&self, name: &str) -> anyhow::Result<Vec<&'a str>> {
        let list = match self.0.get(name) {
            Some(Value::Array(list)) => list.as_slice(),
            Some(text @ Value::String(_)) => std::slice::from_ref(text),
            _ => bail!("{name}: not a list of strings"),
        };
        let texts = list.iter().map(|text| match text {
            Value::String(text) if !text.contains('\0') => Ok(text.as_str()),
            _ => bail!("{name}: not a list of strings"),
        });
        let texts = texts.collect::<anyhow::Result<Vec<&str>>>()?;
        if texts.is_empty() {
            bail!("{name} is empty");
        }
        Ok(texts)
    }

    fn number(&self, name: &str) -> anyhow::Result<Option<u64>> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_u64().map(Some).with_context(|| format!("{name}: not a count")),
        }
    }

    fn offset(&self) -> anyhow::Result<usize> {
        Ok(usize::try_from(self.number("offset")?.unwrap_or(0)).unwrap_or(usize::MAX))
    }
}

/// The name of a file as an argument of a command: never an option, nor standard input.
fn file(name: &str) -> OsString {
    if name.starts_with('-') { format!("./{name}").into() } else { name.into() }
}

/// Schema of an argument.
fn of_type(of: &str, description: &str) -> Value {
    json!({"type": of, "description": description})
}

impl Tools {
    /// The tools with their arguments.
    pub(super) fn list(&self) -> Value {
        let recording = || of_type("string", "file or directory of the recording");
        let several = |what: &str| json!({"type": "array", "items": {"type": "string"}, "minItems": 1, "description": what});
        let offset = || of_type("integer", "number of rows to skip: `next` of the previous answer");
        let mut all = vec![
            tool(
                "recordings",
                "Recordings in a directory, newest first: name, format, bytes, time of the last \
                 change. Sub-directories are not searched.",
                json!({
                    "directory": of_type("string", "directory [default: that of the server]"),
                    "offset": offset(),
                }),
                &[],
            ),
            tool(
                "tables",
                "Tables of SQL; of one table its columns with type and meaning.",
                json!({"table": of_type("string", "name of a table")}),
                &[],
            ),
            tool(
                "query",
                "SQL (SQLite) on recordings. Times are nanoseconds. Count and group in the query: \
                 a page has at most 400 rows.",
                json!({
                    "recordings": several("files or directories of the recordings"),
                    "sql": of_type("string", "the query"), "offset": offset(),
                }),
                &["recordings", "sql"],
            ),
            tool(
                "report",
                "Functions in which the samples of a recording were taken, by event, the largest \
                 first.",
                json!({
                    "recording": recording(),
                    "sort": of_type("string", "keys to group by, as `comm,dso,symbol`"),
                    "offset": offset(),
                }),
                &["recording"],
            ),
            tool(
                "why",
                "The critical path: what a command, a process or the slowest requests waited for, \
                 through the tasks that they waited for. Needs a recording with scheduler events.",
                json!({
                    "recording": recording(),
                    "pid": of_type("integer", "process, if not the command that was recorded"),
                    "span": of_type("string", "requests between two events: `A -> B by FIELD`"),
                    "offset": offset(),
                }),
                &["recording"],
            ),
            tool(
                "diff",
                "What changed between recordings of two versions of a program, with confidence \
                 intervals. Several recordings a side, made alternately, make it certain.",
                json!({
                    "before": several("recordings of the old version"),
                    "after": several("recordings of the new version"), "offset": offset(),
                }),
                &["before", "after"],
            ),
        ];
        if self.allows_recording {
            let mut record = tool(
                "record",
                "Run a command and record where it spends its time, on and off the CPU, for \
                 `report`, `why` and `query`.",
                json!({
                    "command": several("the program and its arguments; no shell"),
                    "output": of_type("string", "file of the recording, which must not exist"),
                    "seconds": of_type("integer", "stop recording after this time [default: 10]"),
                }),
                &["command", "output"],
            );
            record["annotations"] = json!({"readOnlyHint": false, "destructiveHint": true});
            all.push(record);
        }
        Value::Array(all)
    }

    /// Calls a tool; none if there is no such tool.
    pub(super) fn call(&self, name: &str, arguments: &Value) -> Option<anyhow::Result<String>> {
        Some(match name {
            "recordings" => self.recordings(arguments),
            "tables" => tables(arguments),
            "query" => self.query(arguments),
            "report" => self.report(arguments),
            "why" => self.why(arguments),
            "diff" => self.diff(arguments),
            "record" if self.allows_recording => self.record(arguments),
            _ => return None,
        })
    }

    fn recordings(&self, arguments: &Value) -> anyhow::Result<String> {
        let arguments = Arguments::new(arguments, &["directory", "offset"])?;
        let directory = match arguments.text("directory")? {
            Some(name) => self.directory.join(name),
            None => self.directory.clone(),
        };
        let rows = listing::recordings(&directory)?;
        Ok(answer::of_rows(&rows, &[], arguments.offset()?))
    }

    fn run(&self, args: Vec<OsString>, input: &str) -> anyhow::Result<child::Said> {
        child::run(&self.directory, &args, input, LONGEST_ANSWER)?.checked()
    }

    /// Runs a command whose answer is one JSON object.
    fn object(&self, args: Vec<OsString>, offset: usize) -> anyhow::Result<String> {
        let said = self.run(args, "")?;
        let value: Value = serde_json::from_slice(&said.output).context("the answer")?;
        Ok(answer::of_object(&value, &with_errors(said.ledger, said.errors), offset))
    }

    fn query(&self, arguments: &Value) -> anyhow::Result<String> {
        let arguments = Arguments::new(arguments, &["recordings", "sql", "offset"])?;
        let (names, sql) = (arguments.texts("recordings")?, arguments.needed("sql")?);
        let options = ["sql", "--json", "--time-limit", LONGEST_QUERY];
        let options = options.iter().chain(&["--memory-limit", QUERY_MEMORY, "-f", "-", "--"]);
        let mut args: Vec<OsString> = options.map(OsString::from).collect();
        args.extend(names.into_iter().map(file));
        let said = self.run(args, sql)?;
        let lines = said.output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let rows = lines.map(serde_json::from_slice).collect::<Result<Vec<Value>, _>>();
        let rows = rows.context("the answer")?;
        if said.status != Some(0) && rows.is_empty() {
            bail!("{}", said.errors.join("; "));
        }
        Ok(answer::of_rows(&rows, &with_errors(said.ledger, said.errors), arguments.offset()?))
    }

    fn report(&self, arguments: &Value) -> anyhow::Result<String> {
        let arguments = Arguments::new(arguments, &["recording", "sort", "offset"])?;
        let mut args: Vec<OsString> = vec!["report".into(), "--json".into(), "-i".into()];
        args.push(file(arguments.needed("recording")?));
        if let Some(keys) = arguments.text("sort")? {
            args.push(format!("--sort={keys}").into());
        }
        let said = self.run(args, "")?;
        let value: Value = serde_json::from_slice(&said.output).context("the answer")?;
        // Entries of each event are a table of its name.
        let mut whole = value.as_object().cloned().unwrap_or_default();
        let events = whole.remove("events");
        for event in events.as_ref().and_then(Value::as_array).into_iter().flatten() {
            let mut event = event.as_object().cloned().unwrap_or_default();
            let name = ["event", "name"].iter().find_map(|name| event.get(*name)?.as_str());
            let name = name.unwrap_or("samples").to_owned();
            let _ = whole.insert(name.clone(), event.remove("entries").unwrap_or_default());
            let _ = whole.insert(format!("{name} (event)"), Value::Object(event));
        }
        let notes = with_errors(said.ledger, said.errors);
        Ok(answer::of_object(&Value::Object(whole), &notes, arguments.offset()?))
    }

    fn why(&self, arguments: &Value) -> anyhow::Result<String> {
        let arguments = Arguments::new(arguments, &["recording", "pid", "span", "offset"])?;
        let mut args: Vec<OsString> = vec!["why".into(), "--json".into(), "-i".into()];
        args.push(file(arguments.needed("recording")?));
        if let Some(pid) = arguments.number("pid")? {
            args.push(format!("--pid={pid}").into());
        }
        if let Some(span) = arguments.text("span")? {
            args.push(format!("--span={span}").into());
        }
        self.object(args, arguments.offset()?)
    }

    fn diff(&self, arguments: &Value) -> anyhow::Result<String> {
        let arguments = Arguments::new(arguments, &["before", "after", "offset"])?;
        let (before, after) = (arguments.texts("before")?, arguments.texts("after")?);
        let mut args: Vec<OsString> = vec!["diff".into(), "--json".into()];
        if let ([before], [after]) = (&before[..], &after[..]) {
            args.extend([file(before), file(after)]);
        } else {
            for (option, names) in [("--before", before), ("--after", after)] {
                args.push(option.into());
                args.extend(names.into_iter().map(file));
            }
        }
        self.object(args, arguments.offset()?)
    }

    fn record(&self, arguments: &Value) -> anyhow::Result<String> {
        let arguments = Arguments::new(arguments, &["command", "output", "seconds"])?;
        let output = arguments.needed("output")?;
        let seconds = arguments.number("seconds")?.unwrap_or(USUAL_RECORDING);
        if seconds == 0 || seconds > LONGEST_RECORDING {
            bail!("seconds: between 1 and {LONGEST_RECORDING}");
        }
        if self.directory.join(output).symlink_metadata().is_ok() {
            bail!("{output}: the file exists; choose another name");
        }
        let mut args: Vec<OsString> = vec!["profile".into(), "-o".into(), file(output)];
        args.push(format!("--timeout={}", seconds * 1000).into());
        args.push("--".into());
        args.extend(arguments.texts("command")?.into_iter().map(OsString::from));
        let most = Duration::from_secs(seconds) + LONGEST_ANSWER;
        let said = child::run(&self.directory, &args, "", most)?;
        if !self.directory.join(output).exists() {
            bail!("nothing was recorded: {}", said.errors.join("; "));
        }
        let text = String::from_utf8_lossy(&said.output);
        Ok(json!({
            "recording": answer::cut_text(output, 1000), "status": said.status,
            "shown": text.lines().take(60).map(|l| answer::cut_text(l, 150)).collect::<Vec<_>>(),
        })
        .to_string())
    }
}

/// Other lines that a command said, behind its ledger.
fn with_errors(mut ledger: Vec<Value>, errors: Vec<String>) -> Vec<Value> {
    ledger.extend(errors.into_iter().map(|line| json!({"doubt": true, "fact": line})));
    ledger
}

fn tool(name: &str, description: &str, properties: Value, required: &[&str]) -> Value {
    json!({
        "name": name, "description": description,
        "inputSchema": {
            "type": "object", "properties": properties, "required": required,
            "additionalProperties": false,
        },
        "annotations": {"readOnlyHint": true, "openWorldHint": false},
    })
}

fn tables(arguments: &Value) -> anyhow::Result<String> {
    let arguments = Arguments::new(arguments, &["table"])?;
    let all = Recordings::reference();
    let rows: Vec<Value> = match arguments.text("table")? {
        None => {
            let row =
                |t: &kymo_sql::TableReference| json!({"table": t.name, "of": t.documentation});
            let views = kymo_sql::VIEWS.iter();
            let views = views.map(|view| json!({"table": view.name, "of": view.documentation}));
            all.iter().map(row).chain(views).collect()
        }
        Some(name) => {
            let table = all.iter().find(|table| table.name == name);
            let table = table.with_context(|| format!("no table {name:?}; call without one"))?;
            let columns = table.columns.iter();
            columns
                .map(|(name, of, documentation)| {
                    json!({"column": name, "type": of.name(), "of": documentation})
                })
                .collect()
        }
    };
    Ok(answer::of_rows(&rows, &[], arguments.offset()?))
}
