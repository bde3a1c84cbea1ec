//! Numbers of things, in words.

/// `1 file`, `2 files`.
pub fn counted(n: u64, one: &str, more: &str) -> String {
    format!("{n} {}", by_number(n, one, more))
}

/// The form of a word that goes with a number: `has`, `have`.
pub fn by_number<'w>(n: u64, one: &'w str, more: &'w str) -> &'w str {
    if n == 1 { one } else { more }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one() {
        let texts = [0, 1, 2].map(|n| counted(n, "entry", "entries"));
        assert_eq!(texts, ["0 entries", "1 entry", "2 entries"]);
    }
}
