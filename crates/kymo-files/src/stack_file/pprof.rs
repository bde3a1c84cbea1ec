//! `profile.proto` of github.com/google/pprof.

use std::io::Read as _;

use flate2::read::MultiGzDecoder;
use prost::Message;
use rustc_hash::FxHashMap;

use super::{FileFrame, FileStack, StackFile, StackFileError, StackFileFunction};

/// Bytes that a packed profile may have unpacked.
const MOST_BYTES: u64 = 1 << 30;
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// The members of `Profile` that are read.
#[derive(Clone, PartialEq, Message)]
struct Profile {
    #[prost(message, repeated, tag = "1")]
    sample_type: Vec<ValueType>,
    #[prost(message, repeated, tag = "2")]
    sample: Vec<Sample>,
    #[prost(message, repeated, tag = "3")]
    mapping: Vec<Mapping>,
    #[prost(message, repeated, tag = "4")]
    location: Vec<Location>,
    #[prost(message, repeated, tag = "5")]
    function: Vec<Function>,
    #[prost(bytes = "vec", repeated, tag = "6")]
    string_table: Vec<Vec<u8>>,
    #[prost(int64, tag = "14")]
    default_sample_type: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ValueType {
    #[prost(int64, tag = "1")]
    name: i64,
    #[prost(int64, tag = "2")]
    unit: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Sample {
    #[prost(uint64, repeated, tag = "1")]
    location_id: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    value: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Mapping {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "5")]
    filename: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Location {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint64, tag = "2")]
    mapping_id: u64,
    #[prost(message, repeated, tag = "4")]
    line: Vec<Line>,
}

#[derive(Clone, PartialEq, Message)]
struct Line {
    #[prost(uint64, tag = "1")]
    function_id: u64,
}

#[derive(Clone, PartialEq, Message)]
struct Function {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(int64, tag = "2")]
    name: i64,
}

/// Whether a file begins as a profile does: packed by gzip, or with the key of a member that is a
/// message of its own.
pub(super) fn is_profile(bytes: &[u8]) -> bool {
    bytes.starts_with(&GZIP) || matches!(bytes, [0x0a, length, 0x08 | 0x10, ..] if *length < 32)
}

pub(super) fn parse(bytes: &[u8], value: Option<&str>) -> Result<StackFile, StackFileError> {
    let mut unpacked = Vec::new();
    let bytes = if bytes.starts_with(&GZIP) {
        let mut decoder = MultiGzDecoder::new(bytes).take(MOST_BYTES + 1);
        let read = decoder.read_to_end(&mut unpacked);
        read.map_err(|e| StackFileError::Gzip(e.to_string()))?;
        if unpacked.len() as u64 > MOST_BYTES {
            return Err(StackFileError::TooLarge(MOST_BYTES));
        }
        &unpacked
    } else {
        bytes
    };
    let profile = Profile::decode(bytes).map_err(|e| StackFileError::Pprof(e.to_string()))?;
    let values = Values::choose(&profile, value)?;
    let (functions, locations) = frames(&profile);
    let mut stacks = Vec::with_capacity(profile.sample.len());
    for sample in &profile.sample {
        let weight = sample.value.get(values.weight).copied().unwrap_or(0);
        let samples = values.samples.map_or(1, |at| sample.value.get(at).copied().unwrap_or(0));
        // A difference of two profiles has values below 0; a side of a comparison has none.
        if weight < 0 || samples < 0 {
            return Err(StackFileError::Pprof("a value is below 0".into()));
        }
        let frames = sample.location_id.iter().filter_map(|id| locations.get(id)).flatten();
        let (weight, samples) = (weight as f64, samples as u64);
        stacks.push(FileStack { frames: frames.copied().collect(), weight, samples });
    }
    if stacks.is_empty() {
        return Err(StackFileError::Empty);
    }
    Ok(StackFile { value: values.name, unit: values.unit, functions, stacks })
}

impl Profile {
    fn text(&self, number: i64) -> String {
        let text = usize::try_from(number).ok().and_then(|at| self.string_table.get(at));
        text.map_or_else(String::new, |bytes| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Values of a sample that are taken.
struct Values {
    weight: usize,
    samples: Option<usize>,
    name: String,
    unit: String,
}

impl Values {
    /// The value that was asked for, or the one that the profile calls the default, or the last one
    /// as pprof does.
    fn choose(profile: &Profile, wanted: Option<&str>) -> Result<Values, StackFileError> {
        let types = profile.sample_type.iter();
        let types: Vec<(String, String)> =
            types.map(|t| (profile.text(t.name), profile.text(t.unit))).collect();
        let named = |name: &str| types.iter().position(|(known, _)| known == name);
        let weight = match wanted {
            Some(wanted) => named(wanted).ok_or_else(|| {
                let known: Vec<&str> = types.iter().map(|(name, _)| &**name).collect();
                StackFileError::NoValue { wanted: wanted.into(), known: known.join(", ") }
            })?,
            None => named(&profile.text(profile.default_sample_type))
                .or(types.len().checked_sub(1))
                .ok_or_else(|| StackFileError::Pprof("it names no values".into()))?,
        };
        let (name, unit) = types.get(weight).cloned().unwrap_or_default();
        let of_event = format!("{name} samples");
        let counts = ["samples", "sample", "contentions", "alloc_objects", "objects"];
        let samples = named(&of_event).or_else(|| counts.iter().find_map(|word| named(word)));
        Ok(Values { weight, samples, name, unit })
    }
}

/// Functions of a profile, and the frames of each location.
fn frames(profile: &Profile) -> (Vec<StackFileFunction>, FxHashMap<u64, Vec<FileFrame>>) {
    let binaries: FxHashMap<u64, String> = profile
        .mapping
        .iter()
        .map(|m| {
            let path = profile.text(m.filename);
            let name = path.rsplit('/').next().unwrap_or_default().to_owned();
            (m.id, name)
        })
        .collect();
    let names: FxHashMap<u64, i64> = profile.function.iter().map(|f| (f.id, f.name)).collect();
    let mut functions: Vec<StackFileFunction> = Vec::new();
    let mut numbers: FxHashMap<StackFileFunction, u32> = FxHashMap::default();
    let mut number = |name: String, binary: &str| {
        let name = if name.is_empty() { "[unknown]".to_owned() } else { name };
        let function = StackFileFunction { name, binary: binary.to_owned() };
        *numbers.entry(function).or_insert_with_key(|function| {
            functions.push(function.clone());
            functions.len() as u32 - 1
        })
    };
    let mut locations = FxHashMap::default();
    for location in &profile.location {
        let binary = binaries.get(&location.mapping_id).map_or("", |name| name);
        let mut frames: Vec<FileFrame> = Vec::new();
        for (at, line) in location.line.iter().enumerate() {
            let name = names.get(&line.function_id).map_or(String::new(), |n| profile.text(*n));
            let is_inlined = at + 1 < location.line.len();
            frames.push(FileFrame { function: number(name, binary), is_inlined });
        }
        if frames.is_empty() {
            frames.push(FileFrame { function: number(String::new(), binary), is_inlined: false });
        }
        locations.insert(location.id, frames);
    }
    (functions, locations)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `main` calls `work`, into which `leaf` was inlined: 3 samples of 30 ms; 1 of 10 ms in `main`.
    fn profile() -> Profile {
        let texts =
            ["", "samples", "count", "cpu", "nanoseconds", "main", "work", "leaf", "/bin/a"];
        let line = |function_id| Line { function_id };
        Profile {
            sample_type: vec![ValueType { name: 1, unit: 2 }, ValueType { name: 3, unit: 4 }],
            sample: vec![
                Sample { location_id: vec![20, 10], value: vec![3, 30_000_000] },
                Sample { location_id: vec![10], value: vec![1, 10_000_000] },
            ],
            mapping: vec![Mapping { id: 1, filename: 8 }],
            location: vec![
                Location { id: 10, mapping_id: 1, line: vec![line(1)] },
                Location { id: 20, mapping_id: 1, line: vec![line(3), line(2)] },
            ],
            function: (1..).zip(5..8).map(|(id, name)| Function { id, name }).collect(),
            string_table: texts.iter().map(|text| text.as_bytes().to_vec()).collect(),
            default_sample_type: 0,
        }
    }

    #[test]
    fn the_default_value_is_the_last_one_and_others_are_chosen_by_name() {
        let bytes = profile().encode_to_vec();
        assert!(is_profile(&bytes));
        let cpu = parse(&bytes, None).unwrap();
        assert_eq!((&*cpu.value, &*cpu.unit), ("cpu", "nanoseconds"));
        let stacks: Vec<(Vec<&str>, f64, u64)> = cpu
            .stacks
            .iter()
            .map(|s| {
                let name = |f: &FileFrame| &*cpu.functions[f.function as usize].name;
                (s.frames.iter().map(name).collect(), s.weight, s.samples)
            })
            .collect();
        assert_eq!(stacks[0], (vec!["leaf", "work", "main"], 30e6, 3));
        assert_eq!(stacks[1], (vec!["main"], 10e6, 1));
        let inlined: Vec<bool> = cpu.stacks[0].frames.iter().map(|f| f.is_inlined).collect();
        assert_eq!(inlined, [true, false, false]);
        assert!(cpu.functions.iter().all(|f| f.binary == "a"));
        let samples = parse(&bytes, Some("samples")).unwrap();
        assert_eq!((&*samples.unit, samples.stacks[0].weight), ("count", 3.0));
        let missing = parse(&bytes, Some("heap"));
        let known = "samples, cpu".to_owned();
        assert_eq!(missing, Err(StackFileError::NoValue { wanted: "heap".into(), known }));
    }

    #[test]
    fn damage_and_differences_are_refused() {
        let whole = profile().encode_to_vec();
        assert!(matches!(parse(&whole[..whole.len() - 3], None), Err(StackFileError::Pprof(_))));
        let mut difference = profile();
        difference.sample[0].value[1] = -5;
        let refused = parse(&difference.encode_to_vec(), None);
        assert_eq!(refused, Err(StackFileError::Pprof("a value is below 0".into())));
        let packed = [GZIP.as_slice(), b"\x08\0\0\0"].concat();
        assert!(matches!(parse(&packed, None), Err(StackFileError::Gzip(_))));
        let mut empty = profile();
        empty.sample.clear();
        assert_eq!(parse(&empty.encode_to_vec(), None), Err(StackFileError::Empty));
        // Numbers that stand for nothing have no name.
        let mut nameless = profile();
        nameless.function[2].name = 99;
        nameless.sample[1].location_id = vec![77];
        let read = parse(&nameless.encode_to_vec(), None).unwrap();
        let leaf = read.stacks[0].frames[0].function as usize;
        assert_eq!(read.functions[leaf].name, "[unknown]");
        assert_eq!(read.stacks[1].frames, []);
    }
}
