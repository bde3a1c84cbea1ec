//! Single fields of samples, found without decoding the others: their places are the same in
//! all samples of an event.

use crate::attr::Attr;
use crate::flags::SampleType;
use crate::record::RawRecord;
use crate::sample_layout::SampleLayout;

/// Offsets of some fields in the samples of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplePlaces {
    task: Option<usize>,
    cpu: Option<usize>,
    payload: PayloadPlace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PayloadPlace {
    /// There is none, or the sample has to be decoded for it.
    Unknown,
    At(usize),
    /// Behind the call chain that is there.
    BehindChain(usize),
}

impl SamplePlaces {
    /// Those of samples of an event with this attribute.
    pub fn of(attr: &Attr) -> SamplePlaces {
        let has = attr.sample_type;
        let at = SampleLayout::leading_size(has);
        let payload = match () {
            () if !has.contains(SampleType::RAW) || has.contains(SampleType::READ) => {
                PayloadPlace::Unknown
            }
            () if has.contains(SampleType::CALLCHAIN) => PayloadPlace::BehindChain(at),
            () => PayloadPlace::At(at),
        };
        SamplePlaces {
            task: SampleLayout::leading_offset(has, SampleType::TID),
            cpu: SampleLayout::leading_offset(has, SampleType::CPU),
            payload,
        }
    }

    /// Process and thread, where the event records them: they lie near the beginning, while
    /// the end of a sample with a stack is pages away.
    #[inline]
    pub fn task(&self, record: &RawRecord<'_>) -> Option<(u32, u32)> {
        let at = self.task?;
        Some((record.endian.u32_at(record.body, at)?, record.endian.u32_at(record.body, at + 4)?))
    }

    /// CPU, where the event records it.
    #[inline]
    pub fn cpu(&self, record: &RawRecord<'_>) -> Option<u32> {
        record.endian.u32_at(record.body, self.cpu?)
    }

    /// Payload of a tracepoint. Where values of counters come before it, the sample has to be
    /// decoded: there is none here.
    #[inline]
    pub fn payload<'a>(&self, record: &RawRecord<'a>) -> Option<&'a [u8]> {
        let at = match self.payload {
            PayloadPlace::Unknown => return None,
            PayloadPlace::At(at) => at,
            PayloadPlace::BehindChain(at) => {
                let count = usize::try_from(record.endian.u64_at(record.body, at)?).ok()?;
                count.checked_mul(8)?.checked_add(at + 8)?
            }
        };
        let size = record.endian.u32_at(record.body, at)? as usize;
        record.body.get(at.checked_add(4)?..)?.get(..size)
    }
}
