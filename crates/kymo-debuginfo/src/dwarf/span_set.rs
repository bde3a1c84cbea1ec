//! Spans of code, to be asked whether they hold an address.

/// Spans of addresses that may nest and overlap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SpanSet {
    /// Begin of each span, ascending, and the highest end of it and those before it.
    spans: Vec<(u64, u64)>,
}

impl SpanSet {
    /// A set of spans in any order.
    pub fn new(mut spans: Vec<(u64, u64)>) -> SpanSet {
        spans.sort_unstable();
        let mut highest = 0;
        for (_, end) in &mut spans {
            highest = highest.max(*end);
            *end = highest;
        }
        SpanSet { spans }
    }

    /// Whether any span holds an address.
    pub fn contains(&self, addr: u64) -> bool {
        let after = self.spans.partition_point(|s| s.0 <= addr);
        let before = after.checked_sub(1).and_then(|last| self.spans.get(last));
        before.is_some_and(|(_, highest)| addr < *highest)
    }
}

#[cfg(test)]
mod tests {
    use super::SpanSet;

    #[test]
    fn a_set_holds_what_any_of_its_spans_holds() {
        let spans = vec![(50, 60), (10, 40), (20, 25), (60, 61), (5, 5)];
        let set = SpanSet::new(spans.clone());
        for addr in 0..70 {
            let expected = spans.iter().any(|(a, b)| (*a..*b).contains(&addr));
            assert_eq!(set.contains(addr), expected, "{addr}");
        }
        assert!(!SpanSet::default().contains(0));
    }
}
