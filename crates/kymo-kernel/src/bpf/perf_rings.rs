//! Perf rings that programs put samples into, one of each CPU (`BPF_MAP_TYPE_PERF_EVENT_ARRAY`):
//! what some helpers want that do not write to the BPF ring buffer.

use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

use kymo_model::{Attr, EventType, SampleType, sw};

use super::{BpfError, BpfMap};
use crate::cpus;
use crate::perf_event::{OpenFlags, PerfEvent};
use crate::perf_ring::{PerfRing, RingMode};

/// `PERF_RECORD_SAMPLE`.
const SAMPLE: u32 = 9;
/// Size of `struct perf_event_header`, and of the size before raw data.
const HEADER: usize = 8;
const RAW_SIZE: usize = 4;

/// Rings of the CPUs that were online when they were opened.
#[derive(Debug)]
pub struct BpfPerfRings {
    // A ring before its event.
    rings: Vec<(PerfRing, PerfEvent)>,
    /// A record that wraps.
    wrapped: Vec<u8>,
}

impl BpfPerfRings {
    /// Opens an event on each CPU, with a ring of `pages` pages, and puts it into the map.
    pub fn open(map: &BpfMap, pages: usize) -> Result<BpfPerfRings, BpfError> {
        let attr = Attr {
            kind: EventType::SOFTWARE,
            config: sw::BPF_OUTPUT,
            sample_type: SampleType::RAW,
            sample_period: 1,
            ..Attr::default()
        };
        let mut rings = Vec::new();
        for cpu in cpus::online() {
            let failed = |error| BpfError::new(format!("open the perf ring of CPU {cpu}"), error);
            let event = PerfEvent::open(&attr, -1, cpu as i32, None, OpenFlags::NONE);
            let event = event.map_err(|e| failed(io::Error::other(e)))?;
            let ring = PerfRing::map(event.as_fd(), pages, RingMode::Keep);
            let ring = ring.map_err(|e| failed(io::Error::other(e)))?;
            let fd = event.as_raw_fd();
            map.update(&cpu.to_ne_bytes(), &fd.to_ne_bytes()).map_err(failed)?;
            rings.push((ring, event));
        }
        Ok(BpfPerfRings { rings, wrapped: Vec::new() })
    }

    /// Hands out the raw data of the samples that wait, ring by ring, with up to seven bytes behind
    /// them that fill the record; gives the number of bytes read.
    pub fn read(&mut self, mut sink: impl FnMut(&[u8])) -> usize {
        let BpfPerfRings { rings, wrapped } = self;
        let mut bytes = 0;
        for (ring, _) in rings {
            let read = ring.read(|first, second| {
                samples(first, second, wrapped, &mut sink);
                Ok::<_, Infallible>(())
            });
            bytes += read.unwrap_or_else(|never| match never {});
        }
        bytes
    }
}

/// Raw data of the samples of two spans that are one.
fn samples(first: &[u8], second: &[u8], wrapped: &mut Vec<u8>, sink: &mut impl FnMut(&[u8])) {
    let mut at = 0;
    loop {
        // Records are multiples of eight bytes: a header never wraps.
        let (span, begin) = if at < first.len() { (first, at) } else { (second, at - first.len()) };
        let Some(header) = span.get(begin..).and_then(|rest| rest.first_chunk::<HEADER>()) else {
            return;
        };
        let [a, b, c, d, _, _, low, high] = *header;
        let size = usize::from(u16::from_ne_bytes([low, high]));
        if size < HEADER || at + size > first.len() + second.len() {
            return;
        }
        if u32::from_ne_bytes([a, b, c, d]) == SAMPLE {
            let record = match span.get(begin..begin + size) {
                Some(record) => record,
                None => {
                    wrapped.clear();
                    let head = span.get(begin..).unwrap_or_default();
                    wrapped.extend_from_slice(head);
                    let rest = second.get(..size.saturating_sub(head.len()));
                    wrapped.extend_from_slice(rest.unwrap_or_default());
                    wrapped.as_slice()
                }
            };
            if let Some(raw) = raw_data(record) {
                sink(raw);
            }
        }
        at += size;
    }
}

/// Raw data of a sample that has nothing else.
fn raw_data(record: &[u8]) -> Option<&[u8]> {
    let body = record.get(HEADER..)?;
    let size = u32::from_ne_bytes(*body.first_chunk::<RAW_SIZE>()?) as usize;
    body.get(RAW_SIZE..)?.get(..size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record with raw data.
    fn record(kind: u32, data: &[u8]) -> Vec<u8> {
        let size = (HEADER + RAW_SIZE + data.len()).next_multiple_of(8);
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend([0, 0]);
        bytes.extend((size as u16).to_ne_bytes());
        bytes.extend(((size - HEADER - RAW_SIZE) as u32).to_ne_bytes());
        bytes.extend(data);
        bytes.resize(size, 0xee);
        bytes
    }

    fn seen(first: &[u8], second: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        samples(first, second, &mut Vec::new(), &mut |raw: &[u8]| found.push(raw.to_vec()));
        found
    }

    #[test]
    fn samples_are_found_wherever_the_ring_ends() {
        const LOST: u32 = 2;
        let all = [record(SAMPLE, b"1234"), record(LOST, &[0; 12]), record(SAMPLE, b"abcdefgh")];
        let bytes = all.concat();
        let expected = [b"1234".to_vec(), b"abcdefgh\xee\xee\xee\xee".to_vec()];
        for end in (0..=bytes.len()).step_by(8) {
            let (first, second) = bytes.split_at(end);
            assert_eq!(seen(first, second), expected, "{end}");
        }
    }

    #[test]
    fn sizes_that_lie_end_the_search() {
        let mut bytes = [record(SAMPLE, b"1234"), record(SAMPLE, b"5678")].concat();
        bytes[16 + 6] = 4;
        assert_eq!(seen(&bytes, &[]), [b"1234".to_vec()]);
        bytes[16 + 6] = 200;
        assert_eq!(seen(&bytes, &[]), [b"1234".to_vec()]);
        // Raw data that are longer than their record.
        bytes[16 + 6] = 16;
        bytes[16 + 8] = 0xff;
        assert_eq!(seen(&bytes, &[]), [b"1234".to_vec()]);
        assert_eq!(seen(&bytes[..4], &[]), Vec::<Vec<u8>>::new());
    }
}
