//! Traits, generics, closures, strings, slices and enums, for probes by path and by field.
use std::hint::black_box;
mod shapes {
    pub trait Area {
        fn area(&self, scale: u32) -> u32;
    }
    pub struct Point {
        pub x: u32,
        pub y: u32,
        pub name: String,
    }
    impl Area for Point {
        #[inline(never)]
        fn area(&self, scale: u32) -> u32 {
            let r = self.x * self.y * scale;
            std::hint::black_box(r)
        }
    }
    impl Point {
        #[inline(never)]
        pub fn label(&self, prefix: &str) -> usize {
            std::hint::black_box(prefix.len() + self.name.len())
        }
    }
    #[inline(never)]
    pub fn generic<T: Into<u64>>(v: T) -> u64 {
        let w: u64 = v.into();
        std::hint::black_box(w + 1)
    }
}
use shapes::Area;
#[derive(Clone, Copy)]
pub enum Color {
    Red,
    Green,
    Blue,
}
#[inline(never)]
fn paint(c: Color, depth: Option<u32>, pair: (u8, u32), data: &[u32]) -> u32 {
    let d = depth.unwrap_or(9);
    black_box(c as u32 + d + pair.1 + data[0] + data.len() as u32)
}
#[inline(never)]
fn who(name: &str, owned: String, maybe: Option<&u32>) -> usize {
    black_box(name.len() + owned.len() + maybe.copied().unwrap_or(0) as usize)
}
fn main() {
    let p = shapes::Point { x: 3, y: 4, name: "origin".to_string() };
    let mut total = p.area(2) as u64;
    total += p.label("point") as u64;
    total += shapes::generic(5u32) + shapes::generic(6u8);
    total += paint(Color::Blue, Some(11), (1, 2), &[7, 8, 9]) as u64;
    total += paint(Color::Red, None, (1, 2), &[7, 8, 9]) as u64;
    total += who("alice\0", "bob\0".to_string(), Some(&3)) as u64;
    let add = |n: u64| black_box(n + total);
    println!("{}", add(black_box(1)));
}
