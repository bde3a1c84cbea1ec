//! A program of generic functions, closures and trait objects, for tests of inlined frames.

use std::collections::HashMap;

trait Shape {
    fn area(&self) -> f64;
}
struct Square(f64);
struct Circle(f64);
impl Shape for Square {
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}
impl Shape for Circle {
    fn area(&self) -> f64 {
        self.0 * self.0 * std::f64::consts::PI
    }
}

#[inline(never)]
fn sum<'a>(all: impl Iterator<Item = &'a dyn Shape>) -> f64 {
    all.map(|s| s.area()).filter(|a| *a > 1.0).sum()
}

#[inline(never)]
fn count(words: &str) -> HashMap<&str, usize> {
    let mut seen = HashMap::new();
    for word in words.split_whitespace() {
        *seen.entry(word).or_insert(0) += 1;
    }
    seen
}

fn main() {
    let shapes: Vec<Box<dyn Shape>> = (0..100)
        .map(|i| match i % 2 {
            0 => Box::new(Square(f64::from(i))) as Box<dyn Shape>,
            _ => Box::new(Circle(f64::from(i))),
        })
        .collect();
    let mut sorted: Vec<(&str, usize)> = count("a b a c d a b").into_iter().collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    println!("{} {sorted:?}", sum(shapes.iter().map(|s| &**s)));
}
