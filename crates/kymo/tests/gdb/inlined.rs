//! Calls getppid by an instruction of its own below what Rust inlines: iterators,
//! closures, generic functions, a comparison, a destructor, `?` and formatting.
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

#[inline(always)]
fn here(x: u64) -> u64 {
    let result: u64;
    // SAFETY: getppid has no arguments and no effect.
    unsafe {
        std::arch::asm!("syscall", "nop", inout("rax") 110u64 => result, out("rcx") _, out("r11") _);
    }
    result ^ x
}

trait Shape {
    fn area(&self) -> u64;
    #[inline]
    fn twice(&self) -> u64 {
        self.area() * 2
    }
}

struct Square(u64);
struct Boxed<T>(Vec<T>);

impl Shape for Square {
    #[inline(always)]
    fn area(&self) -> u64 {
        here(self.0) * self.0
    }
}

impl<T: Shape> Shape for Boxed<T> {
    #[inline(never)]
    fn area(&self) -> u64 {
        self.0.iter().map(Shape::twice).sum()
    }
}

struct Guard(u64);

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        std::hint::black_box(here(self.0));
    }
}

#[inline(never)]
fn guarded(x: u64) -> Result<u64, fmt::Error> {
    let guard = Guard(x);
    let mut text = String::new();
    write!(text, "{}", Shown(x))?;
    Ok(guard.0 + text.len() as u64)
}

struct Shown(u64);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", here(self.0) & 1)
    }
}

#[inline(never)]
fn sorted(mut numbers: Vec<u64>) -> u64 {
    let mut calls = 0;
    numbers.sort_by(|a, b| {
        calls += 1;
        if calls == 9 {
            std::hint::black_box(here(*a));
        }
        a.cmp(b)
    });
    numbers[0]
}

#[inline(never)]
fn mapped(n: u64) -> usize {
    let map: BTreeMap<u64, u64> = (0..n).map(|k| (k, k * 2)).collect();
    map.range(3..).filter(|(k, _)| **k == 5).map(|(_, v)| here(*v)).filter(|v| *v > 1).count()
}

fn main() {
    let n = std::env::args().count() as u64;
    std::hint::black_box(Boxed(vec![Square(n), Square(n + 1)]).area());
    std::hint::black_box(guarded(n).is_ok());
    std::hint::black_box(sorted((0..30).map(|i| i * 7 % 30 + n).collect()));
    std::hint::black_box(mapped(n + 20));
    std::thread::spawn(move || std::hint::black_box((0..n).map(here).max())).join().unwrap();
}
