//! Call chains as lines and as members of an object: those of a recording alone, and those
//! of samples that come one by one, among events of other recordings.

use kymo_events::chain::Origin;
use kymo_events::state::Located;
use kymo_events::{ChainFrame, RecordedEvent};
use kymo_symbols::{DsoKind, Resolver};

use super::fields::FieldSet;
use super::recorded_names::write_located;
use super::sample_json;
use super::source_lines::{FrameForm, SourceLines, SourceOptions};
use crate::number;

/// Call chains that are shown.
#[derive(Clone, Copy, Debug)]
pub struct ChainOptions {
    /// Frames of a chain at most.
    pub max_stack: usize,
    /// Addresses of frames in lines of text.
    pub addresses: FrameAddresses,
    /// Facts of source files that are printed with them.
    pub sources: SourceOptions,
}

/// Addresses of the frames of call chains in lines of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameAddresses {
    /// Those in the binary, as perf 6.1 prints them.
    #[default]
    Binary,
    /// Those in the process, as perf 7.2 prints them.
    Process,
}

impl FrameAddresses {
    /// Address of a frame that is at `ip` in its process.
    pub(super) fn of(self, shown: &Located, ip: u64) -> u64 {
        match self {
            FrameAddresses::Binary => shown.addr,
            FrameAddresses::Process => ip,
        }
    }
}

/// Appends the line of a frame.
pub(super) fn write_frame(
    (at, code): (Located, u64),
    address: u64,
    (symbols, sources): (&Resolver, &mut SourceLines),
    fields: FieldSet,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    out.push(b'\t');
    number::hex(out, address, 16);
    write_located(symbols, &at, fields, out);
    sources.mark((start, out.len()), (at, code), FrameForm::Text(fields), true);
    out.push(b'\n');
}

/// `BINARY@ADDRESS`, or the address alone where nothing is mapped.
fn place_in_binary(symbols: &Resolver, at: &Located) -> String {
    match at.dso.and_then(|id| symbols.get(id)) {
        // Nothing was compiled into what is data.
        Some(dso) if dso.kind == DsoKind::PerfMap => format!("//anon@{:#x}", at.addr),
        Some(dso) => format!("{}@{:#x}", dso.long_name, at.addr),
        None => format!("{:#x}", at.addr),
    }
}

/// Call chains of one recording whose samples come one by one.
pub struct ChainLines {
    options: ChainOptions,
    sources: SourceLines,
    /// Binaries as they were at the last chain.
    symbols: Option<Resolver>,
}

impl ChainLines {
    /// No chain yet.
    pub fn new(options: ChainOptions) -> ChainLines {
        ChainLines { options, sources: SourceLines::new(options.sources), symbols: None }
    }

    /// The frames of an event's chain as lines, or as a member of its object, with what is inlined
    /// in them.
    pub fn frames_text(&mut self, event: &RecordedEvent<'_>, json: bool) -> Vec<u8> {
        let mut out = Vec::new();
        if json {
            self.write_json(event, &mut out)
        } else {
            self.write_text(event, &mut out)
        }
        self.fill(&mut out, &mut []);
        if !json {
            // Lines that others follow have no empty one before and behind.
            out.truncate(out.len().saturating_sub(1));
            out.drain(..out.len().min(1));
        }
        out
    }

    /// Code and data address of a sample, both of which a page fault has.
    pub fn places_text(&mut self, event: &RecordedEvent<'_>) -> Option<(String, String)> {
        let (code, data) = event.sampled_places()?;
        let mut texts = None;
        event.with_symbols(&mut |symbols| {
            let function = match code.symbol {
                Some(symbol) => format!("{}+{:#x}", symbols.name(symbol), code.offset),
                None => place_in_binary(symbols, &code),
            };
            let data = data.map_or_else(String::new, |at| place_in_binary(symbols, &at));
            texts = Some((function, data));
        });
        texts
    }

    /// Appends the chain of an event to its line, if it has one, and an empty line.
    pub(crate) fn write_text(&mut self, event: &RecordedEvent<'_>, out: &mut Vec<u8>) {
        let frames = event.call_chain();
        if frames.is_empty() {
            return;
        }
        out.push(b'\n');
        let (sources, most) = (&mut self.sources, self.options.max_stack);
        let addresses = self.options.addresses;
        let of = |origin| frames.iter().filter(move |f: &&ChainFrame| f.origin == origin);
        let shown = of(Origin::Recorded).take(most).chain(of(Origin::Unwound).take(most));
        event.with_symbols(&mut |symbols| {
            for f in shown.clone() {
                let address = addresses.of(&f.shown, f.address.ip);
                write_frame((f.shown, f.code), address, (symbols, sources), FieldSet::WHERE, out);
            }
        });
        out.push(b'\n');
        self.take_binaries(event);
    }

    /// Appends the chain of an event to the members of its object.
    pub(crate) fn write_json(&mut self, event: &RecordedEvent<'_>, out: &mut Vec<u8>) {
        let frames = event.call_chain();
        if frames.is_empty() {
            return;
        }
        let (sources, most) = (&mut self.sources, self.options.max_stack);
        let of = |origin| frames.iter().filter(move |f: &&ChainFrame| f.origin == origin);
        let shown = of(Origin::Recorded).take(most).chain(of(Origin::Unwound).take(most));
        event.with_symbols(&mut |symbols| {
            sample_json::write_chain(shown.clone(), out, |f, out| {
                let at = (f.shown, f.code);
                sample_json::write_frame(at, f.address, (symbols, sources), true, out);
            });
        });
        self.take_binaries(event);
    }

    fn take_binaries(&mut self, event: &RecordedEvent<'_>) {
        let own = &mut self.symbols;
        event.with_symbols(&mut |symbols| match own {
            Some(own) => own.take_binaries(symbols.binaries_from(0), symbols.recorded_facts()),
            None => *own = Some(symbols.fork_for_thread()),
        });
    }

    /// Puts inlined functions and lines into a text that was written here from its begin on;
    /// `ends`, in ascending order, are places in it that move with what is put in.
    pub(crate) fn fill(&mut self, out: &mut Vec<u8>, ends: &mut [usize]) {
        let Some(symbols) = &self.symbols else { return };
        let moved = self.sources.fill(symbols, 0, out);
        let (mut moved, mut shift) = (moved.into_iter().peekable(), 0);
        for end in ends {
            while let Some((before, now)) = moved.next_if(|(before, _)| before <= end) {
                shift = now - before;
            }
            *end += shift;
        }
    }
}
