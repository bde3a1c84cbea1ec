//! The formats of a trace.dat. It holds those of every event of the kernel,
//! some 2,000, of which a recording uses a few: each is read when its first
//! event comes.

use std::sync::OnceLock;

use kymo_files::Machine;
use kymo_files::tracedat::TraceDat;
use kymo_format::{EventFormat, Field, FieldKind, ParseOptions};
use kymo_model::{Endian, UntrustedText};

use super::{GraphEvent, NameChange, TaskGroupEvent};

/// A format that was read.
pub struct KnownEvent {
    /// Its fields and print format.
    pub format: EventFormat,
    /// `system:name`.
    pub full_name: String,
    /// The name as it begins a line of text: `name:`, at least 21 columns, a blank.
    pub column: Vec<u8>,
    /// Fields that name a task, each with the field of its number.
    pub names_of_tasks: Vec<(Field, Field)>,
    /// The event changes the name of a task.
    pub name_change: Option<NameChange>,
    /// The event is the kernel stack of the one before it.
    pub stack: Option<StackFormat>,
    /// The event is the program's stack of the one before it.
    pub user_stack: Option<StackFormat>,
    /// The event is one of the function-graph tracer.
    pub graph: Option<GraphEvent>,
    /// The event says which process a thread is of.
    pub group: Option<TaskGroupEvent>,
}

/// Location of the entries of a stack.
pub struct StackFormat {
    offset: usize,
    size: Option<Field>,
    process: Option<Field>,
    long_size: u8,
}

impl StackFormat {
    fn of(format: &EventFormat, name: &str, long_size: u8) -> Option<StackFormat> {
        if format.system != "ftrace" || format.name != name {
            return None;
        }
        let offset = format.field("caller")?.offset as usize;
        let field = |name: &str| format.field(name).cloned();
        Some(StackFormat { offset, size: field("size"), process: field("tgid"), long_size })
    }

    /// The process whose addresses these are, if they are a program's.
    pub fn process(&self, payload: &[u8], endian: Endian) -> Option<i32> {
        self.process.as_ref()?.int(payload, endian)?.try_into().ok()
    }

    /// The entries, innermost first. The field is declared with eight; `size` and the payload limit
    /// their number.
    pub fn entries(&self, payload: &[u8], endian: Endian) -> impl Iterator<Item = u64> {
        let long = usize::from(self.long_size);
        let size = self.size.as_ref().and_then(|f| f.int(payload, endian));
        let most = size.map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(0));
        let words = payload.get(self.offset..).unwrap_or(&[]).chunks_exact(long).take(most);
        let end = if long == 4 { u64::from(u32::MAX) } else { u64::MAX };
        words
            .filter_map(move |w| match w.first_chunk() {
                Some(word) => Some(endian.u64(*word)),
                None => w.first_chunk().map(|word| u64::from(endian.u32(*word))),
            })
            // Old kernels end a stack so.
            .take_while(move |address| *address != end)
    }
}

struct Entry<'m> {
    system: &'m str,
    text: &'m str,
    known: OnceLock<Result<Box<KnownEvent>, String>>,
}

/// Offsets of the fields common to all events.
#[derive(Clone, Copy, Debug)]
struct Common {
    flags: usize,
    preempt_count: usize,
    pid: usize,
}

const NONE: u32 = u32::MAX;

/// The formats by the number in `common_type`.
pub struct FormatTable<'m> {
    entries: Vec<Entry<'m>>,
    /// Their places by number; `NONE` where there is no format.
    by_id: Vec<u32>,
    common: Common,
    /// Byte order of payloads.
    pub endian: Endian,
    long_size: u8,
}

impl<'m> FormatTable<'m> {
    /// Finds the formats that the file carries; each is parsed when it is first asked for.
    pub fn new(data: &'m TraceDat) -> FormatTable<'m> {
        let machine: &Machine = data.machine();
        let own = machine.ftrace_formats.iter().map(|t| ("ftrace", t.as_str()));
        let others = machine.formats.iter().map(|(s, t)| (s.as_str(), t.as_str()));
        let entries: Vec<Entry<'_>> = own
            .chain(others)
            .map(|(system, text)| Entry { system, text, known: OnceLock::new() })
            .collect();
        let id = |e: &Entry<'_>| id_of(e.text);
        // Numbers are 16 bits wide.
        let mut by_id = Vec::new();
        for (i, e) in entries.iter().enumerate() {
            let Some(id) = id(e).filter(|id| *id <= u32::from(u16::MAX)) else { continue };
            by_id.resize(by_id.len().max(id as usize + 1), NONE);
            if let Some(place) = by_id.get_mut(id as usize) {
                *place = i as u32;
            }
        }
        let mut formats = FormatTable {
            by_id,
            entries,
            common: Common { flags: 2, preempt_count: 3, pid: 4 },
            endian: data.endian(),
            long_size: data.long_size(),
        };
        let first = formats.iter().find_map(Result::ok);
        if let Some(f) = first.map(|known| &known.format) {
            let at = |name: &str, or: usize| f.field(name).map_or(or, |f| f.offset as usize);
            formats.common = Common {
                flags: at("common_flags", 2),
                preempt_count: at("common_preempt_count", 3),
                pid: at("common_pid", 4),
            };
        }
        formats
    }

    /// All formats in the order of the file, or why they cannot be read.
    pub fn iter(&self) -> impl Iterator<Item = Result<&KnownEvent, &str>> {
        self.entries.iter().map(|e| self.known(e))
    }

    #[inline]
    fn known<'s>(&self, e: &'s Entry<'m>) -> Result<&'s KnownEvent, &'s str> {
        let known = match e.known.get() {
            Some(known) => known,
            None => self.parse(e),
        };
        known.as_ref().map(|k| &**k).map_err(String::as_str)
    }

    #[cold]
    fn parse<'s>(&self, e: &'s Entry<'m>) -> &'s Result<Box<KnownEvent>, String> {
        let read = || KnownEvent::parse(e.system, e.text, self.long_size).map(Box::new);
        e.known.get_or_init(read)
    }

    /// The number of a payload's event.
    #[inline]
    pub fn id(&self, payload: &[u8]) -> Option<u16> {
        EventFormat::payload_id(payload, self.endian)
    }

    /// The format with this number.
    #[inline]
    pub fn get(&self, id: u16) -> Result<&KnownEvent, &str> {
        let entry = self.by_id.get(usize::from(id)).and_then(|i| self.entries.get(*i as usize));
        entry.map_or(Err("the recording has no format of it"), |e| self.known(e))
    }

    /// The task of a payload.
    #[inline]
    pub fn pid(&self, payload: &[u8]) -> i32 {
        let bytes = payload.get(self.common.pid..).and_then(|b| b.first_chunk());
        bytes.map_or(-1, |b| self.endian.u32(*b) as i32)
    }

    /// `common_flags` and `common_preempt_count`.
    #[inline]
    pub fn flags(&self, payload: &[u8]) -> (u8, u8) {
        let byte = |at: usize| payload.get(at).copied().unwrap_or(0);
        (byte(self.common.flags), byte(self.common.preempt_count))
    }
}

fn id_of(text: &str) -> Option<u32> {
    text.lines().take(4).find_map(|l| l.strip_prefix("ID:"))?.trim().parse().ok()
}

impl KnownEvent {
    /// Reads a format of tracefs; `long_size`: bytes of a `long`.
    ///
    /// # Errors
    /// If it cannot be parsed.
    pub fn parse(system: &str, text: &str, long_size: u8) -> Result<KnownEvent, String> {
        let options = ParseOptions { long_size, ..ParseOptions::default() };
        let format = EventFormat::parse_with(text, &options).map_err(|e| e.to_string())?;
        let format = format.with_system(system);
        Ok(KnownEvent {
            full_name: format!("{system}:{}", format.name),
            column: column(&format).into_bytes(),
            names_of_tasks: names_of_tasks(&format),
            name_change: NameChange::of(&format),
            stack: StackFormat::of(&format, "kernel_stack", long_size),
            user_stack: StackFormat::of(&format, "user_stack", long_size),
            graph: GraphEvent::of(&format),
            group: TaskGroupEvent::of(&format),
            format,
        })
    }
}

impl KnownEvent {
    /// Whether the event states names of tasks.
    pub fn states_names(&self) -> bool {
        !self.names_of_tasks.is_empty() || self.name_change.is_some()
    }
}

fn column(format: &EventFormat) -> String {
    let name = format!("{}:", UntrustedText::new(&format.name).to_text());
    // This print format brings the blank along.
    if format.system == "ftrace" && format.name == "function" {
        return format!("{name:<21}");
    }
    format!("{name:<21} ")
}

/// `comm` with `pid`, `next_comm` with `next_pid` and so on, of events of the kernel's own:
/// arguments of a probe may have any meaning.
fn names_of_tasks(format: &EventFormat) -> Vec<(Field, Field)> {
    if !matches!(format.system.as_str(), "sched" | "task" | "signal" | "oom") {
        return Vec::new();
    }
    let is_text =
        |f: &&Field| matches!(f.kind, FieldKind::String | FieldKind::DynString { .. }) && !f.common;
    let pairs = format.fields.iter().filter(is_text).filter_map(|comm| {
        let prefix = comm.name.strip_suffix("comm")?;
        let pid = format.field(&format!("{prefix}pid"))?;
        (pid.kind == FieldKind::Int).then(|| (comm.clone(), pid.clone()))
    });
    pairs.collect()
}
