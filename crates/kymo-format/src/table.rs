//! All events of a recording, found by the number in their payload.

use rustc_hash::FxHashMap;

use kymo_model::Endian;

use crate::context::RenderContext;
use crate::format::EventFormat;

/// Formats by event id: an index for the small numbers kernels hand out, a map
/// for others.
#[derive(Debug, Default)]
pub struct FormatIndex {
    formats: Vec<EventFormat>,
    /// 1 + index into `formats`; 0: none.
    small: Vec<u32>,
    large: FxHashMap<u32, u32>,
}

/// Ids below this are looked up in an array.
const SMALL: u32 = 1 << 16;

impl FormatIndex {
    /// Adds a format; one with the same id replaces the earlier.
    pub fn insert(&mut self, format: EventFormat) {
        let id = format.id;
        self.formats.push(format);
        let slot = self.formats.len() as u32;
        if id < SMALL {
            if self.small.len() <= id as usize {
                self.small.resize(id as usize + 1, 0);
            }
            if let Some(s) = self.small.get_mut(id as usize) {
                *s = slot;
            }
        } else {
            self.large.insert(id, slot);
        }
    }

    /// The format of event `id`.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&EventFormat> {
        let slot = match self.small.get(id as usize) {
            Some(s) => *s,
            None => *self.large.get(&id)?,
        };
        self.formats.get((slot as usize).checked_sub(1)?)
    }

    /// The format of a payload, by its `common_type`.
    #[inline]
    pub fn of_payload(&self, payload: &[u8], endian: Endian) -> Option<&EventFormat> {
        self.get(u32::from(EventFormat::payload_id(payload, endian)?))
    }

    /// Renders a payload by its `common_type`; false if nothing is known of it.
    #[inline]
    pub fn render(&self, out: &mut Vec<u8>, payload: &[u8], ctx: &RenderContext<'_>) -> bool {
        let Some(f) = self.of_payload(payload, ctx.endian) else { return false };
        f.render(out, payload, ctx);
        true
    }

    /// All formats, in the order they came.
    pub fn iter(&self) -> impl Iterator<Item = &EventFormat> {
        self.formats.iter()
    }
}
