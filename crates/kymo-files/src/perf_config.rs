//! perf's configuration file: text → variables, and a variable changed in the text. Which
//! files there are, and what the variables mean, is for the program.
//!
//! ```text
//! # a comment; ; begins one, too
//! [section]                  # or [section "subsection"], [section.subsection]
//!     name = a value         # unquoted blanks are one, around it there are none
//!     name = "a # value"     # \n \t \b \" \\ inside and outside of quotation marks
//! ```

use std::fmt::Write as _;

/// A variable of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigVariable {
    /// `section.name`.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The line that it is in.
    pub line: usize,
}

/// Parsed configuration: the variables before the first mistake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigVariables {
    /// In the order of the text.
    pub variables: Vec<ConfigVariable>,
    /// The first mistake.
    pub mistake: Option<ConfigSyntaxError>,
}

/// Syntax error of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct ConfigSyntaxError {
    /// Line, the first is 1.
    pub line: usize,
    /// Reason.
    pub why: &'static str,
}

/// Why a variable cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigSetError {
    /// The text is not changed where it cannot be read.
    #[error(transparent)]
    Syntax(#[from] ConfigSyntaxError),
    /// There is no section, or no name.
    #[error("`{0}` is not of the form section.name")]
    Key(String),
    /// A section or name has characters that no file can hold.
    #[error("`{0}` has characters that a section or a name cannot have")]
    Characters(String),
}

impl ConfigVariables {
    /// Reads a text.
    pub fn parse(text: &[u8]) -> ConfigVariables {
        let parsed = Parser::parse(text);
        let variables = parsed.variables.into_iter().map(|found| found.variable).collect();
        ConfigVariables { variables, mistake: parsed.mistake }
    }
}

/// The text with a variable set: in its place where it is there, else at the end of its
/// section. All else stays as it is.
///
/// # Errors
/// If the text has mistakes, or the variable cannot be written.
pub fn set_variable(text: &[u8], key: &str, value: &str) -> Result<Vec<u8>, ConfigSetError> {
    let parsed = Parser::parse(text);
    if let Some(mistake) = parsed.mistake {
        return Err(mistake.into());
    }
    let (section, name) = split_key(key).ok_or_else(|| ConfigSetError::Key(key.to_owned()))?;
    let unusable = || ConfigSetError::Characters(key.to_owned());
    let header = section_header(section).ok_or_else(unusable)?;
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
    if !first || !name.bytes().all(is_name) || value.contains('\0') {
        return Err(unusable());
    }
    let (key, value) = (normal_key(key), quoted(value));
    let mut changed = text.to_vec();
    // The last one counts.
    if let Some(found) = parsed.variables.iter().rev().find(|found| found.variable.key == key) {
        changed.splice(found.start..found.end, value.into_bytes());
        return Ok(changed);
    }
    let line = format!("\t{name} = {value}\n");
    let section = key.rsplit_once('.').map_or("", |(section, _)| section);
    let (at, lines) = match parsed.sections.iter().rev().find(|s| s.name == section) {
        Some(section) => (section.end, line),
        None => (text.len(), format!("[{header}]\n{line}")),
    };
    let unfinished = at > 0 && text.get(at - 1) != Some(&b'\n');
    let lines = if unfinished { format!("\n{lines}") } else { lines };
    changed.splice(at..at, lines.into_bytes());
    Ok(changed)
}

/// A key as texts have it: section and name in lower case, a subsection as it is.
pub fn normal_key(key: &str) -> String {
    let Some((section, name)) = split_key(key) else { return key.to_owned() };
    let name = name.to_ascii_lowercase();
    match section.split_once('.') {
        Some((first, rest)) => format!("{}.{rest}.{name}", first.to_ascii_lowercase()),
        None => format!("{}.{name}", section.to_ascii_lowercase()),
    }
}

/// Section and name.
fn split_key(key: &str) -> Option<(&str, &str)> {
    key.rsplit_once('.').filter(|(section, name)| !section.is_empty() && !name.is_empty())
}

/// Section name in brackets.
fn section_header(section: &str) -> Option<String> {
    let plain = |text: &str| text.bytes().all(|byte| is_name(byte) || byte == b'.');
    let lower = |text: &str| !text.bytes().any(|byte| byte.is_ascii_uppercase());
    let (first, rest) = section.split_once('.').unwrap_or((section, ""));
    if plain(section) && lower(rest) {
        return Some(section.to_ascii_lowercase());
    }
    if first.is_empty() || !plain(first) || rest.contains(['\n', '\0']) {
        return None;
    }
    let escaped = rest.replace('\\', "\\\\").replace('"', "\\\"");
    Some(format!("{} \"{escaped}\"", first.to_ascii_lowercase()))
}

/// A value as it is written.
fn quoted(value: &str) -> String {
    let special = |c: char| c.is_ascii_control() || matches!(c, '#' | ';' | '"' | '\\');
    let blanks = value.starts_with(' ') || value.ends_with(' ') || value.contains("  ");
    if !value.contains(special) && !blanks && !value.is_empty() {
        return value.to_owned();
    }
    let mut text = String::from("\"");
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\u{8}' => text.push_str("\\b"),
            c => text.push(c),
        }
    }
    text.push('"');
    text
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// A variable and the bytes of its value in the text.
struct ParsedVariable {
    variable: ConfigVariable,
    start: usize,
    end: usize,
}

/// A section, and where a line may be added to it.
struct ParsedSection {
    name: String,
    end: usize,
}

#[derive(Default)]
struct Parsed {
    variables: Vec<ParsedVariable>,
    sections: Vec<ParsedSection>,
    mistake: Option<ConfigSyntaxError>,
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    line: usize,
    parsed: Parsed,
}

type Step<T> = Result<T, &'static str>;

impl Parser<'_> {
    fn parse(text: &[u8]) -> Parsed {
        let bom = text.starts_with(b"\xef\xbb\xbf");
        let mut parser =
            Parser { text, at: if bom { 3 } else { 0 }, line: 1, parsed: Parsed::default() };
        if let Err(why) = parser.all() {
            parser.parsed.mistake = Some(ConfigSyntaxError { line: parser.line, why });
        }
        parser.parsed
    }

    fn all(&mut self) -> Step<()> {
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' => self.end_line(),
                b'#' | b';' => self.comment(),
                b'[' => self.section()?,
                _ if is_blank(byte) => self.at += 1,
                _ if byte.is_ascii_alphabetic() => self.variable()?,
                _ => return Err("neither a section nor a variable begins like this"),
            }
        }
        Ok(())
    }

    /// The next byte; the end of a line of DOS is one byte.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.text.get(self.at..)?;
        if rest.starts_with(b"\r\n") {
            self.at += 1;
            return Some(b'\n');
        }
        rest.first().copied()
    }

    fn end_line(&mut self) {
        self.at += 1;
        self.line += 1;
    }

    fn comment(&mut self) {
        while self.peek().is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    /// End of the current line.
    fn line_end(&self) -> usize {
        let rest = self.text.get(self.at..).unwrap_or_default();
        rest.iter().position(|byte| *byte == b'\n').map_or(self.text.len(), |n| self.at + n + 1)
    }

    fn section(&mut self) -> Step<()> {
        const UNFINISHED: &str = "a section ends with ] in its line";
        // Two of them in one line.
        if let Some(before) = self.parsed.sections.last_mut() {
            before.end = before.end.min(self.at);
        }
        self.at += 1;
        let mut name = Vec::new();
        loop {
            let byte = self.peek().ok_or(UNFINISHED)?;
            match byte {
                b']' => break,
                b'\n' => return Err(UNFINISHED),
                b' ' | b'\t' => {
                    self.subsection(&mut name)?;
                    break;
                }
                _ if is_name(byte) || byte == b'.' => name.push(byte.to_ascii_lowercase()),
                _ => return Err("a section has letters, digits, -, _ and . alone"),
            }
            self.at += 1;
        }
        if name.is_empty() {
            return Err("a section has a name");
        }
        self.at += 1;
        let name = String::from_utf8_lossy(&name).into_owned();
        self.parsed.sections.push(ParsedSection { name, end: self.line_end() });
        Ok(())
    }

    /// The subsection in quotation marks, up to the bracket.
    fn subsection(&mut self, name: &mut Vec<u8>) -> Step<()> {
        const FORM: &str = "a subsection must be in quotation marks before the ]";
        while matches!(self.peek(), Some(b' ' | b'\t')) {
            self.at += 1;
        }
        if self.peek() != Some(b'"') || name.is_empty() {
            return Err(FORM);
        }
        name.push(b'.');
        loop {
            self.at += 1;
            match self.peek() {
                None | Some(b'\n') => return Err(FORM),
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    name.push(self.peek().filter(|byte| *byte != b'\n').ok_or(FORM)?);
                }
                Some(byte) => name.push(byte),
            }
        }
        self.at += 1;
        if self.peek() == Some(b']') { Ok(()) } else { Err(FORM) }
    }

    fn variable(&mut self) -> Step<()> {
        let line = self.line;
        let mut name = String::new();
        while let Some(byte) = self.peek().filter(|byte| is_name(*byte)) {
            name.push(char::from(byte.to_ascii_lowercase()));
            self.at += 1;
        }
        self.skip_blanks();
        match self.peek() {
            Some(b'=') => self.at += 1,
            None | Some(b'\n') => return Err("a variable has a value: name = value"),
            Some(_) => return Err("a name must be followed by ="),
        }
        if self.parsed.sections.is_empty() {
            return Err("this variable has no section");
        }
        self.skip_blanks();
        let start = self.at;
        let (value, end) = self.value()?;
        let line_end = self.line_end();
        if let Some(section) = self.parsed.sections.last_mut() {
            let mut key = section.name.clone();
            let _ = write!(key, ".{name}");
            section.end = line_end;
            let variable = ConfigVariable { key, value, line };
            self.parsed.variables.push(ParsedVariable { variable, start, end });
        }
        Ok(())
    }

    fn skip_blanks(&mut self) {
        while self.peek().is_some_and(|byte| byte != b'\n' && is_blank(byte)) {
            self.at += 1;
        }
    }

    /// A value, and where it ends; a comment behind it is skipped, the end of the line is not.
    fn value(&mut self) -> Step<(String, usize)> {
        let mut value = Vec::new();
        let mut end = self.at;
        let (mut in_quotes, mut blank) = (false, false);
        while let Some(byte) = self.peek() {
            match byte {
                b'\n' if in_quotes => return Err("a quotation mark is missing"),
                b'\n' => break,
                b'#' | b';' if !in_quotes => {
                    self.comment();
                    break;
                }
                _ if is_blank(byte) && !in_quotes => {
                    blank = !value.is_empty();
                    self.at += 1;
                    continue;
                }
                _ => {}
            }
            if std::mem::take(&mut blank) {
                value.push(b' ');
            }
            self.at += 1;
            match byte {
                b'"' => in_quotes = !in_quotes,
                b'\\' => match self.peek() {
                    // The value continues in the next line.
                    Some(b'\n') => self.end_line(),
                    // As perf reads it.
                    None => {}
                    Some(escaped) => {
                        value.push(match escaped {
                            b'n' => b'\n',
                            b't' => b'\t',
                            b'b' => 8,
                            b'"' | b'\\' => escaped,
                            _ => return Err("behind a \\ there is n, t, b, \" or \\"),
                        });
                        self.at += 1;
                    }
                },
                byte => value.push(byte),
            }
            end = self.at;
        }
        if in_quotes {
            return Err("a quotation mark is missing");
        }
        Ok((String::from_utf8_lossy(&value).into_owned(), end))
    }
}

fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0xb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, variables: &[(&str, &str)], mistake: Option<usize>) {
        let read = ConfigVariables::parse(text.as_bytes());
        let found: Vec<_> =
            read.variables.iter().map(|v| (v.key.as_str(), v.value.as_str())).collect();
        assert_eq!(found, variables, "{text:?}");
        assert_eq!(read.mistake.map(|mistake| mistake.line), mistake, "{text:?}");
    }

    #[test]
    fn values_are_read_as_perf_reads_them() {
        check("", &[], None);
        check("[a]\n", &[], None);
        check("[a] k = 1\n[b]l=2", &[("a.k", "1"), ("b.l", "2")], None);
        check("# c\n;d\n[A-b]\n\tK_x = 1 ; e\n", &[("a-b.k_x", "1")], None);
        check("[a \"Sub.x\"]\nk=1\n[a.B]\nk=2\n", &[("a.Sub.x.k", "1"), ("a.b.k", "2")], None);
        check("[a \"x\\\"\\n\"]\nk=1\n", &[("a.x\"n.k", "1")], None);
        check("[a]\n k = \"v w\" z\\tq\n", &[("a.k", "v w z\tq")], None);
        check("[a]\n k=\\\n  cont   in  ued   \n", &[("a.k", "cont in ued")], None);
        check("[a]\nk=a\" b # c\"d#e\nl=\"  \"\n", &[("a.k", "a b # cd"), ("a.l", "  ")], None);
        check("\u{feff}[a]\r\n k=1\r\n l=\r\n", &[("a.k", "1"), ("a.l", "")], None);
        check("[a]\nk=x\\\\y\\\"z\\", &[("a.k", "x\\y\"z")], None);
    }

    #[test]
    fn a_mistake_has_its_line_and_what_is_before_it_counts() {
        let first = [("a.k", "1")];
        for (bad, line) in [
            ("l\n", 3),
            ("l", 3),
            ("\n\nl : 2\n", 5),
            ("1l = 2\n", 3),
            ("l = \\q\n", 3),
            ("l = \"open\nm = 2\n", 3),
            ("l = \"open", 3),
            ("[]\n", 3),
            ("[b\n", 3),
            ("[b", 3),
            ("[ b ]\n", 3),
            ("[b c]\n", 3),
            ("[b \"c\"d]\n", 3),
            ("[b \"c\nd\"]\n", 3),
            ("l-é = 2\n", 3),
        ] {
            check(&format!("[a]\nk = 1\n{bad}"), &first, Some(line));
        }
        check("k = 1\n", &[], Some(1));
    }

    #[track_caller]
    fn check_set(text: &str, key: &str, value: &str, expected: &str) {
        let changed = set_variable(text.as_bytes(), key, value).unwrap();
        assert_eq!(String::from_utf8(changed.clone()).unwrap(), expected);
        let read = ConfigVariables::parse(&changed);
        assert_eq!(read.mistake, None, "{expected}");
        let last = read.variables.iter().rev().find(|v| v.key == normal_key(key));
        assert_eq!(last.map(|v| v.value.as_str()), Some(value), "{expected}");
    }

    #[test]
    fn a_variable_is_set_and_the_rest_stays() {
        check_set("", "a.k", "1", "[a]\n\tk = 1\n");
        check_set("[b]\nx=1", "a.k", "1", "[b]\nx=1\n[a]\n\tk = 1\n");
        let text = "# top\n[a]\n  k = old # why\n\n[b]\n  l = 2\n";
        check_set(text, "a.k", "new", &text.replace("old", "new"));
        check_set(text, "A.K", "a  b", &text.replace("old", "\"a  b\""));
        check_set(text, "a.m", "x", &text.replace("# why\n", "# why\n\tm = x\n"));
        check_set(text, "b.m", "x", &format!("{text}\tm = x\n"));
        check_set("[a]\nk=1\nk=2\n", "a.k", "3", "[a]\nk=1\nk=3\n");
        check_set("[a]\nk=\n", "a.k", "3", "[a]\nk=3\n");
        check_set("[a]\nk = x\\\n y z\nl=1\n", "a.k", "3", "[a]\nk = 3\nl=1\n");
        check_set("[a] [b] # c\n", "a.k", "1", "[a] \n\tk = 1\n[b] # c\n");
        check_set("[a]", "a.k", "1", "[a]\n\tk = 1\n");
        check_set("[a]\r\nk=1\r\n", "a.k", "2", "[a]\r\nk=2\r\n");
        check_set("", "a.Big one.k", "1", "[a \"Big one\"]\n\tk = 1\n");
        for value in ["a#b", ";", "\"", "\\", " x ", "a\tb\nc\u{8}", "ä", "\r"] {
            let quoted = quoted(value);
            check_set("", "a.k", value, &format!("[a]\n\tk = {quoted}\n"));
        }
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        for key in ["k", ".k", "a.", "", "a.1k", "a.k x", "é.k", "a b.k", "a.x\ny.k"] {
            assert!(set_variable(b"", key, "1").is_err(), "{key:?}");
        }
        let mistake = set_variable(b"[a]\nk\n", "a.l", "1");
        assert!(matches!(mistake, Err(ConfigSetError::Syntax(ConfigSyntaxError { line: 2, .. }))));
    }
}
