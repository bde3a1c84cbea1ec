//! Checks descriptions of events in C programs before they are used: the header builds them, but a
//! program may have built them by hand. Every pointer must point to readable memory.

use std::ptr::NonNull;

use kymo_ust::FieldTag;

use crate::counter::{CounterInfo, CounterRef, CounterSite};
use crate::site::{EventInfo, Level, SiteField, SiteRef, StaticText};

/// Most fields of an event that are described.
const MAX_FIELDS: usize = 256;
/// More names than this, or longer texts, are damage. Of fewer, the first are described.
const MAX_ENTRIES: usize = 1 << 16;
const MAX_TEXT: usize = 1 << 20;

/// The entries that can be believed, and how many cannot.
pub(super) fn sound(entries: &[SiteRef]) -> (Vec<SiteRef>, u32) {
    let mut sound = Vec::new();
    let mut refused = 0;
    for entry in entries {
        let (site, event) = entry.raw();
        if site.is_null() {
            continue;
        }
        // SAFETY: not null; the memory of a site, of which only a pointer is read.
        let of_site = || unsafe { (&raw const (*site).event).read() };
        if site.is_aligned() && is_event(of_site()) && (event.is_null() || is_event(event)) {
            sound.push(SiteRef::copy(site, event));
        } else {
            refused += 1;
        }
    }
    (sound, refused)
}

/// The counters that can be believed, each once, and how many entries cannot.
pub(super) fn sound_counters(entries: &[CounterRef]) -> (Vec<&'static CounterSite>, u32) {
    let mut sound: Vec<&'static CounterSite> = Vec::new();
    let mut refused = 0;
    for entry in entries {
        let site = entry.raw();
        if site.is_null() {
            continue;
        }
        // SAFETY: not null; the memory of a site, of which only a pointer is read.
        let of_site = || unsafe { (&raw const (*site).info).read() };
        if site.is_aligned() && is_counter(of_site()) {
            // SAFETY: checked; it stays until its library is unloaded, which takes it out first.
            let site = unsafe { &*site };
            if !sound.iter().any(|there| std::ptr::eq(*there, site)) {
                sound.push(site);
            }
        } else {
            refused += 1;
        }
    }
    (sound, refused)
}

fn is_counter(info: *const CounterInfo) -> bool {
    if info.is_null() || !info.is_aligned() {
        return false;
    }
    // SAFETY: the memory of a description, which is texts and numbers.
    let info = unsafe { &*info };
    let texts = [&info.provider, &info.name, &info.doc, &info.file];
    texts.into_iter().all(is_text) && info.kind().is_some()
}

/// Whether a description can be read as one: its numbers are known.
fn is_event(event: *const EventInfo) -> bool {
    let Some(event) = NonNull::new(event.cast_mut()).filter(|event| event.is_aligned()) else {
        return false;
    };
    let event = event.as_ptr().cast_const();
    // SAFETY: not null; the memory of a description, of which numbers and pointers are read.
    unsafe {
        let texts = [
            (&raw const (*event).provider).read(),
            (&raw const (*event).name).read(),
            (&raw const (*event).format).read(),
            (&raw const (*event).doc).read(),
            (&raw const (*event).file).read(),
        ];
        let level = (&raw const (*event).level).cast::<u8>().read();
        let (fields, count) = EventInfo::raw_fields(event);
        texts.iter().all(is_text)
            && !texts[1].is_empty()
            && level <= Level::Debug as u8
            && count <= MAX_FIELDS
            && (count == 0 || (!fields.is_null() && fields.is_aligned()))
            && (0..count).all(|i| is_field(fields.add(i)))
    }
}

fn is_text(text: &StaticText) -> bool {
    text.is_told() && text.len() <= MAX_TEXT
}

/// # Safety
/// The memory of a field.
unsafe fn is_field(field: *const SiteField) -> bool {
    // SAFETY: the caller's promise; numbers and pointers are read.
    unsafe {
        let kind = (&raw const (*field).shape.kind).cast::<u8>().read();
        if FieldTag::from_number(kind).is_none() {
            return false;
        }
        let field = &*field;
        let (entries, count) = field.raw_entries();
        let sane = entries.is_aligned() && (count == 0 || !entries.is_null());
        field.shape.is_sound()
            && is_text(&field.name)
            && !field.name.is_empty()
            && count <= MAX_ENTRIES
            && sane
            && (0..count).all(|i| is_text(&(*entries.add(i)).name))
    }
}
