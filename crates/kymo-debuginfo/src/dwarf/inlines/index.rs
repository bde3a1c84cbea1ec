//! Which unit covers an address: by `.debug_aranges` at first, which is small;
//! then, for what is not in there, by the ranges that the units themselves state.

use std::collections::BTreeSet;

use gimli::DebugInfoOffset;
use rayon::prelude::*;

use super::super::die::unit_ranges;
use super::super::{Reader, Result};

/// A span of code and the unit it is of.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u64,
    end: u64,
    /// The farthest end of this span and of all before it.
    farthest: u64,
    /// Offset of the unit in `.debug_info`.
    unit: usize,
}

/// Spans of code, sorted: 32 bytes for each.
#[derive(Debug, Default)]
pub(super) struct Index {
    spans: Vec<Span>,
}

/// Honest spans hardly overlap.
const MOST_CANDIDATES: usize = 8;
/// Spans looked at for one address.
const MOST_LOOKS: usize = 64;

impl Index {
    fn of(mut spans: Vec<Span>) -> Index {
        spans.sort_unstable_by_key(|s| (s.start, s.unit));
        let mut farthest = 0;
        for span in &mut spans {
            farthest = span.end.max(farthest);
            span.farthest = farthest;
        }
        Index { spans }
    }

    /// Spans in `.debug_aranges`, and the units they belong to.
    pub(super) fn from_aranges(dwarf: &gimli::Dwarf<Reader<'_>>) -> (Index, BTreeSet<usize>) {
        let (mut spans, mut units) = (Vec::new(), BTreeSet::new());
        let mut headers = dwarf.debug_aranges.headers();
        // What is damaged is asked of the units.
        while let Ok(Some(header)) = headers.next() {
            let unit = header.debug_info_offset().0;
            let mut entries = header.entries();
            let before = spans.len();
            let whole = loop {
                match entries.next() {
                    Ok(Some(e)) => push(&mut spans, e.range(), unit),
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            if whole && spans.len() > before {
                units.insert(unit);
            }
        }
        (Index::of(spans), units)
    }

    /// Spans of the units except those in `known`; units without ranges may cover everything, and
    /// are listed separately.
    pub(super) fn from_units(
        dwarf: &gimli::Dwarf<Reader<'_>>,
        starts: &[usize],
        known: &BTreeSet<usize>,
    ) -> (Index, Vec<usize>) {
        let rest: Vec<usize> = starts.iter().copied().filter(|s| !known.contains(s)).collect();
        let found: Vec<(usize, Vec<Span>)> = rest
            .par_iter()
            .with_min_len(16)
            .map(|start| (*start, spans_of(dwarf, *start).unwrap_or_default()))
            .collect();
        let silent = found.iter().filter(|(_, spans)| spans.is_empty()).map(|f| f.0).collect();
        let spans = found.into_iter().flat_map(|f| f.1).collect();
        (Index::of(spans), silent)
    }

    /// The units that may cover an address, the nearest first.
    pub(super) fn candidates(&self, addr: u64) -> impl Iterator<Item = usize> + '_ {
        let after = self.spans.partition_point(|s| s.start <= addr);
        let before = self.spans.get(..after).unwrap_or_default();
        let looked = before.iter().rev().take(MOST_LOOKS).take_while(move |s| s.farthest > addr);
        looked.filter(move |s| s.end > addr).map(|s| s.unit).take(MOST_CANDIDATES)
    }
}

fn push(spans: &mut Vec<Span>, range: gimli::Range, unit: usize) {
    if range.begin < range.end {
        spans.push(Span { start: range.begin, end: range.end, farthest: 0, unit });
    }
}

fn spans_of(dwarf: &gimli::Dwarf<Reader<'_>>, start: usize) -> Result<Vec<Span>> {
    let unit = dwarf.unit(dwarf.unit_header(DebugInfoOffset(start))?)?;
    let mut ranges = unit_ranges(dwarf, &unit)?;
    let mut spans = Vec::new();
    while let Some(range) = ranges.next()? {
        push(&mut spans, range, start);
    }
    Ok(spans)
}

/// Offsets of all units in `.debug_info`, up to damage.
pub(super) fn starts(dwarf: &gimli::Dwarf<Reader<'_>>) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut headers = dwarf.units();
    while let Ok(Some(header)) = headers.next() {
        starts.extend(header.debug_info_offset().map(|o| o.0));
    }
    starts
}
