//! Readers of the exported formats, written from their public descriptions, not
//! from the writers.

#![allow(dead_code, reason = "each test file uses some of it")]

pub(crate) mod firefox;
pub(crate) mod pprof;
pub(crate) mod speedscope;

use std::collections::BTreeMap;

/// Stacks and their weights.
pub(crate) type Folded = BTreeMap<String, u64>;

/// Reads folded stacks.
pub(crate) fn folded(text: &str) -> Folded {
    let line = |l: &str| {
        let (stack, weight) = l.rsplit_once(' ').unwrap();
        (stack.to_string(), weight.parse().unwrap())
    };
    let folded: Folded = text.lines().map(line).collect();
    assert_eq!(folded.len(), text.lines().count(), "a stack stands twice");
    folded
}

/// Asserts that both have the same stacks with the same weights.
#[track_caller]
pub(crate) fn same(ours: &Folded, theirs: &Folded) {
    let differ = |a: &Folded, b: &Folded| -> Vec<String> {
        let missing = a.iter().filter(|(k, v)| b.get(*k) != Some(v));
        missing.map(|(k, v)| format!("{k} {v}")).collect()
    };
    assert!(theirs.len() > 3, "{theirs:#?}");
    let (missing, extra) = (differ(theirs, ours), differ(ours, theirs));
    assert!(missing.is_empty() && extra.is_empty(), "missing {missing:#?}\nextra {extra:#?}");
}
