//! pprof's `profile.proto` (github.com/google/pprof/blob/main/proto/profile.proto):
//! a decoder of Protocol Buffers and the rules that the comments there state.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use super::Folded;

/// A field: its number, and a number or bytes.
#[derive(Debug)]
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut n = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            break;
        }
    }
    n
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Value<'_>)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let value = match key & 7 {
            0 => Value::Number(varint(&mut bytes)),
            2 => {
                let (head, rest) = {
                    let n = varint(&mut bytes) as usize;
                    bytes.split_at(n)
                };
                bytes = rest;
                Value::Bytes(head)
            }
            wire => panic!("wire type {wire}"),
        };
        all.push((key >> 3, value));
    }
    all
}

/// Numbers of a field, packed or not.
fn numbers(message: &[(u64, Value<'_>)], field: u64) -> Vec<u64> {
    let mut all = Vec::new();
    for (_, value) in message.iter().filter(|f| f.0 == field) {
        match value {
            Value::Number(n) => all.push(*n),
            Value::Bytes(bytes) => {
                let mut bytes = *bytes;
                while !bytes.is_empty() {
                    all.push(varint(&mut bytes));
                }
            }
        }
    }
    all
}

fn number(message: &[(u64, Value<'_>)], field: u64) -> u64 {
    numbers(message, field).last().copied().unwrap_or(0)
}

fn messages<'a>(message: &[(u64, Value<'a>)], field: u64) -> Vec<Vec<(u64, Value<'a>)>> {
    let all = message.iter().filter(|f| f.0 == field);
    all.map(|(_, value)| match value {
        Value::Bytes(bytes) => fields(bytes),
        Value::Number(n) => panic!("{n} is no message"),
    })
    .collect()
}

/// A profile.
pub(crate) struct Profile {
    /// Type and unit of each value.
    pub(crate) types: Vec<(String, String)>,
    /// The stack from the outside in, and the values.
    samples: Vec<(String, Vec<u64>)>,
    /// Lines of locations with more than one function, innermost first.
    pub(crate) inlined: Vec<Vec<String>>,
    /// Functions and lines met.
    pub(crate) lines: BTreeSet<(String, u64)>,
    /// Period of a sample.
    pub(crate) period: u64,
}

impl Profile {
    /// Reads and checks one.
    pub(crate) fn read(packed: &[u8]) -> Profile {
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(packed).read_to_end(&mut bytes).unwrap();
        let profile = fields(&bytes);
        let texts: Vec<String> = profile
            .iter()
            .filter(|f| f.0 == 6)
            .map(|(_, v)| match v {
                Value::Bytes(b) => String::from_utf8(b.to_vec()).unwrap(),
                Value::Number(n) => panic!("{n} is no text"),
            })
            .collect();
        assert_eq!(texts[0], "", "string_table[0] must always be empty");
        let text = |n: u64| texts[n as usize].clone();
        let types: Vec<(String, String)> = messages(&profile, 1)
            .iter()
            .map(|t| (text(number(t, 1)), text(number(t, 2))))
            .collect();
        let mut mappings = BTreeMap::new();
        for m in messages(&profile, 3) {
            assert!(number(&m, 1) > 0, "ids must not be 0");
            let range = (number(&m, 2), number(&m, 3));
            assert!(mappings.insert(number(&m, 1), range).is_none(), "ids are unique");
        }
        let mut functions = BTreeMap::new();
        for f in messages(&profile, 5) {
            assert!(number(&f, 1) > 0 && number(&f, 2) > 0, "an id and a name");
            assert!(functions.insert(number(&f, 1), text(number(&f, 2))).is_none());
        }
        let mut inlined = Vec::new();
        let mut met = BTreeSet::new();
        let mut locations = BTreeMap::new();
        for l in messages(&profile, 4) {
            let mapping = number(&l, 2);
            if mapping != 0 {
                let (start, limit) = mappings[&mapping];
                let addr = number(&l, 3);
                assert!(addr >= start && addr < limit, "{addr:#x} in {start:#x}..{limit:#x}");
            }
            // The last one is the caller into which the ones before were inlined.
            let lines: Vec<String> =
                messages(&l, 4).iter().map(|l| functions[&number(l, 1)].clone()).collect();
            assert!(!lines.is_empty());
            let numbers = messages(&l, 4).into_iter().map(|l| number(&l, 2));
            met.extend(lines.iter().cloned().zip(numbers));
            if lines.len() > 1 {
                inlined.push(lines.clone());
            }
            assert!(locations.insert(number(&l, 1), lines).is_none());
        }
        let mut samples = Vec::new();
        for s in messages(&profile, 2) {
            let values = numbers(&s, 2);
            assert_eq!(values.len(), types.len(), "a value for each type");
            // The leaf is at location_id[0].
            let frames = numbers(&s, 1).into_iter().flat_map(|id| locations[&id].clone());
            let mut frames: Vec<String> = frames.collect();
            let labels = messages(&s, 3);
            let comm = labels.iter().find(|l| text(number(l, 1)) == "comm").unwrap();
            frames.push(text(number(comm, 2)));
            frames.reverse();
            samples.push((frames.join(";"), values));
        }
        Profile { types, samples, inlined, lines: met, period: number(&profile, 12) }
    }

    /// Stacks and one of their values.
    pub(crate) fn folded(&self, value: usize) -> Folded {
        let mut folded = Folded::new();
        for (stack, values) in self.samples.iter().filter(|s| s.1[value] > 0) {
            *folded.entry(stack.clone()).or_default() += values[value];
        }
        folded
    }
}
