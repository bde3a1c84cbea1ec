//! Calls getppid below closures, iterators, trait objects, sort's comparison, a
//! thread, and in a destructor while a panic passes through.
use std::collections::BTreeMap;

unsafe extern "C" {
    fn syscall(number: i64, ...) -> i64;
}

#[inline(never)]
fn here() {
    // SAFETY: getppid has no arguments and no effect.
    unsafe { syscall(110) };
    std::hint::black_box(());
}

trait Shape {
    fn area(&self) -> u64;
}
struct Square(u64);
impl Shape for Square {
    #[inline(never)]
    fn area(&self) -> u64 {
        here();
        self.0 * self.0
    }
}
struct Guard;
impl Drop for Guard {
    #[inline(never)]
    fn drop(&mut self) {
        here();
        std::hint::black_box(());
    }
}
#[inline(never)]
fn fails(n: u32) -> u32 {
    let _guard = Guard;
    if n == 0 { panic!("on purpose") }
    fails(n - 1) + 1
}

fn main() {
    std::panic::set_hook(Box::new(|_| here()));
    let shapes: Vec<Box<dyn Shape>> = vec![Box::new(Square(3))];
    std::hint::black_box(shapes.iter().map(|s| s.area()).sum::<u64>());
    let mut calls = 0;
    let mut numbers: Vec<u32> = (0..100).map(|n| n * 37 % 100).collect();
    numbers.sort_by(|a, b| {
        calls += 1;
        if calls == 50 {
            here();
        }
        a.cmp(b)
    });
    let map: BTreeMap<u32, u32> = numbers.iter().map(|n| (*n, n + 1)).collect();
    std::hint::black_box(map.range(3..4).for_each(|_| here()));
    std::thread::spawn(|| here()).join().unwrap();
    std::hint::black_box(std::panic::catch_unwind(|| fails(3)).is_err());
}
