//! Numbers of things, in words.

/// `1 file`, `2 files`.
pub fn counted(n: u64, one: &str, more: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { more })
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
