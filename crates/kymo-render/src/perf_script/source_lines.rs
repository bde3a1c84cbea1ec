//! Inlined functions and lines in the text of samples. Looking them up is efficient for many
//! addresses together, so the text of a batch of samples is written without them first, with marks
//! where frames are; then all addresses that are new are resolved together, and the text is
//! reassembled. The results are shared by all renderers.

use std::sync::{Arc, Mutex, PoisonError};

use kymo_events::state::Located;
use kymo_format::json_string;
use kymo_symbols::{DsoId, DsoKind, Resolver};
use rustc_hash::FxHashMap;

use super::fields::FieldSet;
use super::recorded_names::dso_of;
use crate::number;

/// Addresses remembered; more start the memory over.
const MOST: usize = 1 << 18;

/// Columns of a frame's address, which a tab comes before.
const ADDRESS: usize = 16;

/// Facts of source files that are printed with frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceOptions {
    /// Inlined functions in call chains.
    pub inlines: bool,
    /// Whole paths of files.
    pub full_paths: bool,
}

/// A frame in the text.
struct FrameMark {
    /// Range of its text in the text of the batch.
    start: usize,
    end: usize,
    /// As it is shown.
    shown: Located,
    /// The instruction that is executed, in the binary's terms.
    code: u64,
    form: FrameForm,
    /// It is of a chain: inlined functions are frames of their own.
    chain: bool,
}

/// Format of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FrameForm {
    /// As perf lays these fields out.
    Text(FieldSet),
    /// As members of an object.
    Json,
}

/// A function and its line.
#[derive(Debug)]
struct SourcePlace {
    /// Its name, if it is inlined.
    inlined: Option<Box<str>>,
    file: Box<str>,
    line: u32,
}

/// Frames of the batch, and what is known of addresses.
#[derive(Default)]
pub(super) struct SourceLines {
    wanted: SourceOptions,
    marks: Vec<FrameMark>,
    known: SourceMap,
    shared: Arc<Mutex<SourceMap>>,
}

/// The innermost function at a place of a binary, and those it is inlined into.
type SourceMap = FxHashMap<(DsoId, u64), Arc<[SourcePlace]>>;

impl SourceLines {
    pub(super) fn new(wanted: SourceOptions) -> SourceLines {
        SourceLines { wanted, ..SourceLines::default() }
    }

    /// One without marks that shares what is found.
    pub(super) fn fork_for_thread(&self) -> SourceLines {
        let shared = Arc::clone(&self.shared);
        SourceLines { wanted: self.wanted, shared, ..SourceLines::default() }
    }

    /// Marks a frame whose text goes from `start` to `end`.
    pub(super) fn mark(
        &mut self,
        (start, end): (usize, usize),
        (shown, code): (Located, u64),
        form: FrameForm,
        chain: bool,
    ) {
        let wanted = match form {
            FrameForm::Text(fields) if fields.has(FieldSet::SRCLINE) => true,
            FrameForm::Text(fields) => {
                chain
                    && self.wanted.inlines
                    && fields.has(FieldSet::SYM)
                    && self.may_have(&shown, code)
            }
            FrameForm::Json => self.may_add_json(&shown, code),
        };
        if wanted {
            self.marks.push(FrameMark { start, end, shown, code, form, chain });
        }
    }

    /// Whether something may be known of a place. Of most there is nothing, and their text
    /// stays as it is.
    fn may_have(&self, shown: &Located, code: u64) -> bool {
        let known = |dso| self.known.get(&(dso, code)).is_none_or(|all| !all.is_empty());
        shown.dso.is_some_and(known)
    }

    /// Whether something may come to the members of a frame.
    pub(super) fn may_add_json(&self, shown: &Located, code: u64) -> bool {
        self.wanted.inlines && self.may_have(shown, code)
    }

    /// Puts what is known of the marked frames into the text of the batch, which is
    /// that of `out` from `from` on. Answers where the marked frames ended and end now.
    pub(super) fn fill(
        &mut self,
        symbols: &Resolver,
        from: usize,
        out: &mut Vec<u8>,
    ) -> Vec<(usize, usize)> {
        let mut moved = Vec::with_capacity(self.marks.len());
        if self.marks.is_empty() {
            return moved;
        }
        self.look_up(symbols);
        let text = out.split_off(from.min(out.len()));
        let mut done = from;
        for mark in &self.marks {
            let part = |a: usize, b: usize| text.get(a - from..b - from).unwrap_or_default();
            out.extend_from_slice(part(done, mark.start));
            self.write(mark, symbols, part(mark.start, mark.end), out);
            done = mark.end;
            moved.push((mark.end, out.len()));
        }
        out.extend_from_slice(text.get(done - from..).unwrap_or_default());
        self.marks.clear();
        moved
    }

    fn look_up(&mut self, symbols: &Resolver) {
        if self.known.len() > MOST {
            self.known.clear();
        }
        let places = self.marks.iter().filter_map(|m| Some((m.shown.dso?, m.code)));
        let new: Vec<(DsoId, u64)> = places.filter(|at| !self.known.contains_key(at)).collect();
        if new.is_empty() {
            return;
        }
        // Others wait: what they want is most often the same.
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.len() > MOST {
            shared.clear();
        }
        let mut wanted: FxHashMap<DsoId, Vec<u64>> = FxHashMap::default();
        for (dso, address) in &new {
            if !shared.contains_key(&(*dso, *address)) {
                wanted.entry(*dso).or_default().push(*address);
            }
        }
        let mut wanted: Vec<(DsoId, Vec<u64>)> = wanted.into_iter().collect();
        for (_, addresses) in &mut wanted {
            addresses.sort_unstable();
            addresses.dedup();
        }
        let found = symbols.sources_of(&wanted);
        for (binary, (dso, addresses)) in wanted.iter().enumerate() {
            for (place, address) in addresses.iter().enumerate() {
                let frames = found.frames(binary, place);
                let last = frames.len().saturating_sub(1);
                let source = |(i, f): (usize, &kymo_symbols::SourceFrame)| SourcePlace {
                    inlined: (i < last).then(|| found.function(f.function).into()),
                    file: found.file(f.file).into(),
                    line: f.line,
                };
                let all = frames.iter().enumerate().map(source).collect();
                shared.insert((*dso, *address), all);
            }
        }
        self.known.extend(new.iter().filter_map(|at| Some((*at, Arc::clone(shared.get(at)?)))));
    }

    fn write(&self, mark: &FrameMark, symbols: &Resolver, own: &[u8], out: &mut Vec<u8>) {
        let known = mark.shown.dso.and_then(|dso| self.known.get(&(dso, mark.code)));
        let known = known.map_or(&[][..], |k| k);
        let fields = match mark.form {
            FrameForm::Text(fields) => fields,
            FrameForm::Json => return json(mark, known, symbols, own, out),
        };
        let lines = fields.has(FieldSet::SRCLINE);
        // A name that is not known would say nothing.
        let named = mark.shown.symbol.is_some() && self.wanted.inlines && mark.chain;
        for source in known.iter().filter(|_| named) {
            let Some(name) = source.inlined.as_ref().filter(|n| !n.is_empty()) else { continue };
            // The frame's own address, as its line has it.
            out.extend_from_slice(own.get(..=ADDRESS).unwrap_or_default());
            out.push(b' ');
            out.extend_from_slice(name.as_bytes());
            if fields.has(FieldSet::SYMOFF) {
                out.extend_from_slice(b"+0x");
                number::hex(out, mark.shown.offset, 0);
            }
            if lines {
                self.line(source, out);
            }
            out.extend_from_slice(b" (inlined)\n");
        }
        out.extend_from_slice(own);
        if !lines {
            return;
        }
        match if named { known.last() } else { known.first() } {
            Some(source) => self.line(source, out),
            None => {
                let dso = mark.shown.dso.and_then(|id| symbols.get(id));
                out.extend_from_slice(b"\n  ");
                match dso {
                    Some(dso) if dso.kind != DsoKind::File => {
                        out.extend_from_slice(dso.long_name.as_bytes());
                        out.push(b'[');
                        number::hex(out, mark.shown.addr, 0);
                        out.push(b']');
                    }
                    _ => out.extend_from_slice(b"??:0"),
                }
            }
        }
    }

    fn line(&self, source: &SourcePlace, out: &mut Vec<u8>) {
        let path = &*source.file;
        let name = match path.rsplit_once('/') {
            Some((_, name)) if !self.wanted.full_paths => name,
            _ => path,
        };
        out.extend_from_slice(b"\n  ");
        out.extend_from_slice(if name.is_empty() { b"??" } else { name.as_bytes() });
        out.push(b':');
        number::decimal(out, u64::from(source.line), 0);
    }
}

/// A frame's members with its line; in a chain the functions inlined there are objects
/// before its own, whose opening brace is not in `own`.
fn json(
    mark: &FrameMark,
    known: &[SourcePlace],
    symbols: &Resolver,
    own: &[u8],
    out: &mut Vec<u8>,
) {
    let named = mark.chain && mark.shown.symbol.is_some();
    for source in known.iter().filter(|_| named) {
        let Some(name) = source.inlined.as_ref().filter(|n| !n.is_empty()) else { continue };
        // The same address as its own.
        out.extend_from_slice(own.split(|b| *b == b',').next().unwrap_or_default());
        out.extend_from_slice(b",\"sym\":");
        json_string(out, name.as_bytes());
        out.extend_from_slice(b",\"inlined\":true,\"dso\":");
        json_string(out, dso_of(symbols, &mark.shown).as_bytes());
        json_line(source, out);
        out.extend_from_slice(b"},{");
    }
    out.extend_from_slice(own);
    if let Some(source) = if named { known.last() } else { known.first() } {
        json_line(source, out);
    }
}

fn json_line(source: &SourcePlace, out: &mut Vec<u8>) {
    if source.file.is_empty() {
        return;
    }
    out.extend_from_slice(b",\"file\":");
    json_string(out, source.file.as_bytes());
    if source.line > 0 {
        out.extend_from_slice(b",\"line\":");
        number::decimal(out, u64::from(source.line), 0);
    }
}
