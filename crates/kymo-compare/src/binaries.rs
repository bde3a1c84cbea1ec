//! Binaries of two versions under one name: `a` before is `b` after, `libfoo.so` stays itself, and
//! of a stripped and an unstripped one functions cannot be compared by name.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::sums::{FunctionKey, RunSums};

/// Binaries whose names differ between the sides, and those without names on one side.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BinaryPairs {
    /// Name after → name before.
    pub(crate) renamed: FxHashMap<String, String>,
    /// Names before of binaries whose functions have names on one side only.
    pub(crate) nameless: FxHashSet<String>,
}

/// Least overlap of shares of functions that makes two binaries versions of one program.
const LEAST_OVERLAP: f64 = 0.25;
/// Least share of all samples of a binary that is paired because no other one is left.
const LEAST_SHARE: f64 = 0.1;

#[derive(Default)]
struct Binary<'a> {
    samples: u64,
    named: u64,
    functions: FxHashMap<&'a str, u64>,
}

impl Binary<'_> {
    fn overlap(&self, other: &Binary<'_>) -> f64 {
        let share = |of: &Binary<'_>, n: u64| n as f64 / of.samples.max(1) as f64;
        let both = self.functions.iter().filter_map(|(name, n)| {
            Some(share(self, *n).min(share(other, *other.functions.get(name)?)))
        });
        both.sum()
    }

    fn named_share(&self) -> f64 {
        self.named as f64 / self.samples.max(1) as f64
    }
}

impl BinaryPairs {
    /// Pairs the binaries of two sides.
    pub(crate) fn find(before: &[&RunSums], after: &[&RunSums]) -> BinaryPairs {
        let (old, new) = (collect(before), collect(after));
        let mut pairs = BinaryPairs::default();
        let is_free = |name: &&&str| !name.starts_with('[') && !name.contains(".so");
        let mut old_free: Vec<&str> =
            old.keys().filter(is_free).filter(|n| !new.contains_key(*n)).copied().collect();
        let mut new_free: Vec<&str> =
            new.keys().filter(is_free).filter(|n| !old.contains_key(*n)).copied().collect();
        let mut overlaps: Vec<(f64, &str, &str)> = Vec::new();
        for o in &old_free {
            overlaps.extend(new_free.iter().map(|n| (old[o].overlap(&new[n]), *o, *n)));
        }
        overlaps.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| (a.1, a.2).cmp(&(b.1, b.2))));
        for (overlap, o, n) in overlaps {
            if overlap >= LEAST_OVERLAP && old_free.contains(&o) && new_free.contains(&n) {
                pairs.renamed.insert(n.to_owned(), o.to_owned());
                old_free.retain(|name| *name != o);
                new_free.retain(|name| *name != n);
            }
        }
        let whole =
            |side: &FxHashMap<&str, Binary<'_>>| side.values().map(|b| b.samples).sum::<u64>();
        let (old_whole, new_whole) = (whole(&old) as f64, whole(&new) as f64);
        old_free.retain(|n| old[n].samples as f64 >= LEAST_SHARE * old_whole);
        new_free.retain(|n| new[n].samples as f64 >= LEAST_SHARE * new_whole);
        if let ([o], [n]) = (&*old_free, &*new_free) {
            pairs.renamed.insert((*n).to_owned(), (*o).to_owned());
        }
        for (name, binary) in &new {
            let before = pairs.renamed.get(*name).map_or(*name, String::as_str);
            let Some(other) = old.get(before).filter(|_| !before.starts_with('[')) else {
                continue;
            };
            let (one, two) = (other.named_share(), binary.named_share());
            if one.min(two) < 0.2 && one.max(two) > 0.6 {
                pairs.nameless.insert(before.to_owned());
            }
        }
        pairs
    }

    /// Common key of a function before.
    pub(crate) fn common_key_before(&self, key: &FunctionKey) -> FunctionKey {
        self.key_in(key, &key.binary)
    }

    /// Common key of a function after.
    pub(crate) fn common_key(&self, key: &FunctionKey) -> FunctionKey {
        self.key_in(key, self.renamed.get(&key.binary).unwrap_or(&key.binary))
    }

    fn key_in(&self, key: &FunctionKey, binary: &str) -> FunctionKey {
        let has_file = !binary.is_empty() && !binary.starts_with('[');
        let is_nameless = has_file && is_nameless(&key.name);
        let name = if self.nameless.contains(binary) || is_nameless {
            format!("[{binary}]")
        } else {
            key.name.clone()
        };
        FunctionKey { name, binary: binary.to_owned() }
    }
}

fn is_nameless(name: &str) -> bool {
    name.starts_with('[')
}

fn collect<'a>(runs: &[&'a RunSums]) -> FxHashMap<&'a str, Binary<'a>> {
    let mut all: FxHashMap<&str, Binary<'a>> = FxHashMap::default();
    for (key, sum) in runs.iter().flat_map(|run| run.functions()) {
        let binary = all.entry(&key.binary).or_default();
        binary.samples += sum.own_samples;
        if !is_nameless(&key.name) {
            binary.named += sum.own_samples;
            *binary.functions.entry(&key.name).or_default() += sum.own_samples;
        }
    }
    all.retain(|name, binary| binary.samples > 0 && !name.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sums::StackFrameKey;

    fn run(samples: &[(&str, &str, u64)]) -> RunSums {
        let mut run = RunSums::new("r", 1.0);
        for (name, binary, n) in samples {
            let function = run.function(FunctionKey::new(name, binary, false));
            run.add_stack(&[StackFrameKey { function, is_inlined: false }], *n as f64, *n);
        }
        run
    }

    #[test]
    fn versions_of_a_program_are_paired_by_their_functions() {
        let old = run(&[("parse", "jq-1.6", 50), ("main", "jq-1.6", 50), ("main", "sh", 10)]);
        let new = run(&[("parse", "jq-1.7", 60), ("main", "jq-1.7", 40), ("other", "dd", 10)]);
        let pairs = BinaryPairs::find(&[&old], &[&new]);
        assert_eq!(pairs.renamed.get("jq-1.7").map(String::as_str), Some("jq-1.6"));
        assert_eq!(pairs.renamed.len(), 1);
        let key = pairs.common_key(&FunctionKey::new("main", "jq-1.7", false));
        assert_eq!(key, FunctionKey::new("main", "jq-1.6", false));
    }

    #[test]
    fn functions_of_different_programs_stay_apart() {
        let old = run(&[("main", "sh", 50), ("main", "make", 50)]);
        let new = run(&[("main", "sh", 50), ("main", "make", 50)]);
        assert_eq!(BinaryPairs::find(&[&old], &[&new]), BinaryPairs::default());
    }

    #[test]
    fn a_stripped_binary_is_one_row() {
        let old = run(&[("parse", "a", 50), ("main", "a", 50)]);
        let new = run(&[("[a]", "a", 100)]);
        let pairs = BinaryPairs::find(&[&old], &[&new]);
        assert!(pairs.nameless.contains("a"));
        assert_eq!(pairs.common_key(&FunctionKey::new("parse", "a", false)).name, "[a]");
    }
}
