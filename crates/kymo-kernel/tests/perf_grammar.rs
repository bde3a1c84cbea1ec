//! The event grammar next to perf's own: for each text the attributes that perf
//! says it opens (`perf stat -vv`) and ours must be the same, field by field,
//! and so must the names it prints; the list of tracepoints must be perf's.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeMap;

use kymo_kernel::events::{Catalog, EventSpec};
use kymo_model::{AttrFlags, EventType};
use kymo_testkit::{Need, perf, require};

type EventFields = BTreeMap<&'static str, u64>;

const FIELDS: [&str; 15] = [
    "type",
    "config",
    "config1",
    "config2",
    "exclude_user",
    "exclude_kernel",
    "exclude_hv",
    "exclude_idle",
    "exclude_host",
    "exclude_guest",
    "pinned",
    "exclusive",
    "precise_ip",
    "bp_type",
    "sample_period",
];

/// `0x1f` or `31`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// The attributes perf dumps. When the kernel refuses one, perf tries again
/// with less and dumps that too: only the first try of each counts, which is
/// the one that does not follow a failure.
fn of_perf(stderr: &str) -> Vec<EventFields> {
    let mut all: Vec<EventFields> = Vec::new();
    let mut inside = false;
    let mut again = false;
    for line in stderr.lines() {
        if line.starts_with("perf_event_attr:") {
            inside = true;
            if !again {
                all.push(EventFields::new());
            }
        } else if line.starts_with("---") {
            // A line of dashes stands before and after each dump.
            again &= !inside;
            inside = false;
        } else if line.contains("sys_perf_event_open failed") {
            // EINVAL and its like are followed by a retry, "no such event" is not.
            again = line.trim_end().ends_with("error -22");
        }
        if !inside || again {
            continue;
        }
        let line = line.trim();
        let line = line.strip_prefix("{ bp_addr, config1 }").map_or_else(
            || line.replace("{ bp_len, config2 }", "config2"),
            |rest| format!("config1{rest}"),
        );
        let mut words = line.split_whitespace();
        if let (Some(name), Some(value)) = (words.next(), words.next())
            && let Some(field) = FIELDS.iter().find(|f| **f == name)
            && let (Some(value), Some(facts)) = (number(value), all.last_mut())
            && value != 0
        {
            facts.insert(field, value);
        }
    }
    all
}

fn of_ours(event: &EventSpec) -> EventFields {
    let a = &event.attr;
    let flag = |f| u64::from(a.flags.contains(f));
    let values = [
        u64::from(a.kind.0),
        a.config,
        a.config1,
        a.config2,
        flag(AttrFlags::EXCLUDE_USER),
        flag(AttrFlags::EXCLUDE_KERNEL),
        flag(AttrFlags::EXCLUDE_HV),
        flag(AttrFlags::EXCLUDE_IDLE),
        flag(AttrFlags::EXCLUDE_HOST),
        flag(AttrFlags::EXCLUDE_GUEST),
        flag(AttrFlags::PINNED),
        flag(AttrFlags::EXCLUSIVE),
        u64::from(a.flags.precise_ip()),
        u64::from(a.bp_type),
        // Counting has no period.
        0,
    ];
    FIELDS.into_iter().zip(values).filter(|(_, v)| *v != 0).collect()
}

/// Runs perf and the catalog over the same text.
fn check(catalog: &Catalog, text: &str) {
    let ours = catalog.parse(text).unwrap_or_else(|e| panic!("{text}: {e}"));
    let theirs = perf(["stat", "-vv", "-x;", "-e", text, "true"]);
    let all: String = format!("{}\n{}", theirs.stdout, theirs.stderr);
    let (mut a, mut b) = (ours.iter().map(of_ours).collect::<Vec<_>>(), of_perf(&all));
    if text.contains('*') {
        // perf takes what a glob matches in the order of the directory, we sort.
        a.sort();
        b.sort();
    }
    assert_eq!(a, b, "attributes of {text}\n{all}");
    // Breakpoints are named in full by us; perf cuts at the length.
    let ours = ours.iter().filter(|e| e.attr.kind != EventType::BREAKPOINT);
    for event in ours {
        let column = format!(";{};", event.name);
        assert!(all.contains(&column), "{text}: perf has no name {:?}\n{all}", event.name);
    }
}

#[test]
fn attributes_and_names_are_those_of_perf() {
    if !require(&[Need::Perf, Need::Root, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let catalog = Catalog::open();
    let mut texts: Vec<String> = [
        "cpu-clock",
        "task-clock:u",
        "cs:k",
        "faults:h",
        "page-faults:uk",
        "major-faults:kh",
        "minor-faults:ukh",
        "cpu-clock:G",
        "cpu-clock:H",
        "cpu-clock:GH",
        "cpu-clock:Gu",
        "cpu-clock:uG",
        "cpu-clock:I",
        "cpu-clock:p",
        "cpu-clock:pp",
        "cpu-clock:pppH",
        "cpu-clock:P",
        "cpu-clock:D",
        "cpu-clock:e",
        "cpu-clock:DukS",
        "cpu-clock:ukhGHpppPSDWe",
        "{cs,faults}",
        "{cs:k,faults}:u",
        "{cs,faults:u}:D",
        "{cs,faults,migrations:k}:S",
        "{cs:G,faults}:H",
        "{cs:u,faults:p}:kp",
        "{cs,faults}:e,task-clock:u,{cpu-clock:k}",
        "name{cs,faults}",
        "cycles,instructions:u",
        "cpu-cycles:pp",
        "branches",
        "branch-misses:k",
        "idle-cycles-frontend",
        "stalled-cycles-backend",
        "ref-cycles:u",
        "bus-cycles",
        "cache-references,cache-misses",
        "r1a8",
        "r1a8:u",
        "rcafe:pp",
        "L1-dcache-load-misses",
        "l1-d-misses",
        "l1d-miss-load",
        "L1-icache-prefetch-misses",
        "LLC-loads:u",
        "LLC-stores",
        "dTLB-store-misses:k",
        "iTLB-load-misses",
        "branch-loads",
        "bpu-load-misses",
        "node-prefetches",
        "cs/name=other/",
        "cs/period=3/u",
        "software/config=1/",
        "software//k",
        "mem:0x1000",
        "mem:0x1000:x",
        "mem:0x1000/8:w",
        "mem:0x1000/2:rw:u",
        "sched:sched_switch",
        "sched:sched_switch:u",
        "sched:sched_switch:k,cs",
        "{sched:sched_switch,sched:sched_wakeup}",
        "kmem:mm_page_alloc*",
        "raw_syscalls:*",
    ]
    .map(str::to_owned)
    .to_vec();
    if catalog.pmus().get("msr").is_some() {
        texts.extend(
            ["msr/tsc/", "msr/event=1/u", "msr/tsc,name=cycles_of_tsc/"].map(str::to_owned),
        );
    }
    if catalog.pmus().get("uprobe").is_some() {
        texts.push("uprobe/retprobe,ref_ctr_offset=3/".to_owned());
    }
    for text in &texts {
        check(&catalog, text);
    }
}

#[test]
fn what_perf_refuses_is_refused() {
    if !require(&[Need::Perf, Need::Root, Need::PerfEvents, Need::Tracefs]) {
        return;
    }
    let catalog = Catalog::open();
    for text in [
        "nosuch",
        "cs:uu",
        "cs:pppp",
        "cs:z",
        "cs}",
        "{cs}:z",
        "L1-icache-stores",
        "sched:nosuch",
        "nosuch:*",
        "mem:x",
        "nosuch/event=1/",
        "software/nosuch=1/",
        "cs/nosuch=1/",
        "cs,,cs",
    ] {
        assert!(catalog.parse(text).is_err(), "{text} is taken by us");
        let theirs = perf(["stat", "-e", text, "true"]);
        assert_ne!(theirs.status, 0, "{text} is taken by perf");
    }
}

#[test]
fn the_tracepoints_are_those_of_perf() {
    if !require(&[Need::Perf, Need::Root, Need::Tracefs]) {
        return;
    }
    let theirs = perf(["list", "--raw-dump", "tracepoint"]).success();
    let theirs: Vec<&str> = theirs.stdout.split_whitespace().collect();
    assert!(theirs.len() > 100, "perf lists {} tracepoints", theirs.len());
    let catalog = Catalog::open();
    let tracefs = catalog.tracefs().unwrap();
    let ours: Vec<String> = catalog
        .tracepoints()
        .unwrap()
        .into_iter()
        // Entries of the tracers' own records have no id and are no events.
        .filter(|(s, n)| s != "ftrace" || tracefs.event_id(s, n).is_ok())
        .map(|(s, n)| format!("{s}:{n}"))
        .collect();
    let mut theirs: Vec<String> = theirs.into_iter().map(str::to_owned).collect();
    let mut ours = ours;
    theirs.sort();
    ours.sort();
    assert_eq!(ours, theirs);
}

#[test]
fn the_kernel_is_asked_and_answers() {
    use kymo_kernel::events::Support;
    if !require(&[Need::Root, Need::PerfEvents]) {
        return;
    }
    let catalog = Catalog::open();
    let ask = |text: &str| catalog.parse(text).unwrap()[0].support();
    for text in ["cpu-clock", "cs:u", "sched:sched_switch", "mem:0x1000:rw"] {
        assert_eq!(ask(text), Support::Yes, "{text}");
    }
    // No such PMU on any machine.
    let mut none = EventSpec::new("none", kymo_model::Attr::default());
    none.attr.kind = EventType(0x00ff_ff00);
    assert_eq!(none.support(), Support::No(2));
}
