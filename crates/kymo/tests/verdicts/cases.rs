//! Programs with one known cause each: cases-rust NAME.
use std::sync::{Arc, Mutex, mpsc};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

#[inline(never)]
fn compute(rounds: u64) -> u64 {
    (0..rounds).fold(1, |a, b| std::hint::black_box(a ^ b.wrapping_mul(31)))
}

fn main() {
    let pause = Duration::from_millis(400);
    match std::env::args().nth(1).as_deref() {
        Some("compute") => drop(compute(200_000_000)),
        Some("sleep") => sleep(pause),
        Some("channel") => {
            let (sender, receiver) = mpsc::channel();
            spawn(move || (sleep(pause), sender.send(1)));
            let _ = receiver.recv();
        }
        Some("idle-pool") => {
            let (_keep, receiver) = mpsc::channel::<u8>();
            let work = Arc::new(Mutex::new(receiver));
            for _ in 0..4 {
                let work = work.clone();
                spawn(move || work.lock().map(|w| w.recv().is_ok()).is_ok());
            }
            compute(200_000_000);
        }
        Some("mutex") => {
            let lock = Arc::new(Mutex::new(0));
            let other = lock.clone();
            spawn(move || (other.lock().map(|_kept| sleep(pause)).is_ok(), ()));
            sleep(Duration::from_millis(20));
            drop(lock.lock());
        }
        Some("convoy") => {
            let lock = Arc::new(Mutex::new(0));
            let hold = |lock: Arc<Mutex<u64>>| {
                for _ in 0..200 {
                    drop(lock.lock().map(|mut sum| *sum ^= compute(2_000_000)));
                }
            };
            let threads = [0; 3].map(|_| lock.clone()).map(|lock| spawn(move || hold(lock)));
            threads.into_iter().for_each(|thread| drop(thread.join()));
        }
        Some("producer") => {
            let (sender, receiver) = mpsc::channel();
            spawn(move || (0..10).try_for_each(|_| sender.send(compute(100_000_000))));
            println!("{}", receiver.iter().sum::<u64>());
        }
        Some("ticks") => (0..200).for_each(|_| sleep(Duration::from_millis(2))),
        Some("join") => drop(spawn(|| compute(200_000_000)).join()),
        _ => println!("{:?}", Instant::now()),
    }
}
