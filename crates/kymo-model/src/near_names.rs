//! Names that are like one that was typed and does not exist.

/// The names most like `wanted`: those that take the fewest edits, no more
/// than a third of its length; then those that contain it.
pub fn near_names<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    const MOST: usize = 3;
    let limit = (wanted.len() / 3).clamp(1, 6);
    let lower = wanted.to_ascii_lowercase();
    let mut found: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let candidate = name.to_ascii_lowercase();
            let d = distance(lower.as_bytes(), candidate.as_bytes(), limit);
            match d {
                Some(d) => Some((d, name)),
                None if wanted.len() >= 4 && candidate.contains(&lower) => {
                    Some((limit + candidate.len() - lower.len(), name))
                }
                None => None,
            }
        })
        .collect();
    found.sort_unstable();
    found.dedup_by(|a, b| a.1 == b.1);
    // A name one edit away makes those three edits away noise.
    let best = found.first().map_or(0, |f| f.0);
    found.into_iter().take(MOST).filter(|f| f.0 <= best + 1).map(|f| f.1.to_owned()).collect()
}

/// Edits (insert, delete, replace, swap of neighbours) from `a` to `b`, or
/// `None` if more than `limit`.
fn distance(a: &[u8], b: &[u8], limit: usize) -> Option<usize> {
    if a.len().abs_diff(b.len()) > limit || a.len() > 256 || b.len() > 256 {
        return None;
    }
    let width = b.len() + 1;
    let (mut before, mut last) = (vec![0; width], (0..width).collect::<Vec<usize>>());
    for (i, &x) in a.iter().enumerate() {
        let mut now = vec![i + 1; width];
        for (j, &y) in b.iter().enumerate() {
            let mut d = (last[j] + usize::from(x != y)).min(last[j + 1] + 1).min(now[j] + 1);
            if i > 0 && j > 0 && x == b[j - 1] && a[i - 1] == y {
                d = d.min(before[j - 1] + 1);
            }
            now[j + 1] = d;
        }
        if now.iter().min().is_some_and(|d| *d > limit) {
            return None;
        }
        before = std::mem::replace(&mut last, now);
    }
    last.last().copied().filter(|d| *d <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fewest_edits_come_first() {
        let names = ["cycles", "cpu-cycles", "cpu-clock", "bus-cycles", "sched:sched_switch"];
        let of = |w| near_names(w, names.into_iter());
        assert_eq!(of("cyclse"), ["cycles"]);
        assert_eq!(of("sched:sched_swithc"), ["sched:sched_switch"]);
        assert_eq!(of("cpu-clok"), ["cpu-clock"]);
        assert_eq!(of("sched_switch"), ["sched:sched_switch"]);
        assert!(of("xyz").is_empty());
    }
}
