//! Attributes of program traces beyond CTF 1.8: the print formats of events, and the code that the
//! program had mapped. CTF 1.8 has no user-defined attributes that readers ignore, but it has the
//! environment, whose unknown names they do ignore. So these are values of the environment in a
//! metadata text and fields of [`Metadata`] otherwise (`docs/formats/ctf.md`, "Attributes").

use std::collections::HashMap;

use kymo_model::BuildId;

use super::types::{EnvValue, Metadata};

/// Begin of the name of a print format: the numbers of its stream and event follow.
const PRINT: &str = "kymo_print_";
/// Begin of the name of a mapping: its number follows.
const MAPPING: &str = "kymo_mapping_";

/// Code of a file that a traced program had mapped.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CodeMapping {
    /// First address.
    pub start: u64,
    /// Address behind the last.
    pub end: u64,
    /// Offset in the file of what lies at `start`.
    pub offset: u64,
    /// Build-id of the file, if it is known.
    pub build_id: Option<BuildId>,
    /// Path of the file, as the program had it.
    pub path: String,
}

impl CodeMapping {
    /// Reads `START-END OFFSET BUILDID PATH`: numbers in hexadecimal, `-` for no build-id.
    fn parse(text: &str) -> Option<CodeMapping> {
        let hex = |digits: &str| {
            let plain = digits.bytes().all(|b| b.is_ascii_hexdigit());
            plain.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        let mut parts = text.splitn(4, ' ');
        let (start, end) = parts.next()?.split_once('-')?;
        let (start, end, offset) = (hex(start)?, hex(end)?, hex(parts.next()?)?);
        let build_id = match parts.next()? {
            "-" => None,
            id => Some(BuildId::parse(id)?),
        };
        let path = parts.next()?.to_owned();
        (start < end).then_some(CodeMapping { start, end, offset, build_id, path })
    }
}

impl std::fmt::Display for CodeMapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}-{:x} {:x} ", self.start, self.end, self.offset)?;
        match &self.build_id {
            Some(id) => write!(f, "{id} {}", self.path),
            None => write!(f, "- {}", self.path),
        }
    }
}

/// The attributes of a trace as values of the environment.
pub(super) fn of(metadata: &Metadata) -> Vec<(String, EnvValue)> {
    let mut all = Vec::new();
    for stream in &metadata.streams {
        for event in &stream.events {
            if let Some(format) = &event.print_format {
                let name = format!("{PRINT}{}_{}", stream.id, event.id);
                all.push((name, EnvValue::Text(format.clone())));
            }
        }
    }
    let mappings = metadata.mappings.iter().enumerate();
    all.extend(mappings.map(|(n, m)| (format!("{MAPPING}{n}"), EnvValue::Text(m.to_string()))));
    all
}

/// Takes the attributes out of the environment of metadata that were just read. Returns the
/// names of those that mean nothing.
pub(super) fn take(metadata: &mut Metadata) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut formats = HashMap::new();
    let mappings = &mut metadata.mappings;
    metadata.env.retain(|(name, value)| {
        let text = match value {
            EnvValue::Text(text) => Some(text),
            EnvValue::Int(_) => None,
        };
        if let Some((stream, event)) = name.strip_prefix(PRINT).and_then(two_numbers) {
            match text {
                Some(text) => _ = formats.insert((stream, event), (name.clone(), text.clone())),
                None => wrong.push(name.clone()),
            }
            return false;
        }
        if name.strip_prefix(MAPPING).and_then(number).is_some() {
            match text.and_then(|t| CodeMapping::parse(t)) {
                Some(mapping) => mappings.push(mapping),
                None => wrong.push(name.clone()),
            }
            return false;
        }
        true
    });
    for stream in &mut metadata.streams {
        for event in &mut stream.events {
            if let Some((_, format)) = formats.remove(&(stream.id, event.id)) {
                event.print_format = Some(format);
            }
        }
    }
    wrong.extend(formats.into_values().map(|(name, _)| name));
    wrong.sort();
    wrong
}

/// A number as it is written here: without a sign and zeros before it.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|n: &u64| n.to_string() == text)
}

fn two_numbers(text: &str) -> Option<(u64, u64)> {
    let (first, second) = text.split_once('_')?;
    Some((number(first)?, number(second)?))
}

#[cfg(test)]
mod tests {
    use kymo_model::Endian;

    use super::super::types::{EventClass, StreamClass};
    use super::*;

    fn mapping() -> CodeMapping {
        CodeMapping {
            start: 0x5500,
            end: 0x7700,
            offset: 0x1000,
            build_id: Some(BuildId::new(&[0xab, 1])),
            path: "/opt/a b".into(),
        }
    }

    #[test]
    fn attributes_are_written_into_the_environment_and_read_from_there() {
        let mut metadata = Metadata::new(Endian::Little);
        metadata.env.push(("tracer_name".into(), EnvValue::Text("kymo".into())));
        let event = |id, format: Option<&str>| EventClass {
            id,
            name: format!("a:{id}"),
            print_format: format.map(str::to_owned),
            ..EventClass::default()
        };
        metadata.streams.push(StreamClass {
            id: 7,
            events: vec![event(0, Some("is {x} \"so\" \u{1b}{{é")), event(3, None)],
            ..StreamClass::default()
        });
        let none = CodeMapping { build_id: None, path: String::new(), ..mapping() };
        metadata.mappings = vec![mapping(), none];
        let text = metadata.to_tsdl();
        assert!(text.contains("kymo_print_7_0 = "), "{text}");
        assert!(text.contains("kymo_mapping_0 = \"5500-7700 1000 ab01 /opt/a b\";"), "{text}");
        assert_eq!(Metadata::parse(&text).unwrap(), metadata);
    }

    #[test]
    fn attributes_that_mean_nothing_are_named_and_dropped() {
        let mut metadata = Metadata::new(Endian::Little);
        let mut add = |name: &str, value| metadata.env.push((name.into(), value));
        let text = |t: &str| EnvValue::Text(t.into());
        add("kymo_mapping_0", text("7700-5500 0 - /x"));
        add("kymo_mapping_1", EnvValue::Int(4));
        add("kymo_mapping_2", text("+1-2 0 - /x"));
        add("kymo_mapping_x", text("5500-7700 0 - /x"));
        add("kymo_mapping_4", text(&mapping().to_string()));
        add("kymo_print_0_9", text("of no event"));
        add("kymo_print_0_09", text("another's"));
        let wrong = take(&mut metadata);
        let due = ["kymo_mapping_0", "kymo_mapping_1", "kymo_mapping_2", "kymo_print_0_9"];
        assert_eq!(wrong, due);
        let left: Vec<&str> = metadata.env.iter().map(|(n, _)| n.as_str()).collect();
        assert_eq!(left, ["kymo_mapping_x", "kymo_print_0_09"]);
        assert_eq!(metadata.mappings, [mapping()]);
    }
}
