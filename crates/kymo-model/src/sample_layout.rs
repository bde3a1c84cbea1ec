//! Byte offsets of the `PERF_SAMPLE_*` fields whose place is known from the attribute
//! alone: the fields of fixed size that samples begin with, and the sample id that
//! `sample_id_all` puts at the end of all other records. Both come from one list of
//! the fields in the kernel's order; nothing else in the workspace repeats that order.

use crate::attr::Attr;
use crate::flags::{AttrFlags, SampleType};

/// Bytes of each of these fields.
const FIELD_SIZE: usize = 8;

/// Offsets of the fields of fixed size, for the records of one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleLayout {
    /// Fields that a `PERF_RECORD_SAMPLE` begins with.
    pub leading: LeadingFields,
    /// Fields that every other record ends with.
    pub trailing: TrailingFields,
}

/// Offsets from the start of a sample's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeadingFields {
    /// Event id, as `IDENTIFIER` if the event has that, else as `ID`.
    pub id: Option<usize>,
    /// Instruction pointer.
    pub ip: Option<usize>,
    /// Process and thread, 4 bytes each.
    pub tid: Option<usize>,
    /// Timestamp.
    pub time: Option<usize>,
    /// Data address.
    pub addr: Option<usize>,
    /// Stream id.
    pub stream_id: Option<usize>,
    /// CPU, 4 bytes and 4 reserved.
    pub cpu: Option<usize>,
    /// Period.
    pub period: Option<usize>,
    /// Size of all: where the variable fields begin.
    pub end: usize,
}

/// Offsets back from the end of a record's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrailingFields {
    /// Process and thread, 4 bytes each.
    pub tid: Option<usize>,
    /// Timestamp.
    pub time: Option<usize>,
    /// Stream id.
    pub stream_id: Option<usize>,
    /// CPU, 4 bytes and 4 reserved.
    pub cpu: Option<usize>,
    /// Event id, as `IDENTIFIER` if the event has that, else as `ID`.
    pub id: Option<usize>,
    /// Size of all; 0 where the event has no `sample_id_all`.
    pub size: usize,
}

impl SampleLayout {
    /// Fields that samples begin with, in their order.
    pub const LEADING: [SampleType; 9] = [
        SampleType::IDENTIFIER,
        SampleType::IP,
        SampleType::TID,
        SampleType::TIME,
        SampleType::ADDR,
        SampleType::ID,
        SampleType::STREAM_ID,
        SampleType::CPU,
        SampleType::PERIOD,
    ];

    /// Fields of the sample id, in their order: those of a sample that do not tell of
    /// code or data, with the identifier at the other end so that it is found first.
    pub const TRAILING: [SampleType; 6] = [
        Self::LEADING[2],
        Self::LEADING[3],
        Self::LEADING[5],
        Self::LEADING[6],
        Self::LEADING[7],
        Self::LEADING[0],
    ];

    /// Offset of one of the leading fields in samples with these fields, if they have it.
    #[inline]
    pub fn leading_offset(has: SampleType, field: SampleType) -> Option<usize> {
        // Of a constant field this is a constant.
        let before = Self::LEADING.iter().take_while(|f| **f != field);
        let before = before.fold(0, |all, f| all | f.bits());
        has.contains(field).then(|| FIELD_SIZE * (has.bits() & before).count_ones() as usize)
    }

    /// Bytes of all leading fields of samples with these fields.
    #[inline]
    pub fn leading_size(has: SampleType) -> usize {
        let all = Self::LEADING.iter().fold(0, |all, f| all | f.bits());
        FIELD_SIZE * (has.bits() & all).count_ones() as usize
    }

    /// Offsets in the records of an event with this attribute.
    pub fn new(attr: &Attr) -> SampleLayout {
        SampleLayout {
            leading: LeadingFields::new(attr.sample_type),
            trailing: TrailingFields::new(attr),
        }
    }

    /// Fields of the sample id that records of this event end with, in their order.
    pub fn trailing_fields(attr: &Attr) -> impl DoubleEndedIterator<Item = SampleType> + use<> {
        let has = if attr.flags.contains(AttrFlags::SAMPLE_ID_ALL) {
            attr.sample_type
        } else {
            SampleType::empty()
        };
        Self::TRAILING.into_iter().filter(move |field| has.contains(*field))
    }
}

impl LeadingFields {
    /// Offsets in samples with these fields.
    pub fn new(has: SampleType) -> LeadingFields {
        let mut end = 0;
        let fields = LeadingWalk::new(has, || {
            end += FIELD_SIZE;
            end - FIELD_SIZE
        });
        let LeadingWalk { identifier, ip, tid, time, addr, id, stream_id, cpu, period } = fields;
        LeadingFields { id: identifier.or(id), ip, tid, time, addr, stream_id, cpu, period, end }
    }
}

/// Something for each of the leading fields that an event has.
pub(crate) struct LeadingWalk<T> {
    pub(crate) identifier: Option<T>,
    pub(crate) ip: Option<T>,
    pub(crate) tid: Option<T>,
    pub(crate) time: Option<T>,
    pub(crate) addr: Option<T>,
    pub(crate) id: Option<T>,
    pub(crate) stream_id: Option<T>,
    pub(crate) cpu: Option<T>,
    pub(crate) period: Option<T>,
}

impl<T> LeadingWalk<T> {
    /// Calls `next` for each field of `has`, in their order.
    #[inline(always)]
    pub(crate) fn new(has: SampleType, mut next: impl FnMut() -> T) -> LeadingWalk<T> {
        let mut take = |field| has.contains(field).then(&mut next);
        let [identifier, ip, tid, time, addr, id, stream_id, cpu, period] = SampleLayout::LEADING;
        LeadingWalk {
            identifier: take(identifier),
            ip: take(ip),
            tid: take(tid),
            time: take(time),
            addr: take(addr),
            id: take(id),
            stream_id: take(stream_id),
            cpu: take(cpu),
            period: take(period),
        }
    }
}

impl TrailingFields {
    /// Offsets in records of an event with this attribute.
    pub fn new(attr: &Attr) -> TrailingFields {
        let mut fields = TrailingFields::default();
        for field in SampleLayout::trailing_fields(attr).rev() {
            fields.size += FIELD_SIZE;
            let back = Some(fields.size);
            match field {
                SampleType::IDENTIFIER => fields.id = back,
                SampleType::ID => fields.id = fields.id.or(back),
                SampleType::TID => fields.tid = back,
                SampleType::TIME => fields.time = back,
                SampleType::STREAM_ID => fields.stream_id = back,
                SampleType::CPU => fields.cpu = back,
                _ => {}
            }
        }
        fields
    }
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
        let l = SampleLayout::new(&attr);
        assert_eq!((l.leading.time, l.leading.id, l.leading.end), (Some(16), Some(24), 32));
        assert_eq!((l.trailing.id, l.trailing.time, l.trailing.size), (Some(8), Some(16), 24));
        let attr = Attr {
            sample_type: attr.sample_type | SampleType::IDENTIFIER | SampleType::CPU,
            ..attr
        };
        let l = SampleLayout::new(&attr);
        assert_eq!((l.leading.id, l.leading.time), (Some(0), Some(24)));
        assert_eq!((l.trailing.id, l.trailing.time), (Some(8), Some(32)));
        let attr = Attr { flags: AttrFlags::empty(), ..attr };
        assert_eq!(SampleLayout::new(&attr).trailing, TrailingFields::default());
    }

    #[test]
    fn one_offset_is_that_of_all() {
        for combination in 0..1u32 << SampleLayout::LEADING.len() {
            let chosen = SampleLayout::LEADING.iter().enumerate();
            let chosen = chosen.filter(|(n, _)| combination & 1 << n != 0);
            // Variable fields change nothing.
            let has = chosen.fold(SampleType::RAW | SampleType::READ, |all, (_, f)| all | *f);
            let all = LeadingFields::new(has);
            let at = |field| SampleLayout::leading_offset(has, field);
            let [ip, tid, time] = [SampleType::IP, SampleType::TID, SampleType::TIME].map(at);
            assert_eq!((ip, tid, time), (all.ip, all.tid, all.time));
            let rest = [SampleType::STREAM_ID, SampleType::CPU, SampleType::PERIOD].map(at);
            assert_eq!(rest, [all.stream_id, all.cpu, all.period]);
            assert_eq!(SampleLayout::leading_size(has), all.end);
        }
    }

    /// The order of perf_event_open(2), section "Overflow events", stated once more.
    #[test]
    fn all_fields_lie_as_the_manual_has_them() {
        let attr = Attr {
            sample_type: SampleType::all(),
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..Attr::default()
        };
        let l = SampleLayout::new(&attr);
        let LeadingFields { id, ip, tid, time, addr, stream_id, cpu, period, end } = l.leading;
        let all = [id, ip, tid, time, addr, stream_id, cpu, period, Some(end)];
        assert_eq!(all.map(|at| at.unwrap() / 8), [0, 1, 2, 3, 4, 6, 7, 8, 9]);
        let TrailingFields { tid, time, stream_id, cpu, id, size } = l.trailing;
        let all = [tid, time, stream_id, cpu, id, Some(size)];
        assert_eq!(all.map(|back| back.unwrap() / 8), [6, 5, 3, 2, 1, 6]);
    }
}
