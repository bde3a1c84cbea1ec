//! Program for a request of `kymo count`: events, a filter, keys, measured value. Text only; the
//! compiler compiles it like any other program.

use std::fmt::Write;

use crate::lexer::{TokenKind, split_tokens};

/// Measured value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CountMeasure {
    /// The number of events.
    #[default]
    Events,
    /// Histogram by powers of two of a field.
    Histogram(String),
    /// Histogram of a field from, to, in steps.
    LinearHistogram(String, i64, i64, i64),
    /// Sum of a field.
    Sum(String),
    /// Average of a field.
    Average(String),
    /// Smallest value of a field.
    Minimum(String),
    /// Largest value of a field.
    Maximum(String),
    /// Count, average and sum of a field.
    Statistics(String),
    /// Time from one event to another: `A -> B by KEY` or `A -> B by KEY = KEY`.
    Latency(String),
}

impl CountMeasure {
    /// Whether its values only grow: an interval is then the difference of two moments, and
    /// no event is lost between reading a map and emptying it.
    pub fn only_grows(&self) -> bool {
        use CountMeasure as M;
        matches!(
            self,
            M::Events | M::Histogram(_) | M::LinearHistogram(..) | M::Sum(_) | M::Statistics(_)
        )
    }
}

/// Flags of `kymo count`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountRequest {
    /// Events: `sched:sched_switch`, or a probe of the language (`kprobe:vfs_read`).
    pub events: Vec<String>,
    /// Condition on fields, as in a kernel's filter.
    pub filter: Option<String>,
    /// Keys: fields or `comm`, `pid`, `tid`, `cpu`, `uid`, `stack`, `ustack`, `cgroup`, `event`.
    pub by: Vec<String>,
    /// Measured value.
    pub measure: CountMeasure,
    /// Only events of these tasks.
    pub tasks: CountedTasks,
    /// Whether only events of these tasks reach the program: the kernel begins and ends them.
    pub in_own_rings: bool,
    /// Milliseconds between two outputs; without, there is one at the end.
    pub interval_ms: Option<u64>,
    /// The number of entries shown, largest first; 0 is all.
    pub top: u32,
}

/// Tasks whose events are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountedTasks {
    /// Those of all tasks.
    #[default]
    All,
    /// Those of a process.
    Process(u32),
    /// Those of the command that is run (`cpid`), from its execution on, and of its children.
    Command,
}

/// A program, and what is in the maps that it prints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CountProgram {
    /// Text of the program.
    pub text: String,
    /// Names of the keys of its result, as the user gave them.
    pub keys: Vec<String>,
}

/// Function of the compiler's own: the text behind a `char *`, any other value as it is.
pub(crate) const TEXT_OR_VALUE: &str = "__text_or_value";
/// Names that are builtins of the language rather than fields.
const BUILTINS: [&str; 13] = [
    "comm", "pid", "tid", "cpu", "uid", "gid", "cgroup", "nsecs", "kstack", "ustack", "probe",
    "retval", "func",
];
/// Probe types of the language; other names are tracepoints.
const PROBE_TYPES: [&str; 17] = [
    "tracepoint",
    "rawtracepoint",
    "kprobe",
    "kretprobe",
    "fentry",
    "fexit",
    "uprobe",
    "uretprobe",
    "usdt",
    "profile",
    "software",
    "hardware",
    "t",
    "k",
    "kr",
    "u",
    "ur",
];
/// Whether a name is that of a probe type of the language.
pub fn is_probe_type(name: &str) -> bool {
    PROBE_TYPES.contains(&name)
}

/// Software events that are named without `software:`.
const SOFTWARE: [&str; 8] = [
    "cpu-clock",
    "task-clock",
    "page-faults",
    "faults",
    "context-switches",
    "cs",
    "cpu-migrations",
    "minor-faults",
];

/// Slowest latencies that are kept for each CPU.
const WORST: u32 = 5;

/// Writes the program.
///
/// # Errors
/// A flag that cannot be understood, by its text.
pub fn write_count_program(request: &CountRequest) -> Result<CountProgram, String> {
    let condition = request.filter.as_deref().map(filter_text).transpose()?;
    let tasks = |probe: &str| match request.tasks {
        CountedTasks::All => None,
        CountedTasks::Process(pid) => Some(format!("pid == {pid}")),
        CountedTasks::Command if is_of_dying(probe) => Some("@task[tid] == 1".to_owned()),
        CountedTasks::Command => Some("@task[tid]".to_owned()),
    };
    let conditions = |probe: &str| -> Vec<String> {
        tasks(probe).into_iter().chain(condition.clone()).collect()
    };
    let mut out = String::from("config = { print_maps_on_exit = 0 }\n\n");
    let is_followed = request.tasks == CountedTasks::Command;
    if is_followed {
        let begin =
            if request.in_own_rings { "sched:sched_process_exec" } else { "task:task_rename" };
        let _ = write!(out, "tracepoint:{begin}{FOLLOW_COMMAND}");
    }
    let mut keys = request.by.clone();
    let maps: &[&str] = if let CountMeasure::Latency(text) = &request.measure {
        if !request.events.is_empty() {
            return Err("--latency already sets the events: remove -e".into());
        }
        write_latency(&mut out, text, (&conditions, &tasks), &keys)?;
        &LATENCY_MAPS
    } else {
        if request.events.is_empty() {
            return Err("no event given: -e SYSTEM:NAME".into());
        }
        let probes: Vec<String> =
            request.events.iter().map(|e| probe_text(e)).collect::<Result<_, _>>()?;
        if keys.is_empty() && (probes.len() > 1 || probes.iter().any(|p| p.contains('*'))) {
            keys.push("event".into());
        }
        let key = key_text(&keys)?;
        let value = measure_text(&request.measure)?;
        let (dying, others): (Vec<_>, Vec<_>) =
            probes.into_iter().partition(|probe| is_followed && is_of_dying(probe));
        for probes in [dying, others].iter().filter(|probes| !probes.is_empty()) {
            let filter = filter_line(&conditions(&probes[0]));
            let list = probes.join(",\n");
            let _ = writeln!(out, "{list}\n{filter}{{\n  @{key} = {value};\n}}");
        }
        &["@"]
    };
    // After the counted events: a task's exit counts, too.
    if is_followed {
        out.push_str(if request.in_own_rings { END_IN_RINGS } else { END_IN_KERNEL });
    }
    // Percentiles and averages of a latency are read of several maps: all of their entries.
    let is_latency = maps.len() > 1;
    let top = match request.top {
        0 => String::new(),
        _ if is_latency => String::new(),
        _ if request.interval_ms.is_some() && request.measure.only_grows() => String::new(),
        top => format!(", {top}"),
    };
    let show = |out: &mut String, is_last: bool| {
        for map in maps.iter().filter(|map| is_last || **map != "@begin") {
            let _ = writeln!(out, "  print({map}{top});");
        }
        let is_emptied = !is_last && !request.measure.only_grows();
        for map in maps.iter().filter(|map| is_emptied && **map != "@begin") {
            let _ = writeln!(out, "  clear({map});");
        }
        if is_latency && !is_last {
            out.push_str("  clear(@slow);\n");
        }
    };
    if let Some(ms) = request.interval_ms {
        let _ = writeln!(out, "\ninterval:ms:{ms}\n{{");
        show(&mut out, false);
        out.push_str("}\n");
    }
    out.push_str("\nEND\n{\n");
    show(&mut out, true);
    out.push_str("}\n");
    Ok(CountProgram { text: out, keys })
}

/// Tasks of the command, as perf's inherited events have them: from its execution on, each
/// with those that it makes.
const FOLLOW_COMMAND: &str = "
/pid == cpid/
{
  @task[tid] = 1;
}

tracepoint:sched:sched_process_fork
{
  if (@task[tid]) {
    @task[args.child_pid] = 1;
  } else {
    delete(@task, args.child_pid);
  }
}

";

/// The end of tasks whose own events are interpreted.
const END_IN_RINGS: &str = "
tracepoint:sched:sched_process_exit
/@task[tid]/
{
  delete(@task, tid);
}
";

/// Probe that removes tasks that have ended. It fires in interrupts, at times inside another
/// program, and the kernel skips it then; the next task with that number is checked at its start.
pub const GONE_TASKS: &str = "tracepoint:sched:sched_process_free";

/// The end of tasks: memory and files are freed after the exit event.
const END_IN_KERNEL: &str = "
tracepoint:sched:sched_process_exit
/@task[tid]/
{
  @task[tid] = 2;
}

tracepoint:sched:sched_process_free
/@task[args.pid]/
{
  delete(@task, args.pid);
}
";

/// Whether a probe is also hit by tasks whose events perf has ended (`perf_event_exit_task` in
/// kernel/events/core.c): these notify their parent and leave the CPU for the last time.
fn is_of_dying(probe: &str) -> bool {
    let mut parts = probe.split(':');
    match (parts.next(), parts.next()) {
        (Some("tracepoint" | "t"), Some(system)) => matches!(system, "sched" | "signal"),
        (Some("rawtracepoint" | "rt"), Some(name)) => {
            name.starts_with("sched") || name.starts_with("signal")
        }
        (Some("software" | "s"), Some(name)) => matches!(name, "context-switches" | "cs"),
        _ => false,
    }
}

/// Maps of a latency that are printed; the result is the last.
const LATENCY_MAPS: [&str; 7] = ["@begin", "@again", "@alone", "@worst", "@stats", "@max", "@"];

fn filter_line(conditions: &[String]) -> String {
    match conditions {
        [] => String::new(),
        [one] => format!("/{one}/\n"),
        many => format!("/({})/\n", many.join(") && (")),
    }
}

/// An event as a probe.
fn probe_text(event: &str) -> Result<String, String> {
    let event = event.trim();
    if event.is_empty() || event.chars().any(|c| c.is_whitespace() || "{};,\"".contains(c)) {
        return Err(format!("not an event: {event:?}"));
    }
    let kind = event.split(':').next().unwrap_or("");
    if PROBE_TYPES.contains(&kind) && event.contains(':') {
        return Ok(event.to_owned());
    }
    if SOFTWARE.contains(&event) {
        return Ok(format!("software:{event}:1"));
    }
    match event.split(':').collect::<Vec<_>>().as_slice() {
        [category, name] if !category.is_empty() && !name.is_empty() => {
            Ok(format!("tracepoint:{category}:{name}"))
        }
        _ => Err(format!(
            "not an event: {event:?}; write SYSTEM:NAME or a probe (`kprobe:vfs_read`)"
        )),
    }
}

/// A field or builtin.
fn field_text(name: &str) -> Result<String, String> {
    let name = name.trim();
    if let Some(inner) = name.strip_prefix("str(").and_then(|n| n.strip_suffix(')')) {
        return Ok(format!("str({})", field_text(inner)?));
    }
    let bare = name.strip_prefix("args.").unwrap_or(name);
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let fine = !bare.is_empty()
        && bare.chars().all(plain)
        && !bare.starts_with(|c: char| c.is_ascii_digit());
    if !fine {
        return Err(format!("not a field: {name:?}"));
    }
    let argument = name.strip_prefix("arg").is_some_and(|n| n.parse::<u8>().is_ok());
    Ok(match name {
        "stack" => "kstack".into(),
        "event" => "probe".into(),
        _ if BUILTINS.contains(&name) || argument || bare != name => name.to_owned(),
        _ => format!("args.{name}"),
    })
}

/// Keys: fields, where they point to text that text; of a cgroup its path.
fn key_texts(by: &[String]) -> Result<Vec<String>, String> {
    let text = |key: &String| match key.trim() {
        "cgroup" => Ok("cgroup_path(cgroup)".to_owned()),
        key => Ok(match field_text(key)? {
            // A system call's buffer has a length and no NUL: text would run past its end.
            field if field.starts_with("args.") && field != "args.buf" => {
                format!("{TEXT_OR_VALUE}({field})")
            }
            field => field,
        }),
    };
    by.iter().map(text).collect()
}

fn key_text(by: &[String]) -> Result<String, String> {
    if by.is_empty() {
        return Ok(String::new());
    }
    Ok(format!("[{}]", key_texts(by)?.join(", ")))
}

fn measure_text(measure: &CountMeasure) -> Result<String, String> {
    use CountMeasure as M;
    let call = |function: &str, field: &str| Ok(format!("{function}({})", field_text(field)?));
    match measure {
        M::Events | M::Latency(_) => Ok("count()".into()),
        M::Histogram(field) => call("hist", field),
        M::Sum(field) => call("sum", field),
        M::Average(field) => call("avg", field),
        M::Minimum(field) => call("min", field),
        M::Maximum(field) => call("max", field),
        M::Statistics(field) => call("stats", field),
        M::LinearHistogram(field, from, to, step) => {
            Ok(format!("lhist({}, {from}, {to}, {step})", field_text(field)?))
        }
    }
}

/// Text that depends on a probe.
type OfProbe<'a, T> = &'a dyn Fn(&str) -> T;

fn write_latency(
    out: &mut String,
    text: &str,
    (conditions, tasks): (OfProbe<'_, Vec<String>>, OfProbe<'_, Option<String>>),
    by: &[String],
) -> Result<(), String> {
    let wrong =
        || format!("not a latency: {text:?}; write 'A -> B by KEY' or 'A -> B by KEY = KEY'");
    let (events, keys) = text.split_once(" by ").ok_or_else(wrong)?;
    let (first, second) = events.split_once("->").ok_or_else(wrong)?;
    let (first_key, second_key) = keys.split_once('=').unwrap_or((keys, keys));
    let (first, second) = (probe_text(first)?, probe_text(second)?);
    let (first_key, second_key) = (field_text(first_key)?, field_text(second_key)?);
    let key = key_text(by)?;
    // Eighths of a doubling; without keys, where there is one histogram, 32nds.
    let bits = if by.is_empty() { 5 } else { 3 };
    let mut shown = key_texts(by)?;
    shown.retain(|key| !matches!(key.as_str(), "kstack" | "ustack"));
    shown.insert(0, second_key.clone());
    let _ = writeln!(
        out,
        "{first}\n{}{{\n  if (@begin[{first_key}]) {{\n    @again = count();\n  }}\n  \
         @begin[{first_key}] = nsecs;\n}}\n",
        filter_line(&conditions(&first))
    );
    // What ends in tasks of others was begun by others.
    let of_tasks = tasks(&second).map_or_else(String::new, |tasks| format!("if ({tasks}) "));
    let _ = writeln!(
        out,
        "{second}\n{{\n  if (@begin[{second_key}]) {{\n    \
         $ns = nsecs - @begin[{second_key}];\n    delete(@begin, {second_key});\n    \
         @{key} = hist($ns, {bits});\n    @stats{key} = stats($ns);\n    \
         @max{key} = max($ns);\n    $slot = @slot[cpu];\n    \
         if ($ns > @slow[cpu, $slot]) {{\n      @slow[cpu, $slot] = $ns;\n      \
         @worst[cpu, $slot] = ($ns, nsecs, {});\n      $i = (uint64)0;\n      \
         while ($i < {WORST}) {{\n        if (@slow[cpu, $i] < @slow[cpu, $slot]) {{\n          \
         $slot = $i;\n        }}\n        $i++;\n      }}\n      @slot[cpu] = $slot;\n    \
         }}\n  }} else {of_tasks}{{\n    @alone = count();\n  }}\n}}",
        shown.join(", ")
    );
    Ok(())
}

/// A filter of fields as a condition of the language: names that are no builtins are fields.
fn filter_text(filter: &str) -> Result<String, String> {
    let lexed = split_tokens(filter).map_err(|e| format!("filter {filter:?}: {}", e.text))?;
    let mut out = String::new();
    let mut tokens = lexed.tokens.iter().peekable();
    let mut after_dot = false;
    // `comm == ls`, as the kernel's filters are written, is a text without quotes.
    let (mut of_comm, mut wants_text) = (false, false);
    while let Some(token) = tokens.next() {
        let word = filter.get(token.begin..token.end).unwrap_or("");
        let called = tokens.peek().is_some_and(|t| t.kind == TokenKind::Mark("("));
        let begun = tokens.peek().is_some_and(|t| t.kind == TokenKind::Mark("."));
        let text = match &token.kind {
            TokenKind::End => break,
            TokenKind::Name(name) if !(after_dot || called || name == "args" && begun) => {
                if wants_text {
                    format!("\"{name}\"")
                } else if name
                    .chars()
                    .all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit())
                {
                    name.clone()
                } else {
                    field_text(name)?
                }
            }
            TokenKind::Mark("{" | "}" | ";") => return Err(format!("not a filter: {filter:?}")),
            TokenKind::Mark("~") => {
                return Err("patterns (`~`) are not possible here; use strcontains()".into());
            }
            _ => word.to_owned(),
        };
        after_dot = matches!(token.kind, TokenKind::Mark("." | "->"));
        wants_text = of_comm && matches!(token.kind, TokenKind::Mark("==" | "!="));
        of_comm = word == "comm";
        let tight = after_dot || matches!(token.kind, TokenKind::Mark(")" | "]"));
        if tight && out.ends_with(' ') {
            out.pop();
        }
        out.push_str(&text);
        let opens = matches!(token.kind, TokenKind::Mark("(" | "[" | "!"));
        let calls = called && matches!(token.kind, TokenKind::Name(_));
        if !(after_dot || opens || calls) {
            out.push(' ');
        }
    }
    let out = out.trim().to_owned();
    if out.is_empty() { Err("filter is empty".into()) } else { Ok(out) }
}

#[cfg(test)]
mod tests {
    use super::{CountMeasure, CountRequest, CountedTasks, write_count_program};

    fn written(request: &CountRequest) -> String {
        let program = write_count_program(request).unwrap_or_else(|e| panic!("{e}"));
        // What is written is a program.
        let find = |_: &str, _: Option<&str>| Ok(None);
        let headers = crate::preprocess::Preprocessor::new("x86_64", &find);
        crate::parser::parse_program(&program.text, &[], &[], headers)
            .unwrap_or_else(|e| panic!("{e:?}"));
        program.text
    }

    /// The text without what is around it each time.
    fn check(request: CountRequest, expected: &str) {
        let text = written(&request);
        let text = text.trim_end().strip_prefix("config = { print_maps_on_exit = 0 }\n\n");
        assert_eq!(text, Some(expected));
    }

    fn request(event: &str) -> CountRequest {
        CountRequest { events: vec![event.to_owned()], ..CountRequest::default() }
    }

    const END: &str = "\n\nEND\n{\n  print(@);\n}";

    #[test]
    fn events_are_counted_by_keys() {
        let one = "tracepoint:sched:sched_switch\n{\n  @ = count();\n}";
        check(request("sched:sched_switch"), &format!("{one}{END}"));
        let mut by = request("syscalls:sys_enter_openat");
        by.by = ["comm", "str(filename)", "stack"].map(String::from).to_vec();
        by.filter = Some("flags & 2 && comm != x && args.dfd == AT_FDCWD".into());
        by.tasks = CountedTasks::Process(7);
        let expected = "tracepoint:syscalls:sys_enter_openat\n\
             /(pid == 7) && (args.flags & 2 && comm != \"x\" && args.dfd == AT_FDCWD)/\n{\n  \
             @[comm, str(args.filename), kstack] = count();\n}";
        check(by, &format!("{expected}{END}"));
        let two = CountRequest {
            events: vec!["irq:*".into(), "kprobe:vfs_read".into()],
            top: 5,
            interval_ms: Some(100),
            ..CountRequest::default()
        };
        check(
            two,
            "tracepoint:irq:*,\nkprobe:vfs_read\n{\n  @[probe] = count();\n}\n\n\
             interval:ms:100\n{\n  print(@);\n}\n\n\
             END\n{\n  print(@);\n}",
        );
    }

    #[test]
    fn fields_are_measured() {
        let with = |measure| CountRequest { measure, ..request("block:block_rq_issue") };
        let field = || "bytes".to_owned();
        let cases = [
            (CountMeasure::Histogram(field()), "hist(args.bytes)"),
            (CountMeasure::LinearHistogram(field(), 0, 100, 10), "lhist(args.bytes, 0, 100, 10)"),
            (CountMeasure::Sum(field()), "sum(args.bytes)"),
            (CountMeasure::Average(field()), "avg(args.bytes)"),
            (CountMeasure::Minimum(field()), "min(args.bytes)"),
            (CountMeasure::Maximum(field()), "max(args.bytes)"),
            (CountMeasure::Statistics(field()), "stats(args.bytes)"),
        ];
        for (measure, value) in cases {
            let expected = format!("tracepoint:block:block_rq_issue\n{{\n  @ = {value};\n}}{END}");
            check(with(measure), &expected);
        }
    }

    #[test]
    fn latency_has_two_events() {
        let latency = "sched:sched_wakeup -> sched:sched_switch by args.pid = next_pid";
        let measure = CountMeasure::Latency(latency.into());
        let text = written(&CountRequest {
            measure,
            by: vec!["comm".into()],
            tasks: CountedTasks::Command,
            ..CountRequest::default()
        });
        for part in [
            "tracepoint:task:task_rename\n/pid == cpid/\n",
            "tracepoint:sched:sched_wakeup\n/@task[tid] == 1/\n{\n  if (@begin[args.pid]) {",
            "tracepoint:sched:sched_switch\n{\n  if (@begin[args.next_pid]) {\n",
            "@[comm] = hist($ns, 3);",
            "  } else if (@task[tid] == 1) {\n    @alone = count();",
            "@worst[cpu, $slot] = ($ns, nsecs, args.next_pid, comm);",
            "  print(@max);\n  print(@);\n}\n",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }

    #[test]
    fn tasks_count_until_perf_ends_their_events() {
        let mut request = CountRequest {
            events: ["sched:sched_process_exit", "kmem:kfree", "cs"].map(str::to_owned).to_vec(),
            tasks: CountedTasks::Command,
            ..CountRequest::default()
        };
        let text = written(&request);
        let own = "tracepoint:sched:sched_process_exit,\nsoftware:cs:1\n\
                   /@task[tid] == 1/\n";
        let [own, end] = [own, "  @task[tid] = 2;\n"].map(|part| text.find(part).unwrap());
        assert!(own < end && text.contains("tracepoint:kmem:kfree\n/@task[tid]/\n"), "{text}");
        request.in_own_rings = true;
        let text = written(&request);
        assert!(text.contains("delete(@task, tid)") && !text.contains("process_free"), "{text}");
    }

    #[test]
    fn flags_that_are_no_events_or_fields_are_refused() {
        let refused = |request: CountRequest| write_count_program(&request).expect_err("refused");
        assert!(refused(request("sched")).contains("not an event"));
        assert!(refused(request("a:b { @ = 1 }")).contains("not an event"));
        let by = |key: &str| CountRequest { by: vec![key.into()], ..request("a:b") };
        assert!(refused(by("x] = 1; @[y")).contains("not a field"));
        let filter = |text: &str| CountRequest { filter: Some(text.into()), ..request("a:b") };
        assert!(refused(filter("x == 1 } BEGIN {")).contains("not a filter"));
        assert!(refused(filter("comm ~ \"a*\"")).contains("patterns"));
        assert!(refused(filter("\"")).contains("string has no end"));
    }
}
