//! Where id and time lie in the records of an event, so that ordering touches
//! nothing else.

use kymo_model::{Attr, AttrFlags, Endian, SampleType};

/// Offsets in bytes: of samples from the start of the body, of other records
/// from its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) sample_id: Option<usize>,
    pub(super) sample_time: Option<usize>,
    pub(super) trailer_id: Option<usize>,
    pub(super) trailer_time: Option<usize>,
}

impl Layout {
    pub(super) fn of(attr: &Attr) -> Layout {
        let has = attr.sample_type;
        let mut l = Layout::default();
        let mut at = 0;
        for field in [
            SampleType::IDENTIFIER,
            SampleType::IP,
            SampleType::TID,
            SampleType::TIME,
            SampleType::ADDR,
            SampleType::ID,
        ] {
            if !has.contains(field) {
                continue;
            }
            match field {
                SampleType::IDENTIFIER => l.sample_id = Some(at),
                SampleType::ID if l.sample_id.is_none() => l.sample_id = Some(at),
                SampleType::TIME => l.sample_time = Some(at),
                _ => {}
            }
            at += 8;
        }
        if !attr.flags.contains(AttrFlags::SAMPLE_ID_ALL) {
            return l;
        }
        let mut back = 0;
        for field in [
            SampleType::IDENTIFIER,
            SampleType::CPU,
            SampleType::STREAM_ID,
            SampleType::ID,
            SampleType::TIME,
        ] {
            if !has.contains(field) {
                continue;
            }
            back += 8;
            match field {
                SampleType::IDENTIFIER => l.trailer_id = Some(back),
                SampleType::ID if l.trailer_id.is_none() => l.trailer_id = Some(back),
                SampleType::TIME => l.trailer_time = Some(back),
                _ => {}
            }
        }
        l
    }
}

/// The eight bytes at `at`.
#[inline]
pub(super) fn u64_at(body: &[u8], at: usize, endian: Endian) -> Option<u64> {
    Some(endian.u64(*body.get(at..)?.first_chunk::<8>()?))
}

/// The eight bytes that begin `back` bytes before the end.
#[inline]
pub(super) fn u64_from_end(body: &[u8], back: usize, endian: Endian) -> Option<u64> {
    u64_at(body, body.len().checked_sub(back)?, endian)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_and_time_are_found_from_both_ends() {
        let attr = Attr {
            sample_type: SampleType::IP | SampleType::TID | SampleType::TIME | SampleType::ID,
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        let l = Layout::of(&attr);
        assert_eq!((l.sample_time, l.sample_id), (Some(16), Some(24)));
        assert_eq!((l.trailer_id, l.trailer_time), (Some(8), Some(16)));
        let attr = Attr {
            sample_type: attr.sample_type | SampleType::IDENTIFIER | SampleType::CPU,
            ..attr
        };
        let l = Layout::of(&attr);
        assert_eq!((l.sample_id, l.sample_time), (Some(0), Some(24)));
        assert_eq!((l.trailer_id, l.trailer_time), (Some(8), Some(32)));
    }
}
