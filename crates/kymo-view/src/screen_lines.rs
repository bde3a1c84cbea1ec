//! Lines as wide as a screen: rules end there, and names that do not fit are shortened in the
//! middle of their template arguments, of C++ and Rust alike.

use std::borrow::Cow;

/// Fewer characters of arguments tell nothing.
const LEAST_KEPT: usize = 6;

/// Words for the largest part of something.
pub(crate) fn most_of_it(part: u64, whole: u64) -> &'static str {
    if part.saturating_mul(2) >= whole { "most of it" } else { "the largest part of it" }
}

/// The name of a task with its number, cut to a number of columns: its number is whole.
pub(crate) fn fit_task(label: &str, columns: usize) -> Cow<'_, str> {
    let too_many = label.chars().count().saturating_sub(columns);
    let Some((name, number)) = label.rsplit_once(':').filter(|_| too_many > 0) else {
        return Cow::Borrowed(label);
    };
    let kept = name.chars().count().saturating_sub(too_many + 1);
    let name: String = name.chars().take(kept).collect();
    Cow::Owned(format!("{name}…:{number}"))
}

/// A line that is no wider than `columns` as far as rules, blanks and template arguments make it
/// so.
pub fn fit_line(line: &str, columns: usize) -> Cow<'_, str> {
    if shown_width(line) <= columns {
        return Cow::Borrowed(line);
    }
    let line = line.trim_end();
    if line.chars().all(|c| "# .-=".contains(c)) {
        return Cow::Owned(line.chars().take(columns).collect());
    }
    let mut too_many = shown_width(line).saturating_sub(columns);
    let mut groups = argument_groups(line);
    groups.sort_by_key(|(begin, end)| std::cmp::Reverse(end - begin));
    // Parts that are left out, in bytes.
    let mut cuts = Vec::new();
    for (begin, end) in groups {
        if too_many == 0 {
            break;
        }
        let text = line.get(begin..end).unwrap_or_default();
        let count = text.chars().count();
        let kept = match count.saturating_sub(too_many + 1) {
            kept if kept < LEAST_KEPT => 0,
            kept => kept,
        };
        // What stands in its place takes a column.
        if count < 2 {
            continue;
        }
        let byte_of = |n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
        cuts.push((begin + byte_of(kept.div_ceil(2)), begin + byte_of(count - kept / 2)));
        too_many = too_many.saturating_sub(count - kept - 1);
    }
    cuts.sort_unstable();
    let (mut fitted, mut from) = (String::new(), 0);
    for (begin, end) in cuts {
        fitted.push_str(line.get(from..begin).unwrap_or_default());
        fitted.push('…');
        from = end;
    }
    fitted.push_str(line.get(from..).unwrap_or_default());
    Cow::Owned(fitted)
}

/// Characters that a terminal shows: all but those of colors.
fn shown_width(line: &str) -> usize {
    let mut pieces = line.split('\x1b');
    let first = pieces.next().map_or(0, |piece| piece.chars().count());
    let behind = |piece: &str| piece.split_once('m').map_or(0, |(_, text)| text.chars().count());
    first + pieces.map(behind).sum::<usize>()
}

/// Start and end of the arguments of outermost `<…>`.
fn argument_groups(line: &str) -> Vec<(usize, usize)> {
    let (mut groups, mut open) = (Vec::new(), Vec::new());
    let bytes = line.as_bytes();
    let at = |place: Option<usize>| place.and_then(|place| bytes.get(place)).copied();
    for (place, byte) in bytes.iter().enumerate() {
        let before = line.get(..place).unwrap_or_default();
        match byte {
            b'<' => {
                let is_operator = before.ends_with("operator") || before.ends_with("operator<");
                let next = at(Some(place + 1));
                if !is_operator && !matches!(next, None | Some(b' ' | b'=' | b'-' | b'<')) {
                    open.push(place + 1);
                }
            }
            b'>' if !matches!(at(place.checked_sub(1)), Some(b'-' | b'=')) => {
                if let Some(begin) = open.pop()
                    && open.is_empty()
                {
                    groups.push((begin, place));
                }
            }
            _ => {}
        }
    }
    groups.retain(|(begin, end)| !line.get(*begin..*end).unwrap_or_default().contains('\x1b'));
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(columns: usize, line: &str, fitted: &str) {
        assert_eq!(fit_line(line, columns), fitted);
    }

    #[test]
    fn the_number_of_a_task_is_never_cut() {
        assert_eq!(fit_task("kworker/u8:5-writeback:4186", 26), "kworker/u8:5-writeba…:4186");
        assert_eq!(fit_task("kworker/u8:5-writeback:4186", 27), "kworker/u8:5-writeback:4186");
        assert_eq!(fit_task("sh:7", 2), "…:7");
        assert_eq!(fit_task("no number", 4), "no number");
    }

    #[test]
    fn most_is_half_or_more() {
        assert_eq!(
            [most_of_it(5, 10), most_of_it(4, 10)],
            ["most of it", "the largest part of it"]
        );
    }

    #[test]
    fn arguments_are_shortened_in_the_middle_until_the_line_fits() {
        let name = "std::map<std::string, std::vector<unsigned long>>::find(std::string const&)";
        check(80, name, name);
        check(60, name, "std::map<std::string,…igned long>>::find(std::string const&)");
        check(40, name, "std::map<…>::find(std::string const&)");
        // Nothing else is left out.
        check(20, name, "std::map<…>::find(std::string const&)");
        check(
            46,
            "  12.00%  <alloc::vec::Vec<T> as core::iter::traits::Trait>::next::<u8>",
            "  12.00%  <alloc::vec:…its::Trait>::next::<u8>",
        );
    }

    #[test]
    fn what_looks_like_arguments_is_left_alone() {
        for line in ["a->b < c, d <= e -> f", "operator<(a, b)", "operator<<(a, bcd>)", "a<b<c"] {
            check(4, line, line);
        }
        check(6, "f<ab>x\u{1b}[31mred\u{1b}[0m", "f<…>x\u{1b}[31mred\u{1b}[0m");
    }

    #[test]
    fn rules_and_blanks_end_with_the_screen() {
        check(8, "# ........  ........", "# ......");
        check(8, "# Name         ", "# Name");
        check(12, "\u{1b}[31m12\u{1b}[0m Vec<u8>", "\u{1b}[31m12\u{1b}[0m Vec<u8>");
    }
}
