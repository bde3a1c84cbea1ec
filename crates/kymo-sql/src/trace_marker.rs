//! Texts in `trace_marker` that mark spans and counters, as systrace and Perfetto define them:
//! `B|PID|NAME` and `E`, `S|PID|NAME|COOKIE` and `F|…`, `C|PID|NAME|VALUE`, `I|PID|NAME`.

/// Meaning of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Marker<'t> {
    /// A span of the thread starts.
    Begin(&'t [u8]),
    /// The latest span of the thread ends.
    End,
    /// A moment of the thread.
    Instant(&'t [u8]),
    /// A span of the process starts: name and cookie.
    AsyncBegin(&'t [u8], i64),
    /// The span of the process with this name and cookie ends.
    AsyncEnd(&'t [u8], i64),
    /// Value of a counter of the process.
    Counter(&'t [u8], f64),
}

fn split_once(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().position(|byte| *byte == b'|')?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

fn rsplit_once(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = text.iter().rposition(|byte| *byte == b'|')?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.trim_ascii().parse().ok()
}

impl Marker<'_> {
    /// Parses a text; `None` for text of another kind.
    pub(crate) fn parse(text: &[u8]) -> Option<Marker<'_>> {
        let end = text.iter().rposition(|byte| !matches!(byte, 0 | b'\n' | b'\r'))?;
        let text = text.get(..=end)?;
        if text == b"E" {
            return Some(Marker::End);
        }
        let (kind, rest) = split_once(text)?;
        if kind == b"E" {
            return rest.iter().all(u8::is_ascii_digit).then_some(Marker::End);
        }
        let (pid, rest) = split_once(rest)?;
        number::<u32>(pid)?;
        let cookie = || {
            let (name, cookie) = rsplit_once(rest)?;
            Some((name, number::<i64>(cookie)?))
        };
        match kind {
            b"B" => Some(Marker::Begin(rest)),
            b"I" => Some(Marker::Instant(rest)),
            b"S" => cookie().map(|(name, cookie)| Marker::AsyncBegin(name, cookie)),
            b"F" => cookie().map(|(name, cookie)| Marker::AsyncEnd(name, cookie)),
            b"C" => {
                let (name, value) = rsplit_once(rest)?;
                let value: f64 = number(value)?;
                value.is_finite().then_some(Marker::Counter(name, value))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Marker;

    #[test]
    fn texts_are_those_of_systrace() {
        let of = |text: &'static str| Marker::parse(text.as_bytes());
        assert_eq!(of("B|12|frame|left\n"), Some(Marker::Begin(b"frame|left")));
        assert_eq!(
            (of("E"), of("E|12\n"), of("E\0")),
            (Some(Marker::End), Some(Marker::End), Some(Marker::End))
        );
        assert_eq!(of("C|12|queue|-7\n"), Some(Marker::Counter(b"queue", -7.0)));
        assert_eq!(of("C|12|a|b|2.5"), Some(Marker::Counter(b"a|b", 2.5)));
        assert_eq!(of("S|12|load|77"), Some(Marker::AsyncBegin(b"load", 77)));
        assert_eq!(of("F|12|load|77"), Some(Marker::AsyncEnd(b"load", 77)));
        assert_eq!(of("I|12|now"), Some(Marker::Instant(b"now")));
        let others = ["", "\n", "Error", "B|x|frame", "B|12", "C|12|queue|", "C|1|q|NaN", "E|now"];
        assert!(others.iter().all(|text| Marker::parse(text.as_bytes()).is_none()));
    }
}
