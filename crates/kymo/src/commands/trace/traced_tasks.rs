//! The tasks whose system calls are shown: their names and the memory of their calls, from the
//! machine while they run, or from samples.

use kymo_bpf::{MemoryPiece, MemoryRead};
use kymo_events::TaskInfo;
use kymo_events::live::LiveTaskNames;
use kymo_events::trace_dat::TaskName;
use kymo_format::EventFormat;
use kymo_kernel::tracefs::Tracefs;
use kymo_kernel::{memory, process, target};
use kymo_programs::CallTexts;
use kymo_render::syscalls::{CallMemory, TaskInspector};
use rustc_hash::FxHashMap;

/// Names of tasks that are kept: those of the calls that are under way come again.
const MOST_NAMES: usize = 1 << 18;

/// Tasks that are asked about.
pub(super) struct TracedTasks {
    /// Tree with the formats of this machine's calls.
    tracefs: Option<Tracefs>,
    /// Tasks that run now, whose events are read immediately.
    running: Option<LiveTaskNames>,
    /// The name that was asked for last.
    name: TaskName,
    /// By thread, as of its last event, of tasks that samples tell of.
    sampled: FxHashMap<i32, TaskInfo>,
    /// Programs in the kernel that read what calls point to, where it runs some.
    texts: Option<CallTexts>,
    /// By thread: whether its program is one of 32 bits, where that is known.
    compat: FxHashMap<i32, Option<bool>>,
}

impl TracedTasks {
    /// Tasks that run, and are asked themselves as soon as they have made a call.
    pub(super) fn running(tracefs: Tracefs, texts: Option<CallTexts>) -> TracedTasks {
        let running = Some(LiveTaskNames::new(&tracefs));
        TracedTasks { running, texts, ..TracedTasks::sampled(Some(tracefs)) }
    }

    /// Tasks of which samples tell. Those are read long after the calls may have ended, so that
    /// only programs in the kernel have seen what they pointed to.
    pub(super) fn of_samples(tracefs: Tracefs, texts: Option<CallTexts>) -> TracedTasks {
        TracedTasks { texts, ..TracedTasks::sampled(Some(tracefs)) }
    }

    /// Tasks of a recording.
    pub(super) fn of_recording() -> TracedTasks {
        TracedTasks::sampled(Tracefs::open().ok())
    }

    fn sampled(tracefs: Option<Tracefs>) -> TracedTasks {
        TracedTasks {
            tracefs,
            running: None,
            name: TaskName::default(),
            sampled: FxHashMap::default(),
            texts: None,
            compat: FxHashMap::default(),
        }
    }

    /// Keeps whether the program of a task is one of 32 bits, as its mappings tell.
    pub(super) fn note_word_size(&mut self, tid: i32, is_32_bit: Option<bool>) {
        if self.compat.len() >= MOST_NAMES {
            self.compat.clear();
        }
        self.compat.insert(tid, is_32_bit);
    }

    /// Keeps the facts of a sample about its task.
    pub(super) fn note_task(&mut self, tid: i32, task: &TaskInfo) {
        if self.sampled.len() >= MOST_NAMES {
            self.sampled.clear();
        }
        self.sampled.insert(tid, *task);
    }
}

impl TaskInspector for TracedTasks {
    fn call_format(&self, name: &str) -> Option<EventFormat> {
        let text = self.tracefs.as_ref()?.event_format("syscalls", name).ok()?;
        EventFormat::parse(&text).ok()
    }

    fn read_text(&self, tid: i32, address: u64, most: usize) -> Option<(Vec<u8>, bool)> {
        self.running.as_ref()?;
        memory::read_text(tid as u32, address, most).ok()
    }

    fn read_memory(&self, tid: i32, address: u64, buffer: &mut [u8]) -> Option<usize> {
        self.running.as_ref()?;
        memory::read(tid as u32, address, buffer).ok()
    }

    fn descriptor_path(&self, tid: i32, fd: i32) -> Option<String> {
        self.running.as_ref()?;
        target::descriptor_path(u32::try_from(tid).ok()?, u32::try_from(fd).ok()?)
    }

    fn describe(&self, number: i64, reads: &[MemoryRead]) -> bool {
        let number = u16::try_from(number).ok();
        let texts = self.texts.as_ref().zip(number);
        texts.is_some_and(|(texts, number)| texts.describe(number, reads))
    }

    fn reads_calls(&self) -> bool {
        self.texts.is_some()
    }

    fn memory_at_entry(
        &mut self,
        (tid, time): (i32, u64),
        number: i64,
        args: &[u64; 6],
    ) -> CallMemory {
        let texts = self.texts.as_mut();
        let entry = texts.map(|texts| texts.at_entry((tid as u32, time), number, args));
        entry.map_or_else(CallMemory::default, |entry| CallMemory {
            pieces: entry.pieces,
            is_compat: entry.is_compat,
        })
    }

    fn is_compat_task(&mut self, tid: i32) -> Option<bool> {
        if let Some(known) = self.compat.get(&tid) {
            return *known;
        }
        self.running.as_ref()?;
        let is_compat = target::runs_32_bit(u32::try_from(tid).ok()?);
        if self.compat.len() >= MOST_NAMES {
            self.compat.clear();
        }
        self.compat.insert(tid, is_compat);
        is_compat
    }

    fn forget_program(&mut self, tid: i32) {
        self.compat.remove(&tid);
    }

    fn memory_at_exit(
        &mut self,
        (tid, time): (i32, u64),
        number: i64,
        result: i64,
    ) -> Vec<MemoryPiece> {
        let texts = self.texts.as_mut();
        texts.map(|texts| texts.at_exit((tid as u32, time), number, result)).unwrap_or_default()
    }

    fn forget_memory(&mut self, tid: Option<i32>) {
        match (&mut self.texts, tid) {
            (Some(texts), Some(tid)) => texts.forget(tid as u32),
            (Some(texts), None) => texts.forget_all(),
            (None, _) => {}
        }
    }

    fn process_of(&self, tid: i32) -> Option<i32> {
        match &self.running {
            Some(_) => target::process_of(u32::try_from(tid).ok()?)?.try_into().ok(),
            None => self.sampled.get(&tid)?.pid?.try_into().ok(),
        }
    }

    fn monotonic_time(&self) -> u64 {
        u64::try_from(process::monotonic().as_nanos()).unwrap_or(u64::MAX)
    }

    fn refresh_names(&mut self) {
        if let Some(names) = &mut self.running {
            names.expire();
            names.refresh();
        }
    }

    fn task_name(&mut self, tid: i32) -> &[u8] {
        match &mut self.running {
            Some(names) => {
                self.name = names.get(tid);
                self.name.as_bytes()
            }
            None => self.sampled.get(&tid).map_or(b"", TaskInfo::comm),
        }
    }
}
