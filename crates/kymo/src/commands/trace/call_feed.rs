//! Events of system calls that come with what samples hold, of a recording or out of perf
//! rings, as lines: stacks below the calls that end, faults of pages among them.

use std::io::Write as _;

use kymo_analysis::syscalls::{COMPAT_CALLS, CallId, SyscallDecoder, SyscallEvent};
use kymo_events::{EventSwitch, RecordedEvent, SwitchState};
use kymo_format::json_string;
use kymo_model::Note;
use kymo_render::perf_script::{ChainLines, ChainOptions, FrameAddresses, SourceOptions};
use kymo_render::syscalls::{SampledCall, SyscallLines, syscall_number};

use super::Args;
use super::sampled::RUNTIME;
use super::traced_tasks::TracedTasks;

/// Frames of a stack that are shown, as perf's.
const MAX_STACK: usize = 127;

/// Takes events and makes lines of them.
pub(super) struct CallFeed<'a> {
    args: &'a Args,
    decoder: SyscallDecoder,
    chains: ChainLines,
    switch: (EventSwitch, SwitchState),
    /// This process, whose events are of no interest where those of the machine are taken.
    own: Option<u32>,
}

impl<'a> CallFeed<'a> {
    pub(super) fn new(args: &'a Args) -> CallFeed<'a> {
        let max_stack = args.sampled.max_stack.map_or(MAX_STACK, usize::from);
        let sources = SourceOptions { inlines: true, full_paths: false };
        let addresses = FrameAddresses::Binary;
        let switch = args.sampled.switch.switch();
        let state = SwitchState::new(&switch);
        let is_live = args.input.is_none();
        let own = is_live && args.is_of_machine().unwrap_or(true);
        CallFeed {
            args,
            own: own.then(std::process::id),
            switch: (switch, state),
            // Calls are named by their lines: here each number is a call of its own.
            decoder: SyscallDecoder::of_numbers(),
            chains: ChainLines::new(ChainOptions { max_stack, addresses, sources }),
        }
    }

    /// Takes an event, if it is of a call, of a page, or of the life of a program.
    pub(super) fn take(
        &mut self,
        lines: &mut SyscallLines<TracedTasks>,
        event: &RecordedEvent<'_>,
    ) {
        let cpu = event.cpu().unwrap_or(0);
        if let Some(count) = event.lost {
            lines.lost(cpu, Some(count).filter(|count| *count > 0));
        }
        let (Some(tid), Some(time)) = (event.task().tid, event.time) else { return };
        let is_own = self.own.is_some() && event.task().pid == self.own;
        if is_own || self.args.call.filter_pids.contains(&tid) {
            return;
        }
        let tid = tid as i32;
        let name = &event.class.full_name;
        let (switch, state) = &mut self.switch;
        let is_wanted = !switch.is_given() || state.wants(switch, name);
        if [&switch.on, &switch.off].contains(&&Some(name.clone())) && !is_call(name) {
            if is_wanted && switch.is_inclusive {
                lines.inspector_mut().note_task(tid, event.task());
                self.other_event(lines, (cpu, tid, time), event);
            }
            return;
        }
        let decoded = self.decoder.decode(event);
        if decoded.is_some() && !is_wanted {
            // What comes when it is on again is of another call.
            return lines.forget_call(tid);
        }
        let fault = page_fault(name).filter(|_| is_wanted);
        if decoded.is_some() || fault.is_some() {
            lines.inspector_mut().note_task(tid, event.task());
        }
        match decoded {
            Some(SyscallEvent::Enter(call, arguments)) => {
                let texts = arguments.texts.into_iter().map(|(n, text)| (n, text.into_bytes()));
                if let Some(number) = self.number(call) {
                    let is_32_bit = self.decoder.is_of_32_bit_program(event);
                    lines.inspector_mut().note_word_size(tid, is_32_bit);
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
                let before = event.class.field("old_pid").and_then(|id| event.fields().integer(id));
                let before = before.and_then(|n| i32::try_from(n).ok()).unwrap_or(tid);
                lines.execute((tid, time), before, name.unwrap_or_default());
            }
            None if event.class.is_named("sched:sched_process_exit") => {
                let comm = event.class.field("comm").map(|id| event.fields().text(id).to_vec());
                lines.end_task(tid, comm.as_deref());
            }
            None if event.class.is_named(RUNTIME) && is_wanted && self.args.sampled.sched => {
                lines.inspector_mut().note_task(tid, event.task());
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

    /// Note about numbers of calls whose width is not known.
    pub(super) fn width_note(&self) -> Option<Note> {
        self.decoder.width_note()
    }

    fn number(&self, call: CallId) -> Option<i64> {
        let info = self.decoder.calls.get(call.0 as usize)?;
        let plain = |number| match number >= COMPAT_CALLS {
            // Invalid numbers have a sign.
            true => i64::from(number as i32),
            false => number,
        };
        info.number.map(plain).or_else(|| syscall_number(&info.name))
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
        lines: &mut SyscallLines<TracedTasks>,
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
        lines: &mut SyscallLines<TracedTasks>,
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

/// Kind of page fault of an event, as perf names it.
fn page_fault(event: &str) -> Option<&'static str> {
    match event.split(':').next()? {
        "major-faults" => Some("maj"),
        "minor-faults" => Some("min"),
        _ => None,
    }
}
