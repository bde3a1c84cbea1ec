//! Entries and exits of the function-graph tracer: an entry that is followed
//! by its own exit is a leaf, one line with its duration.

use kymo_format::{EventFormat, Field};
use kymo_model::Endian;

/// Event of the function-graph tracer.
#[derive(Clone, Debug)]
pub enum GraphEvent {
    /// A function begins.
    Entry {
        /// Address of the function.
        func: Field,
        /// Depth of nesting.
        depth: Field,
    },
    /// It ends.
    Exit {
        /// Address of the function.
        func: Field,
        /// Depth of nesting.
        depth: Field,
        /// Time of the entry.
        calltime: Field,
        /// Time of the return.
        rettime: Field,
    },
}

impl GraphEvent {
    pub(super) fn of(format: &EventFormat) -> Option<GraphEvent> {
        if format.system != "ftrace" {
            return None;
        }
        let field = |name: &str| format.field(name).cloned();
        let (func, depth) = (field("func")?, field("depth")?);
        match format.name.as_str() {
            "funcgraph_entry" => Some(GraphEvent::Entry { func, depth }),
            "funcgraph_exit" => {
                let (calltime, rettime) = (field("calltime")?, field("rettime")?);
                Some(GraphEvent::Exit { func, depth, calltime, rettime })
            }
            _ => None,
        }
    }

    fn func_field(&self) -> &Field {
        match self {
            GraphEvent::Entry { func, .. } | GraphEvent::Exit { func, .. } => func,
        }
    }

    /// The function's address.
    pub fn func(&self, payload: &[u8], endian: Endian) -> u64 {
        self.func_field().int(payload, endian).unwrap_or(0) as u64
    }

    /// Nesting depth, within reason.
    pub fn depth(&self, payload: &[u8], endian: Endian) -> usize {
        let (GraphEvent::Entry { depth, .. } | GraphEvent::Exit { depth, .. }) = self;
        depth.int(payload, endian).map_or(0, |d| d.clamp(0, 500) as usize)
    }

    /// Duration of the function, in ns; `None` for an entry.
    pub fn duration(&self, payload: &[u8], endian: Endian) -> Option<u64> {
        let GraphEvent::Exit { calltime, rettime, .. } = self else { return None };
        let time = |f: &Field| f.int(payload, endian).map(|t| t as u64);
        Some(time(rettime)?.wrapping_sub(time(calltime)?))
    }
}

/// A function that begins. If its exit is the next event, it is a leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphEntry {
    func: u64,
    tid: i32,
}

impl GraphEntry {
    /// The entry that an event is, if it is one; `tid` is its thread.
    pub fn of(
        graph: &GraphEvent,
        (tid, payload): (i32, &[u8]),
        endian: Endian,
    ) -> Option<GraphEntry> {
        let begins = matches!(graph, GraphEvent::Entry { .. });
        begins.then(|| GraphEntry { func: graph.func(payload, endian), tid })
    }

    /// Duration of the function, in ns, if the event after the entry is its exit.
    pub fn duration(
        self,
        graph: &GraphEvent,
        (tid, payload): (i32, &[u8]),
        endian: Endian,
    ) -> Option<u64> {
        let duration = graph.duration(payload, endian)?;
        (self == GraphEntry { func: graph.func(payload, endian), tid }).then_some(duration)
    }
}

/// The columns before the function: a mark for what took long, microseconds.
pub fn write_duration(duration: Option<u64>, out: &mut Vec<u8>) {
    let Some(ns) = duration else {
        out.extend_from_slice(b"             |  ");
        return;
    };
    const MARKS: [(u64, u8); 6] = [
        (1_000_000_000, b'$'),
        (100_000_000, b'@'),
        (10_000_000, b'*'),
        (1_000_000, b'#'),
        (100_000, b'!'),
        (10_000, b'+'),
    ];
    let mark = MARKS.iter().find(|(least, _)| ns > *least).map_or(b' ', |(_, mark)| *mark);
    let mut text = (ns / 1000).to_string();
    // No more than seven digits together.
    let room = 7usize.saturating_sub(text.len()).min(3);
    if room > 0 {
        let rest = format!("{:03}", ns % 1000);
        text.push('.');
        text.push_str(rest.get(..room).unwrap_or(&rest));
    }
    out.extend_from_slice(&[mark, b' ']);
    out.extend_from_slice(format!("{text} us ").as_bytes());
    out.extend(std::iter::repeat_n(b' ', 7usize.saturating_sub(text.len())));
    out.extend_from_slice(b"|  ");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_stand_in_their_columns() {
        let of = |ns| {
            let mut out = Vec::new();
            write_duration(ns, &mut out);
            String::from_utf8(out).unwrap()
        };
        // As trace-cmd 3.1.6 showed them of a recording in the guest.
        assert_eq!(of(Some(355_497)), "! 355.497 us |  ");
        assert_eq!(of(Some(7_005)), "  7.005 us   |  ");
        assert_eq!(of(Some(11_104)), "+ 11.104 us  |  ");
        assert_eq!(of(Some(1_207_811)), "# 1207.811 us |  ");
        assert_eq!(of(None), "             |  ");
    }
}
