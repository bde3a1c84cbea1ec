//! The answers: for each address a run of frames, texts held once.

use rustc_hash::FxHashMap;

/// Number of a text of [`Answers`]; 0 is the empty one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(pub u32);

/// A function and a place in its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SourceFrame {
    /// Name as stored: mangled where the compiler says so. Empty if unknown.
    pub function: TextId,
    /// Path of the source file. Empty if unknown.
    pub file: TextId,
    /// Line: where the code is, or where the next inner frame was called from. 0 if unknown.
    pub line: u32,
    /// Column, likewise.
    pub column: u32,
}

/// Source positions and functions of some addresses.
#[derive(Clone, Debug, Default)]
pub struct Answers {
    texts: Texts,
    frames: Vec<SourceFrame>,
    /// End of each address's frames.
    ends: Vec<u32>,
    /// Damage of the debugging information, a few cases.
    pub damage: Vec<String>,
}

/// More notes of damage than this say nothing new.
const MOST_NOTES: usize = 8;

impl Answers {
    /// Number of addresses.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The frames of the address in this place, innermost first: all but the last
    /// one are inlined. None where nothing is known.
    pub fn frames(&self, place: usize) -> &[SourceFrame] {
        let end = |p: usize| self.ends.get(p).map_or(0, |e| *e as usize);
        let start = place.checked_sub(1).map_or(0, end);
        self.frames.get(start..end(place)).unwrap_or_default()
    }

    /// A text.
    pub fn text(&self, id: TextId) -> &str {
        self.texts.get(id)
    }

    /// All texts, in the order of their numbers.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = &str> {
        self.texts.all.iter().map(|t| &**t)
    }

    /// The number of a text, which is added if it is new.
    pub fn intern(&mut self, text: &str) -> TextId {
        self.texts.intern(text)
    }

    /// Adds the next address.
    pub fn push(&mut self, frames: impl IntoIterator<Item = SourceFrame>) {
        self.frames.extend(frames);
        self.ends.push(u32::try_from(self.frames.len()).unwrap_or(u32::MAX));
    }

    /// Notes damage, once.
    pub fn note(&mut self, what: String) {
        if self.damage.len() < MOST_NOTES && !self.damage.contains(&what) {
            self.damage.push(what);
        }
    }
}

/// Texts and their numbers.
#[derive(Clone, Debug)]
pub(super) struct Texts {
    all: Vec<Box<str>>,
    ids: FxHashMap<Box<str>, u32>,
}

impl Default for Texts {
    fn default() -> Self {
        Texts { all: vec!["".into()], ids: FxHashMap::from_iter([("".into(), 0)]) }
    }
}

impl Texts {
    pub(super) fn intern(&mut self, text: &str) -> TextId {
        if let Some(id) = self.ids.get(text) {
            return TextId(*id);
        }
        let id = self.all.len() as u32;
        self.all.push(text.into());
        self.ids.insert(text.into(), id);
        TextId(id)
    }

    pub(super) fn get(&self, id: TextId) -> &str {
        self.all.get(id.0 as usize).map_or("", |t| t)
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}
