//! Arguments of recorded calls, with what else is known of them.

use kymo_analysis::syscalls::{SlowCall, SyscallTable};
use kymo_format::EventFormat;

use super::CallDescriptions;

/// Arguments of the slowest calls of a table. Where a recording has only words, `format` describes
/// them, which gives the format of an event of the system `syscalls` on this machine, if its calls
/// have the same numbers.
pub fn slowest_arguments(
    table: &SyscallTable,
    architecture: Option<&str>,
    format: impl Fn(&str) -> Option<EventFormat>,
) -> Vec<String> {
    let is_described = architecture.is_none_or(|name| name == std::env::consts::ARCH);
    let mut described = CallDescriptions::new(format);
    let mut text = |slow: &SlowCall| {
        let info = table.infos.get(slow.call.0 as usize)?;
        let words = &slow.arguments.words;
        let Some(count) = slow.arguments.count else {
            let number = info.number.filter(|_| is_described);
            let described = number.and_then(|number| described.arguments(number, words));
            return Some(described.unwrap_or_else(|| "…".to_owned()));
        };
        let value = |(n, word): (usize, &u64)| {
            let (name, is_address) = info.arguments.get(n)?;
            let text = slow.arguments.texts.iter().find(|(at, _)| *at == n);
            Some(match text {
                Some((_, text)) => format!("{name}={text:?}"),
                None if *is_address => format!("{name}={word:#x}"),
                None => format!("{name}={}", *word as i64),
            })
        };
        let values: Vec<String> = words.iter().take(count).enumerate().filter_map(value).collect();
        Some(values.join(", "))
    };
    table.slowest.iter().map(|slow| text(slow).unwrap_or_default()).collect()
}
