//! Events of system calls that come with what samples hold, of a recording or out of perf
//! rings, as lines: stacks below the calls that end, faults of pages among them.

use std::io::Write as _;

use kymo_analysis::syscalls::{CallId, SyscallDecoder, SyscallEvent};
use kymo_bpf::{MemoryPiece, MemoryRead};
use kymo_events::{EventSwitch, RecordedEvent, SwitchState, TaskInfo};
use kymo_format::{EventFormat, json_string};
use kymo_kernel::tracefs::Tracefs;
use kymo_render::perf_script::{ChainLines, ChainOptions, SourceOptions};
use kymo_render::syscalls::{
    SampledCall, SyscallLines, TaskInspector, syscall_name, syscall_number,
};
use rustc_hash::FxHashMap;

use super::Args;
use super::sampled::RUNTIME;
use super::syscalls::RunningTasks;

/// Names of tasks that are kept: those of the calls that are under way come again.
const MOST_NAMES: usize = 1 << 18;
/// Frames of a stack that are shown, as perf's.
const MAX_STACK: usize = 127;

/// Takes events and makes lines of them.
pub(super) struct CallFeed<'a> {
    args: &'a Args,
    decoder: SyscallDecoder,
    chains: ChainLines,
    switch: (EventSwitch, SwitchState),
}

impl<'a> CallFeed<'a> {
    pub(super) fn new(args: &'a Args) -> CallFeed<'a> {
        let max_stack = args.sampled.max_stack.map_or(MAX_STACK, usize::from);
        let sources = SourceOptions { inlines: true, full_paths: false };
        let switch = args.sampled.switch.switch();
        let state = SwitchState::new(&switch);
        CallFeed {
            args,
            switch: (switch, state),
            decoder: SyscallDecoder::new(syscall_name),
            chains: ChainLines::new(ChainOptions { max_stack, sources }),
        }
    }

    /// Takes an event, if it is of a call, of a page, or of the life of a program.
    pub(super) fn take(
        &mut self,
        lines: &mut SyscallLines<SampledTasks>,
        event: &RecordedEvent<'_>,
    ) {
        let cpu = event.cpu().unwrap_or(0);
        if let Some(count) = event.lost {
            lines.lost(cpu, Some(count).filter(|count| *count > 0));
        }
        let (Some(tid), Some(time)) = (event.task().tid, event.time) else { return };
        if self.args.call.filter_pids.contains(&tid) {
            return;
        }
        let tid = tid as i32;
        let name = &event.class.full_name;
        let (switch, state) = &mut self.switch;
        let is_wanted = !switch.is_given() || state.wants(switch, name);
        if [&switch.on, &switch.off].contains(&&Some(name.clone())) && !is_call(name) {
            if is_wanted && switch.is_inclusive {
                lines.inspector_mut().note_name(tid, event.task());
                self.other_event(lines, (cpu, tid, time), event);
            }
            return;
        }
        let decoded = self.decoder.decode(event).filter(|_| is_wanted);
        let fault = page_fault(name).filter(|_| is_wanted);
        if decoded.is_some() || fault.is_some() {
            lines.inspector_mut().note_name(tid, event.task());
        }
        match decoded {
            Some(SyscallEvent::Enter(call, arguments)) => {
                let texts = arguments.texts.into_iter().map(|(n, text)| (n, text.into_bytes()));
                if let Some(number) = self.number(call) {
                    lines.recorded_entry((tid, time), number, arguments.words, texts.collect());
                }
            }
            Some(SyscallEvent::Exit(call, value)) => {
                if let Some(number) = self.number(call) {
                    let sampled = self.sampled(event);
                    lines.recorded_exit(cpu, (tid, time), (number, value), sampled);
                }
            }
            None if event.class.is_named("sched:sched_process_exec") => {
                let name = event.class.field("filename").map(|id| event.fields().text(id).to_vec());
                lines.execute(tid, name.unwrap_or_default());
            }
            None if event.class.is_named("sched:sched_process_exit") => lines.end_task(tid),
            None if event.class.is_named(RUNTIME) && is_wanted && self.args.sampled.sched => {
                lines.inspector_mut().note_name(tid, event.task());
                let cgroup = event.cgroup().filter(|_| self.args.call.has_cgroups());
                let field = event.class.field("runtime");
                if let Some(nanos) = field.and_then(|id| event.field(id).number()) {
                    lines.add_runtime(tid, cgroup.as_ref(), nanos as u64);
                }
            }
            None => {
                if let Some(fault) = fault {
                    self.page_fault(lines, (cpu, tid, time), fault, event);
                }
            }
        }
    }

    fn number(&self, call: CallId) -> Option<i64> {
        let info = self.decoder.calls.get(call.0 as usize)?;
        info.number.or_else(|| syscall_number(&info.name))
    }

    fn sampled(&mut self, event: &RecordedEvent<'_>) -> SampledCall {
        let least = self.args.sampled.min_stack.map_or(0, usize::from);
        SampledCall {
            is_too_short: least > 0 && event.call_chain().len() < least,
            stack: self.chains.frames_text(event, self.args.json),
            cgroup: event.cgroup().filter(|_| self.args.call.has_cgroups()),
        }
    }

    /// An event that switches.
    fn other_event(
        &self,
        lines: &mut SyscallLines<SampledTasks>,
        (cpu, tid, time): (u32, i32, u64),
        event: &RecordedEvent<'_>,
    ) {
        let mut text = Vec::new();
        event.write_perf_text(&mut text);
        let mut words = Vec::new();
        if self.args.json {
            words.extend_from_slice(b"\"event\":");
            json_string(&mut words, event.class.full_name.as_bytes());
            words.extend_from_slice(b",\"text\":");
            json_string(&mut words, &text);
        } else {
            let _ = write!(words, "{}:", event.class.full_name);
            if !text.is_empty() {
                words.push(b' ');
            }
            words.extend_from_slice(&text);
        }
        lines.other_event(cpu, (tid, time), &words, &[]);
    }

    fn page_fault(
        &mut self,
        lines: &mut SyscallLines<SampledTasks>,
        (cpu, tid, time): (u32, i32, u64),
        fault: &str,
        event: &RecordedEvent<'_>,
    ) {
        let Some((code, data)) = self.chains.places_text(event) else { return };
        let sampled = self.sampled(event);
        if sampled.is_too_short {
            return;
        }
        let mut words = Vec::new();
        if self.args.json {
            let _ = write!(words, "\"fault\":\"{fault}\",\"code\":");
            json_string(&mut words, code.as_bytes());
            words.extend_from_slice(b",\"address\":");
            json_string(&mut words, data.as_bytes());
        } else {
            let _ = write!(words, "{fault}fault [{code}] => {data}");
        }
        lines.other_event(cpu, (tid, time), &words, &sampled.stack);
    }
}

/// Whether an event is that of all calls; those of single calls are of calls that come as these,
/// too.
fn is_call(event: &str) -> bool {
    event.starts_with("raw_syscalls:")
}

/// Which faults of pages an event tells of, as perf names them.
fn page_fault(event: &str) -> Option<&'static str> {
    match event.split(':').next()? {
        "major-faults" => Some("maj"),
        "minor-faults" => Some("min"),
        _ => None,
    }
}

/// Tasks by what samples tell of them; of their memory and descriptors only those that still run
/// can tell.
pub(super) struct SampledTasks {
    /// Where this machine's calls are described.
    tracefs: Option<Tracefs>,
    /// By thread, as of its last event.
    names: FxHashMap<i32, TaskInfo>,
    running: Option<RunningTasks>,
}

impl SampledTasks {
    pub(super) fn of_recording() -> SampledTasks {
        let tracefs = Tracefs::open().ok();
        SampledTasks { tracefs, names: FxHashMap::default(), running: None }
    }

    pub(super) fn live(running: RunningTasks) -> SampledTasks {
        SampledTasks { running: Some(running), ..SampledTasks::of_recording() }
    }

    fn note_name(&mut self, tid: i32, task: &TaskInfo) {
        if self.names.len() >= MOST_NAMES {
            self.names.clear();
        }
        self.names.insert(tid, *task);
    }
}

impl TaskInspector for SampledTasks {
    fn call_format(&self, name: &str) -> Option<EventFormat> {
        let text = self.tracefs.as_ref()?.event_format("syscalls", name).ok()?;
        EventFormat::parse(&text).ok()
    }

    // An event is read long after its call may have ended.
    fn read_text(&self, _tid: i32, _address: u64, _most: usize) -> Option<(Vec<u8>, bool)> {
        None
    }

    fn read_memory(&self, _tid: i32, _address: u64, _buffer: &mut [u8]) -> Option<usize> {
        None
    }

    fn descriptor_path(&self, _tid: i32, _fd: i32) -> Option<String> {
        None
    }

    fn describe(&self, number: i64, reads: &[MemoryRead]) -> bool {
        self.running.as_ref().is_some_and(|running| running.describe(number, reads))
    }

    fn reads_calls(&self) -> bool {
        self.running.as_ref().is_some_and(TaskInspector::reads_calls)
    }

    fn memory_at_entry(
        &mut self,
        event: (i32, u64),
        number: i64,
        args: &[u64; 6],
    ) -> Vec<MemoryPiece> {
        let running = self.running.as_mut();
        running.map(|r| r.memory_at_entry(event, number, args)).unwrap_or_default()
    }

    fn memory_at_exit(&mut self, event: (i32, u64), number: i64, result: i64) -> Vec<MemoryPiece> {
        let running = self.running.as_mut();
        running.map(|r| r.memory_at_exit(event, number, result)).unwrap_or_default()
    }

    fn forget_memory(&mut self, tid: Option<i32>) {
        if let Some(running) = &mut self.running {
            running.forget_memory(tid);
        }
    }

    fn process_of(&self, tid: i32) -> Option<i32> {
        self.names.get(&tid)?.pid?.try_into().ok()
    }

    fn monotonic_time(&self) -> u64 {
        0
    }

    fn refresh_names(&mut self) {}

    fn task_name(&mut self, tid: i32) -> &[u8] {
        self.names.get(&tid).map_or(b"", TaskInfo::comm)
    }
}
