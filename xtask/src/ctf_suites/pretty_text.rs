//! Lines of babeltrace2's `sink.text.pretty`, with the time in seconds and no names of traces.

/// An event.
#[derive(Debug)]
pub(super) struct PrettyEvent {
    /// Seconds and nanoseconds, if it has a time.
    pub(super) time: Option<String>,
    pub(super) name: String,
    /// The last of its structures.
    pub(super) payload: PrettyValue,
}

/// A value.
#[derive(Debug, PartialEq)]
pub(super) enum PrettyValue {
    Structure(Vec<(String, PrettyValue)>),
    /// The content of an option or a variant.
    Option(Option<Box<PrettyValue>>),
    Array(Vec<PrettyValue>),
    /// Also that of an enumeration.
    Integer(i128),
    Real(f64),
    Bool(bool),
    Text(String),
}

impl PrettyEvent {
    pub(super) fn parse(line: &str) -> Option<PrettyEvent> {
        let (time, rest) = match line.strip_prefix('[') {
            Some(rest) => {
                let (time, rest) = rest.split_once("] ")?;
                (Some(time.to_owned()), rest)
            }
            None => (None, line),
        };
        if let Some(name) = rest.strip_suffix(": ") {
            let payload = PrettyValue::Structure(Vec::new());
            return Some(PrettyEvent { time, name: name.to_owned(), payload });
        }
        let (name, rest) = rest.split_once(": {")?;
        let mut words = Words(rest);
        let mut payload = words.braces()?;
        while words.take(", {") {
            payload = words.braces()?;
        }
        // A payload without fields cannot be distinguished from an option without content.
        if payload == PrettyValue::Option(None) {
            payload = PrettyValue::Structure(Vec::new());
        }
        words.0.is_empty().then(|| PrettyEvent { time, name: name.to_owned(), payload })
    }
}

/// Rest of a line.
struct Words<'a>(&'a str);

impl Words<'_> {
    fn take(&mut self, word: &str) -> bool {
        match self.0.strip_prefix(word) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Content of braces, and the closing one.
    fn braces(&mut self) -> Option<PrettyValue> {
        if self.take(" }") {
            return Some(PrettyValue::Option(None));
        }
        self.take(" ").then_some(())?;
        let mut members = Vec::new();
        loop {
            let Some(name) = self.name() else {
                let value = self.value()?;
                return self.take(" }").then(|| PrettyValue::Option(Some(Box::new(value))));
            };
            members.push((name, self.value()?));
            if self.take(" }") {
                return Some(PrettyValue::Structure(members));
            }
            self.take(", ").then_some(())?;
        }
    }

    /// The name before a value.
    fn name(&mut self) -> Option<String> {
        let (name, rest) = self.0.split_once(" = ")?;
        let is_name = !name.is_empty()
            && !name.starts_with(['"', '{', '[', '('])
            && !name.contains([',', '}', '"']);
        is_name.then(|| {
            self.0 = rest;
            name.to_owned()
        })
    }

    fn value(&mut self) -> Option<PrettyValue> {
        if self.take("{") {
            return self.braces();
        }
        if self.take("[") {
            return self.elements();
        }
        if self.take("( ") {
            // The labels, then the number.
            let (_, rest) = self.0.split_once(" : container = ")?;
            self.0 = rest;
            let number = self.value()?;
            return self.take(" )").then_some(number);
        }
        if self.take("\"") {
            return self.text().map(PrettyValue::Text);
        }
        let end = self.0.find([',', ' ']).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        scalar(word)
    }

    fn elements(&mut self) -> Option<PrettyValue> {
        let mut elements = Vec::new();
        if self.take(" ]") {
            return Some(PrettyValue::Array(elements));
        }
        loop {
            self.take(" ").then_some(())?;
            // `[3] = ` before each.
            let (index, rest) = self.0.split_once("] = ")?;
            index.strip_prefix('[')?.parse::<usize>().ok()?;
            self.0 = rest;
            elements.push(self.value()?);
            if self.take(" ]") {
                return Some(PrettyValue::Array(elements));
            }
            self.take(",").then_some(())?;
        }
    }

    /// A text up to its closing quote.
    fn text(&mut self) -> Option<String> {
        let mut text = String::new();
        let mut letters = self.0.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.0 = &self.0[at + 1..];
                    return Some(text);
                }
                '\\' => text.push(match letters.next()?.1 {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'a' => '\x07',
                    'b' => '\x08',
                    'f' => '\x0c',
                    'v' => '\x0b',
                    'e' => '\x1b',
                    'x' => {
                        let digits: String = letters.by_ref().take(2).map(|(_, d)| d).collect();
                        char::from(u8::from_str_radix(&digits, 16).ok()?)
                    }
                    other => other,
                }),
                other => text.push(other),
            }
        }
        None
    }
}

fn scalar(word: &str) -> Option<PrettyValue> {
    let radix = |digits: &str, radix| i128::from_str_radix(digits, radix).ok();
    let number = match word {
        "true" | "false" => return Some(PrettyValue::Bool(word == "true")),
        _ if word.starts_with("0x") => radix(&word[2..], 16),
        _ if word.starts_with("0b") => radix(&word[2..], 2),
        _ if word.len() > 1 && word.starts_with('0') && !word.contains('.') => radix(word, 8),
        _ => word.parse().ok(),
    };
    number.map(PrettyValue::Integer).or_else(|| word.parse().ok().map(PrettyValue::Real))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_babeltrace2_are_read() {
        let line = r#"[1.000000002] a:b: { cpu_id = 2 }, { s = "x \"y\"\n", e = ( "A" : container = 0x1F ), v = { 1.5 }, l = [ [0] = -1, [1] = 2 ], n = [ ], t = { b = true } }"#;
        let event = PrettyEvent::parse(line).expect("it is a line");
        assert_eq!((event.time.as_deref(), &*event.name), (Some("1.000000002"), "a:b"));
        let PrettyValue::Structure(members) = event.payload else { panic!("{:?}", event.payload) };
        let values: Vec<PrettyValue> = members.into_iter().map(|(_, value)| value).collect();
        let real = PrettyValue::Option(Some(Box::new(PrettyValue::Real(1.5))));
        assert_eq!(
            values,
            [
                PrettyValue::Text("x \"y\"\n".to_owned()),
                PrettyValue::Integer(31),
                real,
                PrettyValue::Array(vec![PrettyValue::Integer(-1), PrettyValue::Integer(2)]),
                PrettyValue::Array(Vec::new()),
                PrettyValue::Structure(vec![("b".to_owned(), PrettyValue::Bool(true))]),
            ]
        );
        let bare = PrettyEvent::parse("[0.000000000] a: ").expect("it has no fields");
        assert_eq!((&*bare.name, bare.payload), ("a", PrettyValue::Structure(Vec::new())));
        assert!(PrettyEvent::parse("a: { b = }").is_none());
    }
}
