//! The widths that `format!` takes: a wider column than 65,535 characters is a panic.

/// A width for `{:width$}` and its like, of a number that comes from data: of the length
/// of a name, of a depth. Beyond the widest that is allowed columns do not line up.
pub fn format_width(characters: usize) -> usize {
    characters.min(usize::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_can_be_formatted() {
        let check = |characters: usize, expected: usize| {
            let width = format_width(characters);
            assert_eq!(format!("{:width$}", "").len(), expected, "{characters}");
        };
        check(0, 0);
        check(12, 12);
        check(65_535, 65_535);
        check(70_000, 65_535);
        check(usize::MAX, 65_535);
    }
}
