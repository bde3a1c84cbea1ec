//! Ends of calls in a program's text, for messages.

use kymo_bpf::ProgramPosition;

/// The longest call that is looked through.
const LONGEST: usize = 400;

/// Column after the call that begins at a position, if a call does and ends in the same line.
pub fn end_of_call(text: &str, at: ProgramPosition) -> Option<u32> {
    let line = text.lines().nth((at.line as usize).checked_sub(1)?)?;
    let rest = line.chars().skip((at.column as usize).checked_sub(1)?).take(LONGEST);
    let (mut depth, mut quoted, mut escaped, mut has_name) = (0u32, false, false, false);
    for (n, c) in (1u32..).zip(rest) {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' if depth > 0 => quoted = !quoted,
            _ if quoted => {}
            '(' if has_name => depth += 1,
            ')' if depth == 1 => return Some(at.column + n),
            ')' if depth > 1 => depth -= 1,
            _ if depth > 0 => {}
            c if c.is_ascii_alphanumeric() || c == '_' => has_name = true,
            _ => return None,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_ends_behind_its_last_parenthesis() {
        let end = |text, column| end_of_call(text, ProgramPosition { line: 1, column });
        assert_eq!(end("begin { f(\"a)\\\")\", (1)) }", 9), Some(24));
        assert_eq!(end("begin { f (1) }", 9), None);
        assert_eq!(end("begin { (1) }", 9), None);
        assert_eq!(end("begin { f(1", 9), None);
        assert_eq!(end("begin { é + f(x) }", 13), Some(17));
        assert_eq!(end_of_call("", ProgramPosition { line: 3, column: 1 }), None);
    }
}
