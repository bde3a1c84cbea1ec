//! Why the kernel refuses a filter: it says no more than `EINVAL`, so the names
//! in the filter are compared with the fields of the events it was meant for.

use super::EventSpec;
use crate::tracefs::Tracefs;

/// Fields that every tracepoint has beside its own, in the kernel's filters.
const EVERYWHERE: [&str; 8] = [
    "CPU",
    "cpu",
    "COMM",
    "comm",
    "common_pid",
    "common_type",
    "common_flags",
    "common_preempt_count",
];

/// Most events named that a refused filter fits.
const MOST_NAMED: usize = 6;

/// Explains why `filter` does not fit `event`, and which of `all` it fits.
pub fn explain_refusal<'a>(
    event: &EventSpec,
    filter: &str,
    all: impl IntoIterator<Item = &'a EventSpec>,
) -> String {
    let Some(tracefs) = Tracefs::open().ok() else { return "it cannot be applied".into() };
    let fields = |spec: &EventSpec| -> Option<Vec<String>> {
        let (system, name) = spec.tracepoint.as_ref()?;
        Some(fields(&tracefs.event_format(system, name).ok()?))
    };
    let wanted = names(filter);
    let own = fields(event).unwrap_or_default();
    let missing: Vec<&str> = lacking(&wanted, &own);
    if missing.is_empty() {
        return "the expression is malformed, although its fields exist".into();
    }
    let own: Vec<&str> =
        own.iter().map(String::as_str).filter(|f| !f.starts_with("common_")).collect();
    let mut why = format!(
        "it has no field {}; its fields are {}",
        missing.join(" and "),
        if own.is_empty() { "none".into() } else { own.join(", ") }
    );
    let fits: Vec<&str> = all
        .into_iter()
        .filter(|s| s.filter.as_deref() == Some(filter))
        .filter(|s| fields(s).is_some_and(|own| lacking(&wanted, &own).is_empty()))
        .map(|s| s.name.as_str())
        .collect();
    match fits.get(..MOST_NAMED) {
        Some(some) if fits.len() > MOST_NAMED => {
            let more = fits.len() - MOST_NAMED;
            why.push_str(&format!("; the filter fits {} and {more} more", some.join(", ")));
        }
        _ if !fits.is_empty() => why.push_str(&format!("; the filter fits -e {}", fits.join(","))),
        _ => {}
    }
    why
}

fn lacking<'a>(wanted: &[&'a str], own: &[String]) -> Vec<&'a str> {
    let there = |name: &str| EVERYWHERE.contains(&name) || own.iter().any(|f| f == name);
    wanted.iter().filter(|w| !there(w)).copied().collect()
}

/// The names of the fields of a tracefs `format` text.
fn fields(format: &str) -> Vec<String> {
    let name = |line: &str| {
        let declaration = line.trim_start().strip_prefix("field:")?.split(';').next()?;
        // `char comm[16]`, but `__data_loc char[] name`.
        let last = declaration.trim_end().rsplit([' ', '*']).next()?;
        let name = last.split('[').next()?;
        (!name.is_empty()).then(|| name.to_owned())
    };
    format.lines().filter_map(name).collect()
}

/// The names that a filter compares with something.
fn names(filter: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = filter;
    while let Some(c) = rest.chars().next() {
        if c == '"' || c == '\'' {
            let text = rest.get(1..).unwrap_or_default();
            rest = text.find(c).and_then(|end| text.get(end + 1..)).unwrap_or_default();
            continue;
        }
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = rest.find(|c| !word(c)).unwrap_or(rest.len());
        if end == 0 {
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            continue;
        }
        let (name, after) = rest.split_at(end);
        let next = after.trim_start();
        // A mask (`flags & 1`), not the next condition (`flags && …`); a function of
        // the field (`name.ustring`).
        let compared = next.starts_with(['=', '!', '<', '>', '~', '.'])
            || next.starts_with('&') && !next.starts_with("&&");
        if compared && !name.starts_with(|c: char| c.is_ascii_digit()) && !found.contains(&name) {
            found.push(name);
        }
        // The function's name is no field's.
        rest = match after.strip_prefix('.') {
            Some(function) => function.trim_start_matches(word),
            None => after,
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_filter_compares() {
        assert_eq!(names("pid>0"), ["pid"]);
        assert_eq!(names("(a == 1 && b & 2) || !(c ~ \"d == e*\")"), ["a", "b", "c"]);
        assert_eq!(names("file.ustring ~ 'x=1' && flags && a != 3"), ["file", "a"]);
        assert_eq!(names("prev_pid=="), ["prev_pid"]);
        assert_eq!(names("0x10 == a"), [""; 0]);
        assert_eq!(names("\"open"), [""; 0]);
    }

    #[test]
    fn fields_of_a_format() {
        let text = "name: x\nID: 7\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\n\n\
                    \tfield:char comm2[16];\toffset:8;\n\tfield:const char *name;\toffset:24;\n\
                    \tfield:__data_loc char[] what;\toffset:32;\n";
        assert_eq!(fields(text), ["common_pid", "comm2", "name", "what"]);
    }
}
