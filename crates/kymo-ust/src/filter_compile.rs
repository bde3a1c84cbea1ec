//! Filters as text: `id > 5 && (path == "/*" || !cached) && flags & 4`. The words are
//! those of kernel filters and of LTTng's: `== != < <= > >= && || ! &`, `~` for a pattern,
//! numbers, `"texts"`. With `==` and `!=`, a text that holds `*` or `?` is a pattern.

use crate::error::FilterError;
use crate::filter::{Filter, MAX_CODE, op};

/// Compiles a filter.
///
/// # Errors
/// The position of a syntax error, or that the text is too long.
pub fn compile(text: &str) -> Result<Vec<u8>, FilterError> {
    let mut compiler = Compiler { text, at: 0, code: Vec::new(), texts: Vec::new(), depth: 0 };
    compiler.or()?;
    compiler.space();
    if compiler.at < text.len() {
        return Err(compiler.expected("an operator or the end"));
    }
    compiler.code.push(op::END);
    if compiler.code.len() > MAX_CODE || compiler.texts.len() > usize::from(u16::MAX) {
        return Err(FilterError::TooLong { bytes: compiler.code.len() });
    }
    let size = (compiler.code.len() as u16).to_le_bytes();
    let mut out = vec![1, 0, size[0], size[1]];
    out.append(&mut compiler.code);
    out.append(&mut compiler.texts);
    Filter::parse(&out)?;
    Ok(out)
}

struct Compiler<'t> {
    text: &'t str,
    at: usize,
    code: Vec<u8>,
    texts: Vec<u8>,
    depth: usize,
}

/// Last compiled operand, as far as the operator after it needs it.
enum Operand {
    Value,
    /// A text with `*` or `?`.
    Pattern,
}

/// More nesting than the stack of programs.
const MAX_DEPTH: usize = 12;

impl Compiler<'_> {
    fn or(&mut self) -> Result<(), FilterError> {
        self.chain("||", op::IF, Self::and)
    }

    fn and(&mut self) -> Result<(), FilterError> {
        self.chain("&&", op::IF_NOT, |c| c.not().map(|_| ()))
    }

    /// Operands of one operator, evaluated as far as needed.
    fn chain(
        &mut self,
        operator: &str,
        jump: u8,
        operand: fn(&mut Self) -> Result<(), FilterError>,
    ) -> Result<(), FilterError> {
        operand(self)?;
        let mut jumps = Vec::new();
        while self.take(operator) {
            self.code.extend_from_slice(&[jump, 0, 0]);
            jumps.push(self.code.len());
            operand(self)?;
        }
        for from in jumps {
            let far = (self.code.len() - from) as u16;
            self.code[from - 2..from].copy_from_slice(&far.to_le_bytes());
        }
        Ok(())
    }

    fn not(&mut self) -> Result<(), FilterError> {
        self.space();
        let rest = &self.text[self.at..];
        if rest.starts_with('!') && !rest.starts_with("!=") {
            self.at += 1;
            self.deeper(Self::not)?;
            self.code.push(op::NOT);
            return Ok(());
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<(), FilterError> {
        self.bits()?;
        let operators = [
            ("==", op::EQ),
            ("!=", op::NE),
            ("<=", op::LE),
            (">=", op::GE),
            ("<", op::LT),
            (">", op::GT),
            ("~", op::GLOB),
        ];
        let Some((sign, opcode)) = operators.into_iter().find(|(sign, _)| self.take(sign)) else {
            return Ok(());
        };
        match (self.bits()?, sign) {
            (Operand::Pattern, "==") => self.code.push(op::GLOB),
            (Operand::Pattern, "!=") => self.code.extend_from_slice(&[op::GLOB, op::NOT]),
            _ => self.code.push(opcode),
        }
        Ok(())
    }

    fn bits(&mut self) -> Result<Operand, FilterError> {
        let mut operand = self.primary()?;
        loop {
            self.space();
            let rest = &self.text[self.at..];
            if !rest.starts_with('&') || rest.starts_with("&&") {
                return Ok(operand);
            }
            self.at += 1;
            self.primary()?;
            self.code.push(op::AND);
            operand = Operand::Value;
        }
    }

    fn primary(&mut self) -> Result<Operand, FilterError> {
        self.space();
        if self.take("(") {
            self.deeper(Self::or)?;
            if !self.take(")") {
                return Err(self.expected("`)`"));
            }
            return Ok(Operand::Value);
        }
        let rest = &self.text[self.at..];
        match rest.bytes().next() {
            Some(b'"') => self.string(),
            Some(b'0'..=b'9' | b'-' | b'.') => self.number(),
            Some(c) if c == b'_' || c.is_ascii_alphabetic() => {
                let end = rest
                    .find(|c: char| c != '_' && !c.is_ascii_alphanumeric())
                    .unwrap_or(rest.len());
                self.at += end;
                self.with_text(op::FIELD, rest.as_bytes()[..end].to_vec());
                Ok(Operand::Value)
            }
            _ => Err(self.expected("a field, a number, a text or `(`")),
        }
    }

    fn string(&mut self) -> Result<Operand, FilterError> {
        let start = self.at;
        let mut value = Vec::new();
        let mut bytes = self.text.as_bytes()[start + 1..].iter().enumerate();
        while let Some((i, byte)) = bytes.next() {
            match byte {
                b'"' => {
                    self.at = start + i + 2;
                    let pattern = value.iter().any(|c| matches!(c, b'*' | b'?'));
                    self.with_text(op::TEXT, value);
                    return Ok(if pattern { Operand::Pattern } else { Operand::Value });
                }
                b'\\' => value.extend(bytes.next().map(|(_, byte)| *byte)),
                _ => value.push(*byte),
            }
        }
        Err(self.expected("a text that ends"))
    }

    fn number(&mut self) -> Result<Operand, FilterError> {
        let rest = &self.text[self.at..];
        let (sign, digits) = match rest.strip_prefix('-') {
            Some(digits) => (-1, digits),
            None => (1, rest),
        };
        let end =
            digits.find(|c: char| c != '.' && !c.is_ascii_alphanumeric()).unwrap_or(digits.len());
        let word = &digits[..end];
        let whole = match word.strip_prefix("0x") {
            Some(hex) => i128::from_str_radix(hex, 16).ok(),
            None => word.parse::<i128>().ok(),
        };
        if let Some(value) = whole.map(|w| sign * w) {
            if let Ok(value) = i64::try_from(value) {
                self.code.push(op::INT);
                self.code.extend_from_slice(&value.to_le_bytes());
            } else if let Ok(value) = u64::try_from(value) {
                self.code.push(op::UINT);
                self.code.extend_from_slice(&value.to_le_bytes());
            } else {
                return Err(self.expected("a number of 64 bits"));
            }
        } else if let Ok(value) = word.parse::<f64>() {
            self.code.push(op::FLOAT);
            self.code.extend_from_slice(&(f64::from(sign as i32) * value).to_le_bytes());
        } else {
            return Err(self.expected("a number"));
        }
        self.at += rest.len() - digits.len() + end;
        Ok(Operand::Value)
    }

    fn with_text(&mut self, opcode: u8, text: Vec<u8>) {
        self.code.push(opcode);
        // Too long ones are refused at the end by the size of it all.
        self.code.extend_from_slice(&(self.texts.len() as u16).to_le_bytes());
        self.code.extend_from_slice(&(text.len() as u16).to_le_bytes());
        self.texts.extend(text);
    }

    fn deeper(
        &mut self,
        inner: fn(&mut Self) -> Result<(), FilterError>,
    ) -> Result<(), FilterError> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.expected("less nesting"));
        }
        inner(self)?;
        self.depth -= 1;
        Ok(())
    }

    fn take(&mut self, sign: &str) -> bool {
        self.space();
        let there = self.text[self.at..].starts_with(sign);
        self.at += if there { sign.len() } else { 0 };
        there
    }

    fn space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn expected(&self, expected: &'static str) -> FilterError {
        FilterError::Syntax { at: self.at, expected }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::field::{FieldTag, Shape};
    use crate::filter::{Fields, InRange};

    /// name: string, id: u64, delta: i32, ratio: f64, ok: bool.
    struct Sale;

    const FIELDS: [(&str, FieldTag, u8, u8); 5] = [
        ("name", FieldTag::String, 1, 0),
        ("id", FieldTag::Int, 8, 0),
        ("delta", FieldTag::Int, 4, Shape::SIGNED),
        ("ratio", FieldTag::Float, 8, 0),
        ("ok", FieldTag::Bool, 1, 0),
    ];

    impl Fields for Sale {
        fn count(&self) -> usize {
            FIELDS.len()
        }
        fn shape(&self, index: usize) -> Shape {
            let (_, kind, size, flags) = FIELDS[index];
            Shape { kind, size, flags, count: 0 }
        }
        fn name(&self, index: usize) -> &[u8] {
            FIELDS[index].0.as_bytes()
        }
    }

    fn payload() -> Vec<u8> {
        let mut bytes = b"/cart/7\0".to_vec();
        bytes.extend_from_slice(&(u64::MAX - 1).to_le_bytes());
        bytes.extend_from_slice(&(-3i32).to_le_bytes());
        bytes.extend_from_slice(&2.5f64.to_le_bytes());
        bytes.push(1);
        bytes
    }

    fn run(text: &str) -> bool {
        let compiled = compile(text).unwrap();
        let mut linked = [0; 700];
        let size = Filter::parse(&compiled).unwrap().link(&Sale, &mut linked).unwrap();
        let passes = Filter::run_linked(&linked[..size], &Sale, &payload());
        if let Some(range) = InRange::of(&linked[..size]) {
            assert_eq!(in_range(range, &payload()), passes, "{text}");
        }
        passes
    }

    fn in_range(range: InRange, payload: &[u8]) -> bool {
        let mut bytes = payload[range.at.into()..].to_vec();
        bytes.resize(8, 0xee);
        range.passes(bytes[..8].try_into().unwrap())
    }

    /// Fields of one kind each at a fixed place.
    struct One(Shape);

    impl Fields for One {
        fn count(&self) -> usize {
            1
        }
        fn shape(&self, _: usize) -> Shape {
            self.0
        }
        fn name(&self, _: usize) -> &[u8] {
            b"x"
        }
    }

    #[test]
    fn a_range_says_what_the_filter_says() {
        let numbers = ["-129", "-128", "-1", "0", "1", "127", "128", "255", "256", "-32768"];
        let edges = ["9223372036854775807", "9223372036854775808", "18446744073709551615"];
        let mut compared = 0;
        for (size, flags) in [1, 2, 4, 8].into_iter().flat_map(|s| [(s, 0), (s, Shape::SIGNED)]) {
            let fields = One(Shape { kind: FieldTag::Int, size, flags, count: 0 });
            let comparisons = ["==", "!=", "<", "<=", ">", ">="].into_iter().flat_map(|sign| {
                numbers.iter().chain(&edges).map(move |number| format!("x {sign} {number}"))
            });
            for text in comparisons.chain(["x".to_owned()]) {
                let compiled = compile(&text).unwrap();
                let mut linked = [0; 100];
                let len = Filter::parse(&compiled).unwrap().link(&fields, &mut linked).unwrap();
                let range = InRange::of(&linked[..len]);
                for value in [0, 1, 2, 126, 127, 128, 129, 254, 255, 256, 1 << 31, u64::MAX >> 1]
                    .into_iter()
                    .flat_map(|v: u64| [v, v.wrapping_neg(), !v])
                {
                    let payload = &value.to_le_bytes()[..size.into()];
                    let slow = Filter::run_linked(&linked[..len], &fields, payload);
                    let quick = range.is_some_and(|range| in_range(range, payload));
                    assert_eq!(quick, slow, "{text} of {payload:x?} {flags}");
                    compared += 1;
                }
            }
        }
        assert_eq!(compared, 8 * 79 * 36);
    }

    #[test]
    fn what_filters_say() {
        let yes = [
            "ok",
            "delta == -3",
            "delta < 0 && id > 5",
            "id == 18446744073709551614",
            "id == 0xfffffffffffffffe",
            "id > -1",
            "ratio > 2 && ratio < 3 && ratio != 2 && 2 < ratio && -2.5 < ratio",
            "delta > -3.5 && delta < -2.5",
            "name == \"/cart/7\"",
            "name == \"/cart/*\" && name != \"/shop*\" && name ~ \"*7\"",
            "!(id < 5) || delta",
            "id & 2 && !(id & 1)",
            "0 || 0 || (0 || ok)",
            "\"a\" < \"b\"",
            "delta == -3 && ratio == 2.5 && ok == 1",
        ];
        let no = [
            "!ok",
            "id < 5",
            "delta > 0",
            "name == \"\"",
            "name == 3",
            "ok && delta && 0",
            "ratio <= 2",
            "name ~ \"cart\"",
        ];
        for text in yes {
            assert!(run(text), "{text}");
        }
        for text in no {
            assert!(!run(text), "{text}");
        }
    }

    #[test]
    fn what_is_no_filter() {
        for (text, at) in [("", 0), ("id >", 4), ("id 5", 3), ("(id", 3), ("\"a", 0), ("5x", 0)] {
            let error = compile(text).unwrap_err();
            assert!(matches!(error, FilterError::Syntax { at: a, .. } if a == at), "{error:?}");
        }
        let mut out = [0; 100];
        let compiled = compile("nothing == 1").unwrap();
        let error = Filter::parse(&compiled).unwrap().link(&Sale, &mut out).unwrap_err();
        assert_eq!(error, FilterError::NoField { at: 0 });
        let names: Vec<_> = Filter::parse(&compiled).unwrap().names().collect();
        assert_eq!(names, [b"nothing"]);
        assert!(compile(&format!("{}id", "!".repeat(1000))).is_err());
        assert!(compile(&"id && ".repeat(300)).is_err());
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_a_filter_panic(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80),
            payload in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..40),
        ) {
            let mut filter = vec![1, 0, bytes.len() as u8, 0];
            filter.extend_from_slice(&bytes);
            filter.extend_from_slice(b"nameid");
            Filter::run_linked(&filter, &Sale, &payload);
            if let Ok(parsed) = Filter::parse(&filter) {
                let mut out = [0; 200];
                if let Ok(size) = parsed.link(&Sale, &mut out) {
                    Filter::run_linked(&out[..size], &Sale, &payload);
                }
            }
        }
    }
}
