//! Events of block requests as one enumeration. Fields of kernels 4.18 to 6.18 and of LTTng,
//! whose `rwbs` is a number.

use std::fmt;

use kymo_events::{FieldReader, FieldType, LayoutMemo, RecordedClass, RecordedEvent, TaskInfo};

/// A block device, as the kernel numbers it within.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockDevice(pub u32);

impl BlockDevice {
    /// Major and minor number.
    pub fn numbers(self) -> (u32, u32) {
        (self.0 >> 20, self.0 & 0xf_ffff)
    }
}

impl fmt::Display for BlockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.numbers();
        f.pad(&format!("{major},{minor}"))
    }
}

/// Operation of a block request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockOp {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Discarding or erasing.
    Discard,
    /// Emptying the device's cache.
    Flush,
    /// A command of the driver, or another one.
    #[default]
    Other,
}

impl BlockOp {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            BlockOp::Read => "read",
            BlockOp::Write => "write",
            BlockOp::Discard => "discard",
            BlockOp::Flush => "flush",
            BlockOp::Other => "other",
        }
    }

    /// Reads `rwbs`: the operation, behind an `F` if a flush comes before it.
    pub(super) fn of_text(rwbs: &[u8]) -> BlockOp {
        let op = match rwbs {
            [b'F', op @ (b'W' | b'D' | b'R' | b'N' | b'F'), ..] | [op, ..] => *op,
            [] => b'N',
        };
        match op {
            b'R' => BlockOp::Read,
            b'W' => BlockOp::Write,
            b'D' => BlockOp::Discard,
            b'F' => BlockOp::Flush,
            _ => BlockOp::Other,
        }
    }

    /// Reads LTTng's flags.
    pub(super) fn of_flags(rwbs: i64) -> BlockOp {
        match rwbs {
            f if f & 1 != 0 => BlockOp::Write,
            f if f & (1 << 1 | 1 << 7) != 0 => BlockOp::Discard,
            f if f & 1 << 2 != 0 => BlockOp::Read,
            f if f & (1 << 8 | 1 << 10) != 0 => BlockOp::Flush,
            _ => BlockOp::Other,
        }
    }
}

/// Part of a request's life that an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockPhase {
    /// It is made.
    Get,
    /// It is queued.
    Insert,
    /// It goes to the driver.
    Issue,
    /// The driver gives it back.
    Requeue,
    /// It becomes part of another one.
    Merge,
    /// It, or a part of it, is done.
    Complete,
}

const PHASES: [(&str, BlockPhase); 6] = [
    ("block:block_getrq", BlockPhase::Get),
    ("block:block_rq_insert", BlockPhase::Insert),
    ("block:block_rq_issue", BlockPhase::Issue),
    ("block:block_rq_requeue", BlockPhase::Requeue),
    ("block:block_rq_merge", BlockPhase::Merge),
    ("block:block_rq_complete", BlockPhase::Complete),
];

/// An event of a request.
#[derive(Clone, Copy, Debug)]
pub struct BlockEvent {
    /// Phase of the request.
    pub phase: BlockPhase,
    /// Its device.
    pub device: BlockDevice,
    /// Its first sector of 512 bytes.
    pub sector: u64,
    /// Number of sectors.
    pub sectors: u64,
    /// Bytes, where the event states them.
    pub bytes: Option<u64>,
    /// Operation of the request.
    pub op: BlockOp,
    /// Error of a completion.
    pub error: i32,
    /// The task, by the name that the event itself has, if it has one.
    pub task: TaskInfo,
}

#[derive(Clone, Copy, Debug)]
struct EventPlan {
    phase: BlockPhase,
    device: FieldReader,
    sector: FieldReader,
    sectors: FieldReader,
    bytes: Option<FieldReader>,
    rwbs: FieldReader,
    /// Whether `rwbs` is text.
    is_text: bool,
    error: Option<FieldReader>,
    comm: Option<FieldReader>,
    tid: Option<FieldReader>,
}

impl EventPlan {
    fn of(class: &RecordedClass) -> Option<EventPlan> {
        let (_, phase) = PHASES.iter().find(|(name, _)| class.is_named(name))?;
        let reader = |name: &str| class.field(name).map(|id| class.reader(id));
        let rwbs = class.field("rwbs")?;
        Some(EventPlan {
            phase: *phase,
            device: reader("dev")?,
            sector: reader("sector")?,
            sectors: reader("nr_sector")?,
            bytes: reader("bytes"),
            rwbs: class.reader(rwbs),
            is_text: class.field_desc(rwbs)?.field_type == FieldType::Text,
            error: reader("error").or_else(|| reader("errors")),
            comm: reader("comm"),
            tid: reader("tid"),
        })
    }

    #[inline]
    fn decode(&self, event: &RecordedEvent<'_>) -> Option<BlockEvent> {
        let fields = event.fields();
        let number = |field: &FieldReader| fields.read_integer(field).map(|n| n as u64);
        let op = if self.is_text {
            BlockOp::of_text(&fields.read_text(&self.rwbs))
        } else {
            BlockOp::of_flags(fields.read_integer(&self.rwbs)?)
        };
        Some(BlockEvent {
            phase: self.phase,
            device: BlockDevice(number(&self.device)? as u32),
            // Completions of requests without sectors have -1, where issues have 0.
            sector: number(&self.sector).map(|n| if n == u64::MAX { 0 } else { n })?,
            sectors: number(&self.sectors)? & 0xffff_ffff,
            bytes: self.bytes.as_ref().and_then(number).map(|n| n & 0xffff_ffff),
            op,
            error: self.error.as_ref().and_then(number).unwrap_or(0) as i32,
            task: self.task(event),
        })
    }

    fn task(&self, event: &RecordedEvent<'_>) -> TaskInfo {
        let (task, fields) = (*event.task(), event.fields());
        let told = self.tid.as_ref().and_then(|f| fields.read_integer(f));
        let tid = task.tid.or(told.and_then(|tid| u32::try_from(tid).ok()));
        match self.comm.as_ref().map(|f| fields.read_text(f)) {
            Some(comm) if !comm.is_empty() => TaskInfo::new(task.pid, tid, &comm),
            _ => task,
        }
    }
}

/// Decodes events, class by class.
#[derive(Debug, Default)]
pub struct BlockDecoder {
    plans: LayoutMemo<Option<EventPlan>>,
    /// Events that lack a field, or end before it.
    pub malformed: u64,
}

impl BlockDecoder {
    /// The event, if it is of a block request.
    #[inline]
    pub fn decode(&mut self, event: &RecordedEvent<'_>) -> Option<BlockEvent> {
        let plan = self.plans.get_or_make(event.class, EventPlan::of)?.as_ref()?;
        let decoded = plan.decode(event);
        self.malformed += u64::from(decoded.is_none());
        decoded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_those_of_the_flags() {
        let text = |t: &[u8]| BlockOp::of_text(t).name();
        let all = [&b"R"[..], b"RA", b"WFS", b"FWFSM", b"FF", b"FS", b"FDS", b"DE", b"N", b""];
        let names =
            ["read", "read", "write", "write", "flush", "flush", "discard", "discard", "other"];
        assert_eq!(all.map(text), [&names[..], &["other"]].concat()[..]);
        let flags = [4, 1 | 1 << 10, 2, 1 << 10, 0].map(|f| BlockOp::of_flags(f).name());
        assert_eq!(flags, ["read", "write", "discard", "flush", "other"]);
        assert_eq!(BlockDevice(254 << 20 | 16).to_string(), "254,16");
    }
}
