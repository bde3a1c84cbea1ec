//! Time series (`tseries()`): slots of intervals, put together over CPUs.

use kymo_bpf::SeriesAggregate;

use crate::bytes::u64_at;

/// Bytes of a slot: epoch, value, count or mark.
const SLOT: usize = 24;

/// Adds the slots of a CPU.
pub(crate) fn merge_series(
    to: &mut [u8],
    from: &[u8],
    intervals: u32,
    aggregate: SeriesAggregate,
    signed: bool,
) {
    let slots = to.chunks_exact_mut(SLOT).zip(from.chunks_exact(SLOT)).take(intervals as usize);
    for (to, from) in slots {
        let (a, b) = (slot(to), slot(from));
        if b.2 == 0 || (a.2 != 0 && a.0 > b.0) {
            continue;
        }
        if a.2 == 0 || b.0 > a.0 {
            to.copy_from_slice(from);
            continue;
        }
        let is_less = if signed { (b.1 as i64) < (a.1 as i64) } else { b.1 < a.1 };
        let value = match aggregate {
            SeriesAggregate::Sum | SeriesAggregate::Average => a.1.wrapping_add(b.1),
            SeriesAggregate::Minimum if is_less => b.1,
            SeriesAggregate::Maximum if !is_less => b.1,
            SeriesAggregate::Minimum | SeriesAggregate::Maximum => a.1,
            // The mark of the last value is its time.
            SeriesAggregate::Last => {
                if b.2 > a.2 {
                    b.1
                } else {
                    a.1
                }
            }
        };
        let mark = match aggregate {
            SeriesAggregate::Average => a.2 + b.2,
            _ => a.2.max(b.2),
        };
        for (word, value) in to.chunks_exact_mut(8).zip([a.0, value, mark]) {
            word.copy_from_slice(&value.to_ne_bytes());
        }
    }
}

fn slot(bytes: &[u8]) -> (u64, u64, u64) {
    (u64_at(bytes, 0), u64_at(bytes, 8), u64_at(bytes, 16))
}

/// Points in time order; intervals in between without a value are among them.
pub(crate) fn decode_series(
    bytes: &[u8],
    interval_ns: u64,
    intervals: u32,
    aggregate: SeriesAggregate,
    signed: bool,
) -> Vec<(u64, Option<i64>)> {
    let slots = bytes.chunks_exact(SLOT).take(intervals as usize).map(slot);
    let used: Vec<(u64, u64, u64)> = slots.filter(|slot| slot.2 != 0).collect();
    let Some(last) = used.iter().map(|slot| slot.0).max() else { return Vec::new() };
    let oldest = last.saturating_sub(u64::from(intervals.saturating_sub(1)));
    let Some(first) = used.iter().map(|slot| slot.0).filter(|epoch| *epoch >= oldest).min() else {
        return Vec::new();
    };
    let point = |epoch: u64| {
        let value = used.iter().find(|slot| slot.0 == epoch).map(|slot| match aggregate {
            SeriesAggregate::Average if signed => (slot.1 as i64) / (slot.2 as i64).max(1),
            SeriesAggregate::Average => (slot.1 / slot.2) as i64,
            _ => slot.1 as i64,
        });
        (epoch.saturating_mul(interval_ns), value)
    };
    (first..=last).map(point).collect()
}
