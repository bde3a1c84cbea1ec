//! Entries and exits of the function-graph tracer: the same events, once out of a trace.dat
//! and once as they come out of a ring, are the same lines.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::fs::File;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;

use kymo_events::live::{LiveEvents, LiveItem};
use kymo_events::{EventSelection, EventSource};
use kymo_files::Machine;
use kymo_files::tracedat::{BufferSpec, Format, TraceDatOptions, TraceDatWriter, TraceFacts};
use kymo_kernel::ftrace::TraceDir;
use kymo_kernel::tracefs::Tracefs;
use kymo_render::ctf::CtfOptions;
use kymo_render::perf_script::{FieldSpec, LineStyle, TimeOrigin};
use kymo_render::timeline::{KernelEvents, TimelineFeed, TimelineOptions, TimelineRenderer};
use kymo_render::trace_cmd::TraceCmdOptions;
use kymo_render::{EventLines, render_in_order};

const ENTRY: u16 = 11;
const EXIT: u16 = 10;
const OTHER: u16 = 300;
const SAVED: &str = "21 one\n22 two\n";

/// An event: CPU, time, and bytes from `common_type` on.
type RingEvent = (u32, u64, Vec<u8>);

fn common(id: u16, tid: i32) -> Vec<u8> {
    [&id.to_ne_bytes()[..], &[0, 0], &tid.to_ne_bytes()].concat()
}

fn entry((cpu, time, tid): (u32, u64, i32), func: u64, depth: u32) -> RingEvent {
    let payload =
        [&common(ENTRY, tid)[..], &func.to_ne_bytes(), &depth.to_ne_bytes(), &[0; 4]].concat();
    (cpu, time, payload)
}

fn exit((cpu, time, tid): (u32, u64, i32), func: u64, depth: u32, took: u64) -> RingEvent {
    let payload = [
        &common(EXIT, tid)[..],
        &func.to_ne_bytes(),
        &depth.to_ne_bytes(),
        &[0; 4],
        &(time - took).to_ne_bytes(),
        &time.to_ne_bytes(),
    ]
    .concat();
    (cpu, time, payload)
}

fn other((cpu, time, tid): (u32, u64, i32)) -> RingEvent {
    (cpu, time, [&common(OTHER, tid)[..], &7u32.to_ne_bytes()].concat())
}

/// A format of fields behind the common ones: type, name, offset, size.
fn format(name: &str, id: u16, fields: &[(&str, &str, u32, u32)]) -> String {
    let field = |(ty, name, at, size): &(&str, &str, u32, u32)| {
        format!("\tfield:{ty} {name};\toffset:{at};\tsize:{size};\tsigned:0;\n")
    };
    let common = [
        ("unsigned short", "common_type", 0, 2),
        ("unsigned char", "common_flags", 2, 1),
        ("unsigned char", "common_preempt_count", 3, 1),
        ("int", "common_pid", 4, 4),
    ];
    let text = |all: &[(&str, &str, u32, u32)]| all.iter().map(field).collect::<String>();
    let (first, rest) = (text(&common), text(fields));
    let print = format!("\"{}=%u\", REC->{}", fields[0].1, fields[0].1);
    format!("name: {name}\nID: {id}\nformat:\n{first}\n{rest}\nprint fmt: {print}\n")
}

/// Formats of the events: system, name, format.
fn formats() -> [(&'static str, &'static str, String); 3] {
    let function = [("unsigned long", "func", 8, 8), ("unsigned int", "depth", 16, 4)];
    let times =
        [("unsigned long long", "calltime", 24, 8), ("unsigned long long", "rettime", 32, 8)];
    let exit = [&function[..], &times].concat();
    [
        ("ftrace", "funcgraph_entry", format("funcgraph_entry", ENTRY, &function)),
        ("ftrace", "funcgraph_exit", format("funcgraph_exit", EXIT, &exit)),
        ("other", "number", format("number", OTHER, &[("unsigned int", "number", 8, 4)])),
    ]
}

/// A tracefs with these events in `at`.
fn make_tracefs(at: &Path) -> Tracefs {
    for (system, name, format) in formats() {
        let directory = at.join("events").join(system).join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let id = format.lines().find_map(|l| l.strip_prefix("ID: ")).unwrap();
        std::fs::write(directory.join("id"), format!("{id}\n")).unwrap();
        std::fs::write(directory.join("enable"), "1\n").unwrap();
        std::fs::write(directory.join("format"), format).unwrap();
    }
    std::fs::write(at.join("saved_cmdlines"), SAVED).unwrap();
    std::fs::write(at.join("set_event"), "other:number\n").unwrap();
    std::fs::write(at.join("printk_formats"), "").unwrap();
    Tracefs::at(at)
}

/// A page of a ring with these events.
fn page(events: &[&RingEvent]) -> Vec<u8> {
    let mut last = events.first().map_or(0, |e| e.1);
    let (start, mut data) = (last, Vec::new());
    for (_, time, payload) in events {
        let words = payload.len() as u32 / 4;
        data.extend_from_slice(&(words | ((time - last) as u32) << 5).to_ne_bytes());
        data.extend_from_slice(payload);
        last = *time;
    }
    let mut page = [start.to_ne_bytes(), (data.len() as u64).to_ne_bytes()].concat();
    page.append(&mut data);
    page.resize(4096, 0);
    page
}

fn make_trace_dat(path: &Path, events: &[RingEvent]) {
    let [entry, exit, other] = formats().map(|f| f.2);
    let header_page = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
        \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
        \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
        \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";
    let header_event = "# compressed entry header\n\ttype_len    :    5 bits\n\
        \ttime_delta  :   27 bits\n\tarray       :   32 bits\n\n\tpadding     : type == 29\n\
        \ttime_extend : type == 30\n\ttime_stamp : type == 31\n\tdata max type_len  == 28\n";
    let machine = Machine {
        header_page: header_page.to_owned(),
        header_event: header_event.to_owned(),
        ftrace_formats: vec![entry, exit],
        formats: vec![("other".to_owned(), other)],
        // As the live side has it.
        kallsyms: std::fs::read_to_string("/proc/kallsyms").unwrap_or_default().into(),
        printk_formats: String::new(),
        saved_cmdlines: SAVED.to_owned(),
    };
    let options = TraceDatOptions { cpu_count: Some(2), ..TraceDatOptions::default() };
    let facts = TraceFacts { machine, options, ..TraceFacts::default() };
    let buffer = BufferSpec {
        clock: "mono".to_owned(),
        page_size: 4096,
        cpus: vec![0, 1],
        ..Default::default()
    };
    let format = Format { version: 7, ..Format::default() };
    let mut writer = TraceDatWriter::create(path, format, &facts, vec![buffer]).unwrap();
    for cpu in 0..2 {
        let own: Vec<&RingEvent> = events.iter().filter(|e| e.0 == cpu).collect();
        let mut pages = tempfile::tempfile().unwrap();
        pages.write_all(&page(&own)).unwrap();
        writer.add_cpu_data(0, cpu, &mut pages, 0, 4096).unwrap();
    }
    writer.finish().unwrap();
    assert!(File::open(path).unwrap().metadata().unwrap().len() > 8192);
}

const TEXT: TraceCmdOptions = TraceCmdOptions { json: false, latency: false, ns: true };

/// Lines of a recording.
fn recorded(path: &Path, kernel: TraceCmdOptions) -> String {
    let source = EventSource::open(&[path.to_owned()], Default::default()).unwrap();
    let data = source.timeline().unwrap().kernels();
    let kernels: Vec<KernelEvents<'_>> = data.iter().map(KernelEvents::new).collect();
    let style = LineStyle { ragged: false, ns: true, since: TimeOrigin::Epoch };
    let fields = FieldSpec::parse(&[]).unwrap();
    let options = TimelineOptions { kernel, programs: CtfOptions { fields, style, json: false } };
    let selection = EventSelection::default();
    let renderer = TimelineRenderer::new(&options, &source, &kernels, &selection).unwrap();
    let feed = TimelineFeed::new(kernel, None, &source, &kernels);
    let mut text = Vec::new();
    let write = |part: &[u8]| {
        text.extend_from_slice(part);
        Ok(())
    };
    let (summary, _) =
        render_in_order(vec![renderer], |give| feed.run(&selection, give), write).unwrap();
    summary.unwrap();
    String::from_utf8(text).unwrap()
}

/// Lines of a ring; events are lost before that of the number `lost`.
fn shown_live(
    tracefs: &Tracefs,
    events: &[RingEvent],
    lost: Option<usize>,
    options: TraceCmdOptions,
) -> String {
    let selection = EventSelection::default();
    let mut live = LiveEvents::new(&selection, Some(&TraceDir::top(tracefs)));
    let (mut lines, mut out) = (EventLines::new(options), Vec::new());
    for (number, (cpu, time, payload)) in events.iter().enumerate() {
        live.begin_round();
        if lost == Some(number) {
            lines.write_item(LiveItem::Lost { cpu: *cpu, count: Some(3) }, &mut out);
        }
        let _ = live.kernel_event((*cpu, *time, payload), &mut |item| {
            lines.write_item(item, &mut out);
            ControlFlow::Continue(())
        });
    }
    lines.finish(&mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn leaves_are_joined_live_as_in_a_recording() {
    let directory = tempfile::tempdir().unwrap();
    let tracefs = make_tracefs(&directory.path().join("tracing"));
    let path = directory.path().join("trace.dat");
    let (a, b) = (0x7000_0000_1000, 0x7000_0000_2000);
    let events = [
        // A function with a leaf in it.
        entry((0, 1_000_000, 21), a, 0),
        entry((0, 1_000_100, 21), b, 1),
        exit((0, 1_012_500, 21), b, 1, 12_345),
        exit((0, 1_012_600, 21), a, 0, 12_600),
        // An event of another CPU, of any kind, keeps them apart.
        entry((0, 1_020_000, 21), a, 0),
        other((1, 1_020_100, 22)),
        exit((0, 1_020_200, 21), a, 0, 200),
        entry((0, 1_030_000, 21), a, 0),
        entry((1, 1_030_100, 22), a, 0),
        exit((1, 1_030_200, 22), a, 0, 100),
        exit((0, 1_030_300, 21), a, 0, 300),
        // The exit of another task, and that of another function.
        entry((0, 1_040_000, 21), a, 0),
        exit((1, 1_040_100, 22), a, 0, 77),
        entry((0, 1_050_000, 21), a, 0),
        exit((0, 1_050_100, 21), b, 0, 100),
        other((0, 1_060_000, 21)),
        entry((1, 1_070_000, 22), b, 0),
        exit((1, 1_080_000, 22), b, 0, 10_000),
        // One that does not end.
        entry((0, 1_090_000, 21), b, 0),
    ];
    make_trace_dat(&path, &events);
    let text = recorded(&path, TEXT);
    assert_eq!(shown_live(&tracefs, &events, None, TEXT), text);
    let leaves: Vec<&str> = text.lines().filter(|l| l.ends_with("();")).collect();
    assert_eq!(leaves.len(), 3, "{text}");
    assert!(leaves[0].contains("one-21    [000]") && leaves[0].contains("+ 12.345 us"), "{text}");
    assert_eq!(text.lines().count(), events.len() - 3, "{text}");
    let latency = TraceCmdOptions { latency: true, ..TEXT };
    assert_eq!(shown_live(&tracefs, &events, None, latency), recorded(&path, latency));

    // Objects are those of the events.
    let json = TraceCmdOptions { json: true, ..TEXT };
    let objects = shown_live(&tracefs, &events, None, json);
    assert_eq!(objects, recorded(&path, json));
    assert_eq!(objects.lines().count(), events.len());

    // What was lost in between may have been its exit.
    let lost = shown_live(&tracefs, &events[..4], Some(2), TEXT);
    let lines: Vec<&str> = lost.lines().collect();
    assert!(lines[1].ends_with("() {") && lines[2] == "CPU:0 [3 EVENTS DROPPED]", "{lost}");
    assert_eq!(lines.len(), 5, "{lost}");
}
