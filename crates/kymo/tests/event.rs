//! `kymo event` on the running kernel: what it says it changed is what the
//! kernel's own files show, and the machine is as before at the end.
#![allow(clippy::unwrap_used, reason = "tests")]

use kymo_kernel::ftrace::{Instance, TraceDir};
use kymo_kernel::tracefs::Tracefs;
use kymo_testkit::{Need, Outcome, TracingState, require, run};

struct EventInstance {
    instance: Instance,
    _state: TracingState,
}

impl EventInstance {
    /// An instance of the test's own; `None` where the test cannot run.
    fn new() -> Option<EventInstance> {
        if !require(&[Need::Root, Need::Tracefs]) {
            return None;
        }
        let _state = TracingState::take();
        let tracefs = Tracefs::open().unwrap();
        Some(EventInstance { instance: Instance::create(&tracefs, "test-event").unwrap(), _state })
    }

    fn event(&self, args: &[&str]) -> Outcome {
        let instance = self.instance.name().unwrap();
        run(env!("CARGO_BIN_EXE_kymo"), [&["event", "--instance", instance], args].concat())
    }

    fn file(&self, file: &str) -> String {
        self.instance.read(file).unwrap().trim().to_owned()
    }
}

#[test]
fn switching_says_what_it_switched() {
    let Some(p) = EventInstance::new() else { return };
    let o = p.event(&["enable", "irq:softirq_entry", "sched:sched_process_e*"]).success();
    let name = p.instance.name().unwrap();
    let line = |event: &str| format!("kymo event: {event} switched on in instance {name}\n");
    for event in ["irq:softirq_entry", "sched:sched_process_exec", "sched:sched_process_exit"] {
        assert!(o.stderr.contains(&line(event)), "{}", o.stderr);
    }
    let expected = "irq:softirq_entry\nsched:sched_process_exec\nsched:sched_process_exit";
    let on = p.file("set_event");
    let mut on: Vec<&str> = on.lines().collect();
    on.sort_unstable();
    assert_eq!(on.join("\n"), expected);
    let o = p.event(&["enable", "irq"]).success();
    assert!(o.stderr.contains("1 was on already"), "{}", o.stderr);
    assert_eq!(p.file("events/irq/enable"), "1");
    assert_eq!(p.file("events/sched/enable"), "X");
    // One wrong name, and nothing is changed.
    let before = p.file("set_event");
    let o = p.event(&["enable", "timer", "no:such"]).failure();
    assert!(o.stderr.contains("no event \"no:such\""), "{}", o.stderr);
    assert_eq!(p.file("set_event"), before);
    let _ = p.event(&["disable", "--all"]).success();
    assert_eq!(p.file("set_event"), "");
}

#[test]
fn the_list_is_what_ls_shows() {
    let Some(p) = EventInstance::new() else { return };
    let _ = p.event(&["enable", "irq:softirq_entry"]).success();
    let shown = p.event(&["list", "irq"]).success().stdout;
    let directory = std::fs::read_dir(p.instance.path("events/irq")).unwrap().flatten();
    let mut directories: Vec<String> = directory
        .filter(|e| e.file_type().unwrap().is_dir())
        .map(|e| e.file_name().into_string().unwrap())
        .collect();
    directories.sort();
    let expected: Vec<String> = directories
        .iter()
        .map(|f| format!("{:<4}  {f}", if f == "softirq_entry" { "on" } else { "off" }))
        .collect();
    assert_eq!(shown.lines().collect::<Vec<_>>(), expected);
    let groups = p.event(&["list"]).success().stdout;
    assert!(groups.lines().any(|l| l.starts_with("some  irq/ ") && l.ends_with(" events")));
    let json = p.event(&["list", "irq:softirq_entry", "-j"]).success().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["state"], "on");
    let fields = p.event(&["list", "irq:softirq_entry"]).success().stdout;
    assert_eq!(fields, "on    irq:softirq_entry\n      unsigned int vec\n");
}

#[test]
fn a_filter_is_set_shown_refused_and_cleared() {
    let Some(p) = EventInstance::new() else { return };
    let file = "events/irq/softirq_entry/filter";
    let _ = p.event(&["filter", "irq:softirq_entry", "vec == 1"]).success();
    assert_eq!(p.file(file), "vec == 1");
    let o = p.event(&["filter", "irq:softirq_entry", "vec == 1 && bogus == 2"]).failure();
    let caret = "  vec == 1 && bogus == 2\n                    ^ Field not found\n";
    assert!(o.stderr.contains(caret), "{}", o.stderr);
    assert_eq!(p.file(file), "vec == 1", "a refused filter leaves the old one");
    // A group: those that have the field.
    let o = p.event(&["filter", "irq", "irq > 3"]).success();
    assert!(o.stderr.contains("irq:irq_handler_exit passes only if irq > 3"), "{}", o.stderr);
    assert!(o.stderr.contains("irq:softirq_entry is as it was: Field not found"), "{}", o.stderr);
    let o = p.event(&["filter", "irq"]).success();
    assert_eq!(
        o.stdout,
        "irq:irq_handler_entry: irq > 3\nirq:irq_handler_exit: irq > 3\nirq:softirq_entry: vec == 1\n"
    );
    let _ = p.event(&["filter", "irq", "--clear"]).success();
    assert_eq!(p.file(file), "none");
}

#[test]
fn triggers_are_set_shown_and_taken_away() {
    let Some(p) = EventInstance::new() else { return };
    let o = p.event(&["trigger", "irq:softirq_exit", "traceoff:2 if vec == 77"]).success();
    assert!(o.stderr.contains("has the trigger traceoff:2 if vec == 77"), "{}", o.stderr);
    let shown = p.event(&["trigger", "irq:softirq_exit"]).success().stdout;
    assert_eq!(shown, "irq:softirq_exit: traceoff:count=2 if vec == 77\n");
    let o = p.event(&["trigger", "irq:softirq_exit", "!traceoff"]).success();
    assert!(o.stderr.contains("lost the trigger"), "{}", o.stderr);
    assert_eq!(
        p.event(&["trigger", "irq:softirq_exit"]).success().stdout,
        "irq:softirq_exit: none\n"
    );
    let o = p.event(&["trigger", "irq:softirq_exit", "explode"]).failure();
    assert!(o.stderr.contains("a trigger starts with traceon"), "{}", o.stderr);
    for (text, file, needs) in [
        ("snapshot", "snapshot", "CONFIG_TRACER_SNAPSHOT"),
        ("hist:keys=vec", "events/irq/softirq_exit/hist", "CONFIG_HIST_TRIGGERS"),
    ] {
        if !p.instance.has(file) {
            let o = p.event(&["trigger", "irq:softirq_exit", text]).failure();
            assert!(o.stderr.contains(needs), "{}", o.stderr);
        }
    }
    let _ = p.event(&["trigger", "irq:softirq_entry", "stacktrace"]).success();
    let o = p.event(&["trigger", "irq:softirq_entry", "--clear"]).success();
    assert!(
        o.stderr.contains("irq:softirq_entry lost its trigger stacktrace:unlimited"),
        "{}",
        o.stderr
    );
    assert_eq!(p.instance.triggers(&softirq_entry()).unwrap(), [""; 0]);
}

fn softirq_entry() -> kymo_kernel::ftrace::EventName {
    kymo_kernel::ftrace::EventName { system: "irq".into(), name: "softirq_entry".into() }
}

#[test]
fn show_tells_who_is_on_everywhere() {
    let Some(p) = EventInstance::new() else { return };
    let _ = p.event(&["enable", "irq:softirq_entry"]).success();
    let _ = p.event(&["filter", "irq:softirq_raise", "vec == 9"]).success();
    let name = p.instance.name().unwrap();
    let all = run(env!("CARGO_BIN_EXE_kymo"), ["event", "show"]).success().stdout;
    let mut lines = all.lines().skip_while(|l| !l.starts_with(&format!("instance {name}:")));
    let head = lines.next().unwrap();
    assert!(head.ends_with(": 1 event on, not recording (tracing_on is 0), clock local"), "{head}");
    assert_eq!(lines.next().unwrap(), "  on    irq:softirq_entry");
    assert_eq!(lines.next().unwrap(), "  off   irq:softirq_raise  if vec == 9");
    assert!(all.starts_with("the top instance: "), "{all}");
    let json = p.event(&["show", "--json"]).success().stdout;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json[0]["events"][0]["event"], "irq:softirq_entry");
}

#[test]
fn the_top_instance_is_changed_on_request() {
    let Some(p) = EventInstance::new() else { return };
    let kymo = |args: &[&str]| run(env!("CARGO_BIN_EXE_kymo"), [&["event"], args].concat());
    let top = TraceDir::top(p.instance.tracefs());
    let event = "alarmtimer:alarmtimer_fired";
    let selection = kymo_kernel::ftrace::Selection::parse(event).unwrap();
    let events = top.select(&selection).unwrap();
    let o = kymo(&["enable", event]).success();
    assert!(o.stderr.contains("switched on in the top instance"), "{}", o.stderr);
    assert_eq!(top.event_state(&events[0]).unwrap(), kymo_kernel::ftrace::EventState::On);
    let _ = kymo(&["disable", event]).success();
    assert_eq!(top.event_state(&events[0]).unwrap(), kymo_kernel::ftrace::EventState::Off);
}

#[test]
fn a_format_is_the_kernels_own_text() {
    let Some(p) = EventInstance::new() else { return };
    for event in ["sched:sched_switch", "ftrace:print"] {
        let own = p.instance.read(&format!("events/{}/format", event.replace(':', "/"))).unwrap();
        assert_eq!(p.event(&["format", event]).success().stdout, own);
    }
    let o = p.event(&["format", "sched"]).failure();
    assert!(o.stderr.contains("a format belongs to one"), "{}", o.stderr);
}

#[test]
fn an_instance_that_is_not_there_is_named() {
    let Some(_p) = EventInstance::new() else { return };
    let o = run(env!("CARGO_BIN_EXE_kymo"), ["event", "show", "--instance", "no-such"]).failure();
    assert!(
        o.stderr.contains("instances/no-such does not exist: the instances are "),
        "{}",
        o.stderr
    );
}
