//! Stacks as a tree of callsites, functions and binaries, each once.

use kymo_events::RecordedEvent;
use rustc_hash::FxHashMap;

use crate::build::{Put, TableBuilder};

/// Function in a stack, by numbers of its name and binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Frame {
    name: u32,
    mapping: Option<u32>,
    rel_pc: Option<u64>,
}

/// Stacks of all recordings.
#[derive(Debug, Default)]
pub(crate) struct StackTree {
    names: FxHashMap<Box<str>, u32>,
    name_list: Vec<Box<str>>,
    /// Binaries by name and build-id.
    mappings: FxHashMap<(Box<str>, Box<str>), u32>,
    mapping_list: Vec<(Box<str>, Box<str>)>,
    frames: FxHashMap<Frame, u32>,
    frame_list: Vec<Frame>,
    sites: FxHashMap<(Option<u32>, u32), u32>,
    /// Depth, parent and frame of each callsite.
    site_list: Vec<(u32, Option<u32>, u32)>,
    bytes: usize,
}

impl StackTree {
    fn name(&mut self, name: &str) -> u32 {
        if let Some(number) = self.names.get(name) {
            return *number;
        }
        let number = self.name_list.len() as u32;
        self.name_list.push(name.into());
        self.names.insert(name.into(), number);
        self.bytes += 2 * name.len() + 80;
        number
    }

    fn mapping(&mut self, name: &str, build_id: &str) -> u32 {
        let key = (Box::from(name), Box::from(build_id));
        if let Some(number) = self.mappings.get(&key) {
            return *number;
        }
        let number = self.mapping_list.len() as u32;
        self.mapping_list.push(key.clone());
        self.mappings.insert(key, number);
        number
    }

    fn frame(&mut self, frame: Frame) -> u32 {
        let next = self.frame_list.len() as u32;
        let number = *self.frames.entry(frame).or_insert(next);
        if number == next {
            self.frame_list.push(frame);
            self.bytes += 2 * size_of::<Frame>();
        }
        number
    }

    fn site(&mut self, parent: Option<u32>, frame: u32) -> u32 {
        let next = self.site_list.len() as u32;
        let number = *self.sites.entry((parent, frame)).or_insert(next);
        if number == next {
            let above = parent.and_then(|parent| self.site_list.get(parent as usize));
            let depth = above.map_or(0, |(depth, ..)| depth + 1);
            self.site_list.push((depth, parent, frame));
            self.bytes += 48;
        }
        number
    }

    /// Callsite of an event's stack, if it has one.
    pub(crate) fn of_event(&mut self, event: &RecordedEvent<'_>) -> Option<u32> {
        let chain = event.call_chain();
        let mut frames: Vec<Frame> = Vec::new();
        if chain.is_empty() {
            if let Some((code, _)) = event.sampled_places() {
                let found = [code];
                event.with_symbols(&mut |symbols| self.located(&found, symbols, &mut frames));
            } else {
                for name in event.stack_names() {
                    let name = self.name(&name);
                    frames.push(Frame { name, mapping: None, rel_pc: None });
                }
            }
        } else {
            let found: Vec<_> = chain.iter().map(|frame| frame.shown).collect();
            event.with_symbols(&mut |symbols| self.located(&found, symbols, &mut frames));
        }
        let mut site = None;
        for frame in frames.into_iter().rev() {
            let frame = self.frame(frame);
            site = Some(self.site(site, frame));
        }
        site
    }

    fn located(
        &mut self,
        found: &[kymo_events::state::Located],
        symbols: &kymo_symbols::Resolver,
        frames: &mut Vec<Frame>,
    ) {
        for place in found {
            let name = match place.symbol {
                Some(symbol) => self.name(symbols.name(symbol)),
                None => self.name(&format!("{:#x}", place.addr)),
            };
            let mapping = place.dso.and_then(|dso| symbols.get(dso)).map(|dso| {
                let build_id = dso.build_id.map(|id| id.to_string()).unwrap_or_default();
                self.mapping(&dso.long_name, &build_id)
            });
            let rel_pc = match place.symbol {
                Some(_) => place.addr.wrapping_sub(place.offset),
                None => place.addr,
            };
            frames.push(Frame { name, mapping, rel_pc: Some(rel_pc) });
        }
    }

    /// Bytes in memory, about.
    pub(crate) fn size(&self) -> usize {
        self.bytes
    }

    /// Fills the tables of callsites, functions and binaries.
    pub(crate) fn fill(
        &self,
        sites: &mut TableBuilder,
        frames: &mut TableBuilder,
        mappings: &mut TableBuilder,
    ) {
        for (depth, parent, frame) in &self.site_list {
            sites.row([Put::Small(*depth), (*parent).into(), Put::Small(*frame)]);
        }
        for frame in &self.frame_list {
            let name = self.name_list.get(frame.name as usize).map_or("", AsRef::as_ref);
            frames.row([Put::Text(name), frame.mapping.into(), frame.rel_pc.into()]);
        }
        for (name, build_id) in &self.mapping_list {
            let build_id = (!build_id.is_empty()).then_some(&**build_id);
            mappings.row([build_id.into(), Put::Text(name)]);
        }
    }
}
