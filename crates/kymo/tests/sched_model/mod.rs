//! Expected output of `sched latency`, computed from the events as `kymo script` shows them: by the
//! rules of perf 6.1, and by those of kymo. And LTTng's kernel traces of the same events.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

/// An event of the scheduler.
pub(crate) struct SchedRecord {
    time: u64,
    cpu: u32,
    event: String,
    fields: Value,
}

impl SchedRecord {
    /// Reads a line of `kymo script --json`.
    pub(crate) fn parse(line: &Value) -> Option<SchedRecord> {
        let event = line["event"].as_str()?;
        let event = event.strip_prefix("sched:").unwrap_or(event).to_owned();
        Some(SchedRecord {
            // Nine decimals of some ten thousand seconds fit into a double.
            time: (line["time"].as_f64()? * 1e9).round() as u64,
            cpu: line["cpu"].as_u64()? as u32,
            event,
            fields: line["fields"].clone(),
        })
    }

    fn number(&self, name: &str) -> u64 {
        self.fields[name].as_u64().unwrap_or_else(|| panic!("{name}: {}", self.fields))
    }

    fn tid(&self, name: &str) -> u32 {
        self.number(name) as u32
    }
}

/// Delays of a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelRow {
    pub(crate) runtime: u64,
    pub(crate) count: u64,
    pub(crate) total: u64,
    pub(crate) max: u64,
    pub(crate) switches: u64,
}

impl ModelRow {
    fn add(&mut self, delay: u64) {
        self.count += 1;
        self.total += delay;
        self.max = self.max.max(delay);
    }
}

/// State of a task.
#[derive(Clone, Copy, PartialEq)]
enum Doing {
    Sleeps,
    Waits(u64),
    Runs,
}

/// perf 6.1: state R alone is runnable, who is seen first has waited 0 ns, and sched_waking,
/// which `perf sched record` records, is not looked at.
pub(crate) fn perf_model(records: &[SchedRecord]) -> BTreeMap<u32, ModelRow> {
    let mut rows: BTreeMap<u32, (ModelRow, Doing)> = BTreeMap::new();
    for r in records {
        let first = |doing| (ModelRow::default(), doing);
        match r.event.as_str() {
            "sched_switch" => {
                let runnable = r.number("prev_state") == 0;
                let doing = if runnable { Doing::Waits(r.time) } else { Doing::Sleeps };
                rows.entry(r.tid("prev_pid")).or_insert_with(|| first(doing)).1 = doing;
                let next = rows.entry(r.tid("next_pid"));
                let (row, doing) = next.or_insert_with(|| first(Doing::Waits(r.time)));
                if let Doing::Waits(since) = *doing {
                    row.add(r.time - since);
                    *doing = Doing::Runs;
                }
            }
            "sched_wakeup" | "sched_wakeup_new" => {
                let task = rows.entry(r.tid("pid")).or_insert_with(|| first(Doing::Sleeps));
                if task.1 == Doing::Sleeps {
                    task.1 = Doing::Waits(r.time);
                }
            }
            "sched_stat_runtime" => {
                let task = rows.entry(r.tid("pid")).or_insert_with(|| first(Doing::Waits(r.time)));
                task.0.runtime += r.number("runtime");
            }
            _ => {}
        }
    }
    rows.into_iter().map(|(tid, (row, _))| (tid, row)).collect()
}

/// A task of kymo's.
#[derive(Default)]
struct ModelTask {
    row: ModelRow,
    runs: bool,
    /// Time at which it left, and whether it was runnable then.
    left: Option<(u64, bool)>,
    woken: Option<u64>,
    woken_running: bool,
}

/// kymo: `R+` is runnable; a wait whose begin is not seen is none; a wake-up of a task that
/// runs is that of its next sleep if there is no other.
pub(crate) fn model(records: &[SchedRecord]) -> BTreeMap<u32, ModelRow> {
    let mut tasks: BTreeMap<u32, ModelTask> = BTreeMap::new();
    let mut current: BTreeMap<u32, u32> = BTreeMap::new();
    for r in records {
        match r.event.as_str() {
            "sched_switch" => {
                let (prev, next) = (r.tid("prev_pid"), r.tid("next_pid"));
                if let Some(gone) = current.insert(r.cpu, next).filter(|c| *c != prev) {
                    let task = tasks.entry(gone).or_default();
                    (task.runs, task.left, task.woken) = (false, None, None);
                }
                let out = tasks.entry(prev).or_default();
                let runnable = r.number("prev_state") & 0xff == 0;
                // A wake-up that came before is that of this sleep.
                out.woken = (out.woken_running && !runnable).then_some(r.time);
                (out.runs, out.left, out.woken_running) = (false, Some((r.time, runnable)), false);
                let task = tasks.entry(next).or_default();
                let since = match task.left {
                    Some((left, true)) => Some(left),
                    _ => task.woken,
                };
                if let Some(since) = since {
                    task.row.add(r.time - since);
                }
                task.row.switches += 1;
                (task.runs, task.left, task.woken) = (true, None, None);
                task.woken_running = false;
            }
            "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => {
                let task = tasks.entry(r.tid("pid")).or_default();
                // A wake-up that is seen later counts for one that came before its sleep.
                let early = task.left.map(|l| l.0);
                match task.runs {
                    true => task.woken_running = true,
                    false if task.woken.is_none() || task.woken == early => {
                        task.woken = Some(r.time);
                    }
                    false => {}
                }
            }
            "sched_stat_runtime" => {
                tasks.entry(r.tid("pid")).or_default().row.runtime += r.number("runtime");
            }
            _ => {}
        }
    }
    tasks.into_iter().map(|(tid, task)| (tid, task.row)).collect()
}

/// Trace of LTTng's kernel tracer: a stream for each CPU.
pub(crate) struct CtfTrace<'a> {
    pub(crate) records: &'a [SchedRecord],
    /// Events of a packet.
    pub(crate) packet: usize,
    /// Whether events have LTTng's context `callstack-kernel`: an address that encodes the time of
    /// the event, and one that all have.
    pub(crate) stacks: bool,
    /// Packets that are lost, by CPU and number.
    pub(crate) without: &'a dyn Fn(u32, usize) -> bool,
}

/// Type, LTTng's name, ftrace's name.
type CtfField = (&'static str, &'static str, &'static str);

/// LTTng's events and their fields.
const CLASSES: [(&str, &[CtfField]); 6] = [
    (
        "sched_switch",
        &[
            ("text", "prev_comm", "prev_comm"),
            ("int32_t", "prev_tid", "prev_pid"),
            ("int32_t", "prev_prio", "prev_prio"),
            ("int64_t", "prev_state", "prev_state"),
            ("text", "next_comm", "next_comm"),
            ("int32_t", "next_tid", "next_pid"),
            ("int32_t", "next_prio", "next_prio"),
        ],
    ),
    (
        "sched_waking",
        &[
            ("text", "comm", "comm"),
            ("int32_t", "tid", "pid"),
            ("int32_t", "prio", "prio"),
            ("int32_t", "target_cpu", "target_cpu"),
        ],
    ),
    (
        "sched_wakeup_new",
        &[
            ("text", "comm", "comm"),
            ("int32_t", "tid", "pid"),
            ("int32_t", "prio", "prio"),
            ("int32_t", "target_cpu", "target_cpu"),
        ],
    ),
    (
        "sched_migrate_task",
        &[
            ("text", "comm", "comm"),
            ("int32_t", "tid", "pid"),
            ("int32_t", "prio", "prio"),
            ("int32_t", "orig_cpu", "orig_cpu"),
            ("int32_t", "dest_cpu", "dest_cpu"),
        ],
    ),
    (
        "sched_stat_runtime",
        &[("text", "comm", "comm"), ("int32_t", "tid", "pid"), ("uint64_t", "runtime", "runtime")],
    ),
    (
        // child_pid is the process there.
        "sched_process_fork",
        &[
            ("text", "parent_comm", "parent_comm"),
            ("int32_t", "parent_tid", "parent_pid"),
            ("int32_t", "parent_pid", "parent_pid"),
            ("text", "child_comm", "child_comm"),
            ("int32_t", "child_tid", "child_pid"),
            ("int32_t", "child_pid", "parent_pid"),
        ],
    ),
];

const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 32; align = 8; signed = true; } := int32_t;
typealias integer { size = 64; align = 8; signed = true; } := int64_t;
trace { major = 1; minor = 8; byte_order = le;
    packet.header := struct { uint32_t magic; uint32_t stream_id; }; };
env { domain = \"kernel\"; tracer_name = \"lttng-modules\"; tracer_major = 2; tracer_minor = 13; };
clock { name = \"monotonic\"; freq = 1000000000; offset = 0; };
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := clock_t;
stream { id = 0;
    packet.context := struct { clock_t timestamp_begin; clock_t timestamp_end;
        uint64_t content_size; uint64_t packet_size; uint64_t events_discarded; uint32_t cpu_id; };
    event.header := struct { uint32_t id; clock_t timestamp; }; };
";

impl CtfTrace<'_> {
    /// Writes it into a directory.
    pub(crate) fn write(&self, directory: &Path) {
        std::fs::create_dir_all(directory).unwrap();
        let mut metadata = METADATA.to_owned();
        if self.stacks {
            let context = "timestamp; };
    event.context := struct { uint32_t _callstack_kernel_length;
        integer { size = 64; align = 8; base = x; } callstack_kernel[_callstack_kernel_length]; }; };";
            metadata = metadata.replace("timestamp; }; };", context);
            assert!(metadata.contains("event.context"));
        }
        for (id, (name, fields)) in CLASSES.iter().enumerate() {
            let field = |(kind, name, _): &(&str, &str, &str)| match *kind {
                "text" => format!("integer {{ size = 8; encoding = UTF8; }} _{name}[16]; "),
                _ => format!("{kind} _{name}; "),
            };
            let fields: String = fields.iter().map(field).collect();
            metadata += &format!(
                "event {{ name = \"{name}\"; id = {id}; stream_id = 0; fields := struct {{ {fields}}}; }};\n"
            );
        }
        std::fs::write(directory.join("metadata"), metadata).unwrap();
        let cpus: BTreeSet<u32> = self.records.iter().map(|r| r.cpu).collect();
        for cpu in cpus {
            std::fs::write(directory.join(format!("stream_{cpu}")), self.stream(cpu)).unwrap();
        }
    }

    fn stream(&self, cpu: u32) -> Vec<u8> {
        let of_cpu: Vec<&SchedRecord> = self.records.iter().filter(|r| r.cpu == cpu).collect();
        let (mut stream, mut discarded) = (Vec::new(), 0u64);
        for (n, packet) in of_cpu.chunks(self.packet).enumerate() {
            if (self.without)(cpu, n) {
                discarded += packet.len() as u64;
                continue;
            }
            let events: Vec<u8> = packet.iter().flat_map(|r| r.to_ctf(self.stacks)).collect();
            let bits = (8 + 5 * 8 + 4 + events.len() as u64) * 8;
            stream.extend(0xc1fc_1fc1_u32.to_le_bytes());
            stream.extend(0u32.to_le_bytes());
            let times = [packet[0].time, packet[packet.len() - 1].time];
            times
                .iter()
                .chain(&[bits, bits, discarded])
                .for_each(|n| stream.extend(n.to_le_bytes()));
            stream.extend(cpu.to_le_bytes());
            stream.extend(events);
        }
        stream
    }
}

impl SchedRecord {
    fn to_ctf(&self, stacks: bool) -> Vec<u8> {
        let id = CLASSES.iter().position(|(name, _)| *name == self.event).unwrap();
        let mut out = (id as u32).to_le_bytes().to_vec();
        out.extend(self.time.to_le_bytes());
        if stacks {
            out.extend(2u32.to_le_bytes());
            [self.time, 0xfff].iter().for_each(|address| out.extend(address.to_le_bytes()));
        }
        for (kind, _, name) in CLASSES[id].1 {
            let value = &self.fields[name];
            let number = || value.as_i64().unwrap_or_else(|| panic!("{name}: {}", self.fields));
            match *kind {
                "text" => {
                    let mut text = value.as_str().unwrap().as_bytes().to_vec();
                    text.resize(16, 0);
                    out.extend(text);
                }
                "int32_t" => out.extend((number() as i32).to_le_bytes()),
                _ => out.extend(number().to_le_bytes()),
            }
        }
        out
    }
}
