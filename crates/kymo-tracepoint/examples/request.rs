//! A request that waits for another thread: what the program says of it and what the
//! kernel does with its thread, on one timeline.
//!
//! ```sh
//! cargo build --release -p kymo-tracepoint --example request
//! kymo trace -e sched:sched_switch,sched:sched_wakeup -u 'request:*' -o trace -- \
//!     target/…/release/examples/request 3
//! kymo script trace
//! ```
#![allow(clippy::unwrap_used, reason = "an example")]

use std::sync::mpsc::{Receiver, Sender, channel};

use kymo_tracepoint::{emit, tracepoint};

tracepoint! {
    /// A request has come.
    pub request: begin(id: u64, path: &str) {
        fields { id: u64 = id, path: str = path }
        print "{id} {path}"
    }
}

tracepoint! {
    /// It asks the store, and waits for the answer.
    request: ask(id: u64) {
        fields { id: u64 = id }
        print "{id}"
    }
}

tracepoint! {
    /// The store looks something up.
    request: lookup(id: u64) {
        fields { id: u64 = id }
        print "{id}"
    }
}

tracepoint! {
    /// The request is answered.
    request: end(id: u64, bytes: usize) {
        fields { id: u64 = id, bytes: u64 = bytes as u64 }
        print "{id}, {bytes} bytes"
    }
}

/// Answers what is asked for.
fn store(questions: &Receiver<u64>, answers: &Sender<String>) {
    for id in questions {
        emit!(lookup(id));
        let answer = (0..20_000u64).fold(id, |a, n| a.wrapping_mul(31) ^ n);
        answers.send(format!("{answer:x}")).unwrap();
    }
}

fn main() {
    let count = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(3);
    let (question, questions) = channel();
    let (answer, answers) = channel();
    let thread = std::thread::Builder::new().name("store".into());
    let thread = thread.spawn(move || store(&questions, &answer)).unwrap();
    for id in 0..count {
        emit!(begin(id, "/index.html"));
        emit!(ask(id));
        question.send(id).unwrap();
        let text = answers.recv().unwrap();
        emit!(end(id, text.len()));
    }
    drop(question);
    thread.join().unwrap();
}
