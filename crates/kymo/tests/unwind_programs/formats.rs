//! Formats numbers, sorts and maps them for as many rounds as the argument says:
//! short functions of the standard library, so that samples fall on each of their
//! instructions, those before the return included.
use std::collections::HashMap;
use std::fmt::Write as _;

#[inline(never)]
fn round(n: u64) -> usize {
    let mut text = String::new();
    for i in n..n + 40 {
        let _ = write!(text, "{i:>12} {:#x} ", i * i);
    }
    let mut words: Vec<&str> = text.split_whitespace().collect();
    words.sort_unstable();
    let counts: HashMap<&str, usize> = words.iter().map(|w| (*w, w.len())).collect();
    counts.values().sum()
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(1, |n| n.parse().expect("a number"));
    println!("{}", (0..rounds).map(round).sum::<usize>());
}
