//! `kymo trace -i`: the system calls of a recording, as the lines that are shown while they
//! happen.

use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use kymo_analysis::syscalls::{SyscallDecoder, SyscallEvent};
use kymo_events::{EventSelection, EventSource, ReadOptions, RecordedEvent, TaskInfo};
use kymo_format::EventFormat;
use kymo_kernel::tracefs::Tracefs;
use kymo_model::NoteKind;
use kymo_render::syscalls::{SyscallLines, TaskInspector, syscall_name, syscall_number};
use kymo_view::Ledger;
use rustc_hash::FxHashMap;

use super::live_output::is_coloured;
use super::{Args, syscalls};
use crate::args::symbols::SymbolArgs;
use crate::exit;

/// Names of tasks that are kept: those of the calls that are under way come again.
const MOST_NAMES: usize = 1 << 18;
/// Text that is kept before it is written.
const BUFFER: usize = 1 << 16;

pub(super) fn run(args: &Args, path: &Path) -> anyhow::Result<ExitCode> {
    if !args.events.is_empty() {
        bail!("-i shows system calls: `kymo script` shows the events of a recording");
    }
    let source = EventSource::open(&[path.to_owned()], SymbolArgs::default().options(path))?;
    let architecture = source.architecture();
    if let Some(other) = architecture.filter(|name| name != std::env::consts::ARCH) {
        bail!("system calls of {other} are not described here: `kymo syscalls report` counts them");
    }
    let mut selection = EventSelection::of_tasks(args.comm.clone(), args.pids()?, args.tid.clone());
    if let Some(cpus) = &args.cpu {
        selection.set_cpus(cpus)?;
    }
    let only = syscalls::numbers(&args.call.calls)?;
    let tasks = RecordedTasks { tracefs: Tracefs::open().ok(), names: FxHashMap::default() };
    let style = syscalls::style(args, (is_coloured(), true), false);
    let mut lines = SyscallLines::new(None, tasks, style, None, args.count).with_calls(only);
    let mut decoder = SyscallDecoder::new(syscall_name);
    let mut failed = Ok(());
    let options = ReadOptions::default();
    let summary = source.for_each(&selection, options, &mut |event| {
        if !args.call.filter_pids.contains(&event.task().tid.unwrap_or(0)) {
            take(&mut lines, &mut decoder, event);
        }
        if lines.output.len() >= BUFFER {
            failed = syscalls::flush(&mut lines.output);
        }
        match failed.is_err() || lines.is_full() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    })?;
    failed?;
    lines.finish();
    syscalls::flush(&mut lines.output)?;
    let mut ledger = Ledger::from_notes(summary.notes(&source));
    lines.note(&mut |note| ledger.push(note));
    if lines.inspected == 0 {
        let advice = "`kymo syscalls record` and `perf trace record` make such a recording";
        ledger.tell(NoteKind::Nothing, "there are no system calls", Some(advice.into()));
    }
    if !args.quiet {
        exit::tell(&ledger);
    }
    let damage = summary.is_damaged(&source).then_some("damaged; what can be read was shown");
    Ok(exit::status(source.name(), damage, &ledger, args.strict))
}

/// Takes an event, if it is of a call or of the life of a program.
fn take(
    lines: &mut SyscallLines<RecordedTasks>,
    decoder: &mut SyscallDecoder,
    event: &RecordedEvent<'_>,
) {
    let cpu = event.cpu().unwrap_or(0);
    if let Some(count) = event.lost {
        lines.lost(cpu, Some(count).filter(|count| *count > 0));
    }
    let (Some(tid), Some(time)) = (event.task().tid, event.time) else { return };
    let tid = tid as i32;
    let decoded = decoder.decode(event);
    if decoded.is_some() {
        let names = &mut lines.inspector_mut().names;
        if names.len() >= MOST_NAMES {
            names.clear();
        }
        names.insert(tid, *event.task());
    }
    let number = |call: kymo_analysis::syscalls::CallId| {
        let info = decoder.calls.get(call.0 as usize)?;
        info.number.or_else(|| syscall_number(&info.name))
    };
    match decoded {
        Some(SyscallEvent::Enter(call, arguments)) => {
            let texts = arguments.texts.into_iter().map(|(n, text)| (n, text.into_bytes()));
            if let Some(number) = number(call) {
                lines.recorded_entry((tid, time), number, arguments.words, texts.collect());
            }
        }
        Some(SyscallEvent::Exit(call, value)) => {
            if let Some(number) = number(call) {
                lines.recorded_exit(cpu, (tid, time), number, value);
            }
        }
        None if event.class.is_named("sched:sched_process_exec") => {
            let name = event.class.field("filename").map(|id| event.fields().text(id).to_vec());
            lines.execute(tid, name.unwrap_or_default());
        }
        None if event.class.is_named("sched:sched_process_exit") => lines.end_task(tid),
        None => {}
    }
}

/// Tasks of a recording: their names, and nothing of their memory.
struct RecordedTasks {
    /// Where this machine's calls are described.
    tracefs: Option<Tracefs>,
    /// By thread, as of its last call.
    names: FxHashMap<i32, TaskInfo>,
}

impl TaskInspector for RecordedTasks {
    fn call_format(&self, name: &str) -> Option<EventFormat> {
        let text = self.tracefs.as_ref()?.event_format("syscalls", name).ok()?;
        EventFormat::parse(&text).ok()
    }

    fn read_text(&self, _tid: i32, _address: u64, _most: usize) -> Option<(Vec<u8>, bool)> {
        None
    }

    fn read_memory(&self, _tid: i32, _address: u64, _buffer: &mut [u8]) -> Option<usize> {
        None
    }

    fn descriptor_path(&self, _tid: i32, _fd: i32) -> Option<String> {
        None
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
