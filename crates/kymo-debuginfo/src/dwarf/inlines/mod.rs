//! From addresses to the source, many in one pass: for each the function, the copies inlined there,
//! and the lines.
//!
//! A batch is the unit of work: its addresses are sorted, put to the units that cover them, and
//! each of these units is read once, front to back, by one of several threads: its line program
//! answers while it runs, its entries while they pass by. Nothing of a unit stays behind but the
//! results, so that memory grows with the number of addresses and not with the file:
//!
//! - 32 bytes for each span of code in `.debug_aranges` or in the units' own words,
//! - 16 bytes for each frame of an answer, and each distinct text once,
//! - for each thread, the abbreviations and file names of one unit, and of up to
//!   `KEPT` units that others refer to,
//! - sections that are packed in the file, unpacked; others stay in the mapped
//!   file, and pages that were read are given back.

mod answers;
mod functions;
mod index;
mod names;
mod rows;

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, OnceLock};

use gimli::DebugInfoOffset;
use rayon::prelude::*;

use answers::Texts;
pub use answers::{Answers, SourceFrame, TextId};
use functions::{NONE, Walk};
use index::Index;
use names::Names;

use super::companions::SplitUnit;
use super::sections::Sections;
use super::{DwarfError, Reader, Result};

/// Units kept parsed because others refer to them.
const KEPT: usize = 16;
/// Frames of one address.
const DEEPEST: usize = 256;
/// Units that are tried for an address.
const ROUNDS: usize = 4;
/// Units without stated ranges that are searched.
const MOST_SILENT: usize = 512;

/// Debugging information, asked for sources of addresses. May be asked by
/// several threads.
pub struct Inlines<'s> {
    sections: &'s Sections<'s>,
    dwarf: gimli::Dwarf<Reader<'s>>,
    aranges: (Index, BTreeSet<usize>),
    /// Spans that `.debug_aranges` omits, and units without ranges.
    rest: OnceLock<(Index, Vec<usize>)>,
    /// Offsets of the units: in the file itself, and in the one shared with others.
    starts: [OnceLock<Vec<usize>>; 2],
    kept: Mutex<VecDeque<Kept<'s>>>,
}

/// A unit that others refer to: of which file, and where it begins there.
type Kept<'s> = (File, usize, Arc<gimli::Unit<Reader<'s>>>);

/// The file of an entry: the one asked, or the one it shares with others (dwz).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum File {
    Own,
    Shared,
}

/// Steps that a unit may take: damaged information could take forever.
pub(super) struct Budget(u64);

impl Budget {
    fn spend(&mut self, steps: u64) -> Result<()> {
        self.0 = self.0.checked_sub(steps).ok_or(DwarfError::Endless)?;
        Ok(())
    }
}

/// The answers of one unit.
#[derive(Default)]
struct Part {
    texts: Texts,
    frames: Vec<SourceFrame>,
    /// Number of the address, and where its frames end.
    ends: Vec<(u32, u32)>,
    damage: Option<String>,
}

impl<'s> Inlines<'s> {
    /// Reads which code is of which unit, as far as that stands in one place.
    pub fn new(sections: &'s Sections<'s>) -> Inlines<'s> {
        let endian = sections.endian;
        let mut dwarf = sections.dwarf.borrow(|bytes| gimli::EndianSlice::new(bytes, endian));
        if let Some(shared) = sections.opened.shared(endian) {
            dwarf.set_sup(shared);
        }
        Inlines {
            sections,
            aranges: Index::from_aranges(&dwarf),
            dwarf,
            rest: OnceLock::new(),
            starts: Default::default(),
            kept: Mutex::default(),
        }
    }

    /// The source of each of `addresses`, which are stated virtual addresses and
    /// ascend. Several threads work on it.
    pub fn resolve(&self, addresses: &[u64]) -> Answers {
        debug_assert!(addresses.is_sorted());
        let mut parts: Vec<Part> = Vec::new();
        let mut answered = vec![false; addresses.len()];
        let ask =
            |parts: &mut Vec<Part>, answered: &mut Vec<bool>, asked: Vec<(usize, u64, u32)>| {
                let new = self.units(asked);
                for (number, _) in new.iter().flat_map(|p| &p.ends) {
                    if let Some(slot) = answered.get_mut(*number as usize) {
                        *slot = true;
                    }
                }
                parts.extend(new);
            };
        let open = |answered: &[bool]| -> Vec<(u64, u32)> {
            let all = addresses.iter().copied().zip(0u32..).zip(answered);
            all.filter(|(_, done)| !**done).map(|(a, _)| a).collect()
        };
        for source in 0..2 {
            for round in 0..ROUNDS {
                let left = open(&answered);
                if left.is_empty() {
                    break;
                }
                let index = if source == 0 { &self.aranges.0 } else { &self.rest().0 };
                let unit = |(a, n): (u64, u32)| Some((index.candidates(a).nth(round)?, a, n));
                let asked: Vec<_> = left.into_iter().filter_map(unit).collect();
                if asked.is_empty() {
                    break;
                }
                ask(&mut parts, &mut answered, asked);
            }
        }
        let left = open(&answered);
        if !left.is_empty() {
            let silent = self.rest().1.iter().take(MOST_SILENT);
            let asked = silent.flat_map(|unit| left.iter().map(|(a, n)| (*unit, *a, *n)));
            ask(&mut parts, &mut answered, asked.collect());
        }
        self.merge(addresses.len(), parts)
    }

    fn dwarf(&self, file: File) -> &gimli::Dwarf<Reader<'s>> {
        match file {
            File::Own => &self.dwarf,
            File::Shared => self.dwarf.sup().unwrap_or(&self.dwarf),
        }
    }

    fn starts(&self, file: File) -> &[usize] {
        let [own, shared] = &self.starts;
        let starts = if file == File::Own { own } else { shared };
        starts.get_or_init(|| index::starts(self.dwarf(file)))
    }

    fn rest(&self) -> &(Index, Vec<usize>) {
        self.rest
            .get_or_init(|| Index::from_units(&self.dwarf, self.starts(File::Own), &self.aranges.1))
    }

    /// Asks each unit once for all of its addresses.
    fn units(&self, mut asked: Vec<(usize, u64, u32)>) -> Vec<Part> {
        asked.sort_unstable();
        let runs: Vec<&[(usize, u64, u32)]> = asked.chunk_by(|a, b| a.0 == b.0).collect();
        runs.into_par_iter()
            .with_max_len(1)
            .map(|run| {
                let start = run.first().map_or(0, |r| r.0);
                let addresses: Vec<(u64, u32)> = run.iter().map(|r| (r.1, r.2)).collect();
                self.unit(start, &addresses)
            })
            .collect()
    }

    fn unit(&self, start: usize, addresses: &[(u64, u32)]) -> Part {
        let mut part = Part::default();
        if let Err(error) = self.answer(start, addresses, &mut part) {
            part.damage = Some(format!("unit at {start:#x}: {error}"));
        }
        part
    }

    fn answer(&self, start: usize, addresses: &[(u64, u32)], part: &mut Part) -> Result<()> {
        let header = self.dwarf.unit_header(DebugInfoOffset(start))?;
        let length = header.length_including_self();
        let unit = self.dwarf.unit(header)?;
        let mut budget = Budget((1 << 22) + 8 * length as u64 + 1024 * addresses.len() as u64);
        let mut rows = vec![None; addresses.len()];
        let mut result = Ok(());
        if let Some(program) = unit.line_program.clone() {
            let bytes = program.header().raw_program_buf();
            budget.0 = budget.0.saturating_add(8 * bytes.len() as u64);
            result = rows::run(program, addresses, &mut rows, &mut budget);
            self.forget(bytes.slice());
        }
        let split = self.split_off(&unit, start)?;
        let (dwarf, whole) = split.as_ref().map_or((&self.dwarf, &unit), |s| (&*s.dwarf, &s.unit));
        let mut walk = Walk { dwarf, unit: whole, addresses, budget: &mut budget };
        let (found, walked) = walk.run();
        let mut names = Names::new(self, &unit, split.as_ref().map(|_| (dwarf, whole)));
        for (((_, number), row), best) in addresses.iter().zip(&rows).zip(&found.best) {
            if row.is_none() && best.0 == NONE {
                continue;
            }
            let mut place = row.map(|r| (r.file, r.line, r.column)).unwrap_or_default();
            let mut at = best.0;
            for _ in 0..DEEPEST {
                let node = found.nodes.get(at as usize);
                let function = node.map_or(TextId(0), |n| {
                    names.function(n.entry, n.parent != NONE, &mut part.texts)
                });
                part.frames.push(SourceFrame {
                    function,
                    file: names.file(place.0, &mut part.texts),
                    line: place.1,
                    column: place.2,
                });
                let Some(node) = node.filter(|n| n.parent != NONE) else { break };
                (at, place) = (node.parent, node.call);
            }
            part.ends.push((*number, part.frames.len() as u32));
        }
        let unread = names.unread.take().map_or(Ok(()), Err);
        let info = gimli::Section::reader(&self.dwarf.debug_info).slice();
        if let Some(read) = info.get(start..start.saturating_add(length)) {
            self.forget(read);
        }
        result.and(walked).and(unread)
    }

    fn forget(&self, read: &[u8]) {
        if let Some(pages) = self.sections.pages {
            pages.forget(read);
        }
    }

    /// Split unit of a skeleton.
    fn split_off(
        &self,
        unit: &gimli::Unit<Reader<'s>>,
        start: usize,
    ) -> Result<Option<SplitUnit<'s>>> {
        if unit.dwo_id.is_none() {
            return Ok(None);
        }
        let starts = self.starts(File::Own);
        let Ok(index) = starts.binary_search(&start) else { return Ok(None) };
        self.sections.split_off(&self.dwarf, unit, (index, starts.len()))
    }

    /// The unit that covers an offset of `.debug_info` of a file, and where it begins.
    fn unit_at(&self, file: File, offset: usize) -> Result<(usize, Arc<gimli::Unit<Reader<'s>>>)> {
        let starts = self.starts(file);
        let at = starts.partition_point(|s| *s <= offset).checked_sub(1);
        let start = at.and_then(|at| starts.get(at)).copied();
        let start = start.ok_or(gimli::Error::NoEntryAtGivenOffset(offset as u64))?;
        if let Ok(mut kept) = self.kept.lock()
            && let Some(at) = kept.iter().position(|k| (k.0, k.1) == (file, start))
            && let Some((_, _, unit)) = kept.remove(at)
        {
            kept.push_front((file, start, unit.clone()));
            return Ok((start, unit));
        }
        let dwarf = self.dwarf(file);
        let unit = Arc::new(dwarf.unit(dwarf.unit_header(DebugInfoOffset(start))?)?);
        if let Ok(mut kept) = self.kept.lock() {
            kept.truncate(KEPT - 1);
            kept.push_front((file, start, unit.clone()));
        }
        Ok((start, unit))
    }

    fn merge(&self, count: usize, parts: Vec<Part>) -> Answers {
        let mut answers = Answers::default();
        // Where the frames of each address are: part, first, end.
        let mut places: Vec<Option<(u32, u32, u32)>> = vec![None; count];
        let mut texts: Vec<Vec<TextId>> = Vec::with_capacity(parts.len());
        for (n, part) in parts.iter().enumerate() {
            let ids =
                (0..part.texts.len() as u32).map(|id| answers.intern(part.texts.get(TextId(id))));
            texts.push(ids.collect());
            let mut first = 0;
            for (number, end) in &part.ends {
                if let Some(slot) = places.get_mut(*number as usize).filter(|s| s.is_none()) {
                    *slot = Some((n as u32, first, *end));
                }
                first = *end;
            }
            if let Some(damage) = &part.damage {
                answers.note(damage.clone());
            }
        }
        for place in places {
            let Some((n, first, end)) = place else {
                answers.push([]);
                continue;
            };
            let frames = parts.get(n as usize).map_or(&[][..], |p| &p.frames);
            let ids = texts.get(n as usize).map_or(&[][..], |t| t);
            let id = |t: TextId| ids.get(t.0 as usize).copied().unwrap_or_default();
            let frames = frames.get(first as usize..end as usize).unwrap_or_default();
            let renumbered =
                |f: &SourceFrame| SourceFrame { function: id(f.function), file: id(f.file), ..*f };
            answers.push(frames.iter().map(renumbered));
        }
        answers
    }
}
