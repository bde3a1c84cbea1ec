//! Programs that are traced, from start to end: this test binary is started again as the program;
//! its rings become CTF, which babeltrace2 prints.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Program, Shared, config, is_role};
use kymo_testkit::{Need, require};
use kymo_tracepoint::{Level, Symbol, emit, mark, tracepoint, tracepoint_class, tracepoint_enum};
use kymo_ust::{ChannelConfig, SlotAnswer};

tracepoint_enum! {
    /// Means of payment.
    pub enum Payment: i16 { Cash = -1, Card = 2 }
}

tracepoint! {
    /// Every type there is.
    pub test: every(number: u64, text: &str, payment: Payment) {
        fields {
            u8_: u8 = number as u8,
            u16_: u16 = number as u16,
            u32_: u32 = number as u32,
            u64_: u64 = number,
            i8_: i8 = -(number as i8),
            i16_: i16 = -(number as i16),
            i32_: i32 = -(number as i32),
            i64_: i64 = -(number as i64),
            f32_: f32 = number as f32 + 0.5,
            f64_: f64 = number as f64 - 0.25,
            yes: bool = number % 2 == 1,
            text: str = text,
            payment: Payment = payment,
            array: [i16; 3] = &[1, -2, number as i16],
            sequence: [u32] = &[9; 3][..(number % 4) as usize],
            at: Symbol = Symbol(0xabcd),
        }
        print "{u64_}"
        level Level::Warning
    }
}

tracepoint_class! {
    test: class(number: u32) {
        fields { number: u32 = number }
        print "{number}"
        when number != 3
    }
    events {
        /// One.
        class_one;
        class_two;
    }
}

tracepoint! {
    test: large(len: usize) {
        fields { bytes: [u8] = &vec![7; len], text: str = &"x".repeat(len) }
        print ""
    }
}

tracepoint! {
    test: counted(number: u64, other: u64) {
        fields { number: u64 = number, other: u64 = other }
        print "{number}"
    }
}

/// Events as printed by babeltrace2, without time and context: `name: { … }, { … }`.
fn payloads(lines: &[String]) -> Vec<String> {
    let name = |line: &str| line.split_once(") ").map(|(_, rest)| rest.to_owned()).unwrap();
    lines
        .iter()
        .map(|line| {
            let line = name(line);
            let event = line.split(": {").next().unwrap().rsplit(' ').next().unwrap();
            format!("{event} {{{}", line.rsplit_once("}, {").unwrap().1)
        })
        .collect()
}

#[test]
fn every_type_reaches_babeltrace() {
    if is_role() {
        for i in 1..=3 {
            let payment = if i == 1 { Payment::Cash } else { Payment::Card };
            emit!(every(i, if i == 2 { "cut\0here" } else { "text" }, payment));
            emit!(class_one(i as u32));
            emit!(class_two(i as u32 + 10));
            mark!(test: mark, "about {what}", what: str = "life", i: u64);
        }
        return;
    }
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let shared = Shared::new();
    shared.want("s", &config("test:*", ""));
    let status = shared.program("every_type_reaches_babeltrace").status().unwrap();
    assert!(status.success());
    let programs = shared.programs();
    assert_eq!(programs.len(), 1);
    let event = programs[0].event("every");
    assert_eq!((event.level, event.doc.as_str()), (4, " Every type there is.\n"));
    assert_eq!(programs[0].slot(0).answer, Some(SlotAnswer::Ready));
    let due = |i: u64, text, payment, sequence| {
        let f = format!(
            "test:every {{ u8_ = {i}, u16_ = {i}, u32_ = {i}, u64_ = {i}, i8_ = -{i}, i16_ = -{i}, \
             i32_ = -{i}, i64_ = -{i}, f32_ = {}.5, f64_ = {}.75, yes = {}, text = \"{text}\", \
             payment = {payment}, array = [ [0] = 1, [1] = -2, [2] = {i} ], \
             _sequence_length = {i}, sequence = [{sequence}], at = 0xABCD }}",
            i,
            i - 1,
            i % 2
        );
        f
    };
    let cash = "( \"Cash\" : container = -1 )";
    let card = "( \"Card\" : container = 2 )";
    let lines = payloads(&programs[0].babeltrace(0, 1));
    let due = [
        due(1, "text", cash, " [0] = 9 "),
        "test:class_one { number = 1 }".into(),
        "test:class_two { number = 11 }".into(),
        "test:mark { what = \"life\", i = 1 }".into(),
        due(2, "cut", card, " [0] = 9, [1] = 9 "),
        "test:class_one { number = 2 }".into(),
        "test:class_two { number = 12 }".into(),
        "test:mark { what = \"life\", i = 2 }".into(),
        due(3, "text", card, " [0] = 9, [1] = 9, [2] = 9 "),
        // class_one(3): its condition is false.
        "test:class_two { number = 13 }".into(),
        "test:mark { what = \"life\", i = 3 }".into(),
    ];
    assert_eq!(lines, due);
}

/// Emits `counted` until its standard input ends.
fn count_until_told() {
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = std::io::stdin().read(&mut [0]);
            done.store(true, Ordering::Relaxed);
        });
        let mut number = 0;
        while !done.load(Ordering::Relaxed) {
            emit!(counted(number, !number));
            number += 1;
            if number % 16 == 0 {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    });
}

/// Waits for something that happens soon.
fn soon<T>(what: &str, mut there: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(t) = there() {
            return t;
        }
        assert!(Instant::now() < end, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The numbers that babeltrace2 shows of `counted` events, whose halves must fit.
fn numbers(lines: &[String]) -> Vec<u64> {
    let value = |line: &str, name: &str| -> u64 {
        let rest = line.split_once(name).unwrap().1;
        rest.split([',', ' ']).next().unwrap().parse().unwrap()
    };
    lines
        .iter()
        .map(|line| {
            let (number, other) = (value(line, " number = "), value(line, " other = "));
            assert_eq!(number, !other, "{line}");
            number
        })
        .collect()
}

/// Switches `counted` on in a slot, as the tool does.
fn switch_on(
    shared: &Shared,
    program: &Program,
    slot: usize,
    generation: u8,
    config: &ChannelConfig,
) {
    let name = format!("s{slot}-{generation}");
    shared.want(&name, config);
    let file = program.file();
    let at = kymo_ust::slot_at(slot) as u64;
    let path = format!("wanted/{name}\0");
    file.write_all_at(path.as_bytes(), at + kymo_ust::Slot::PATH_AT as u64).unwrap();
    file.write_all_at(&[generation, kymo_ust::SlotState::Active as u8], at).unwrap();
    program.enable("counted", slot, true);
}

#[test]
fn a_running_program_serves_several_sessions() {
    if is_role() {
        return count_until_told();
    }
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let shared = Shared::new();
    let mut command = shared.program("a_running_program_serves_several_sessions");
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let program = soon("the program's directory", || shared.programs().pop());
    let counts = |slot, generation| program.ring(slot, generation).counts();

    switch_on(&shared, &program, 0, 1, &config("test:*", ""));
    soon("the first session's ring", || (program.slot(0).answered == 1).then_some(()));
    let odd = ChannelConfig { overwrite: true, ..config("test:counted", "number & 1") };
    switch_on(&shared, &program, 1, 1, &odd);
    soon("the second session's ring", || (program.slot(1).answered == 1).then_some(()));
    soon("events in both", || (counts(0, 1).0 > 500 && counts(1, 1).0 > 500).then_some(()));
    // The first ends, the second continues.
    program.enable("counted", 0, false);
    // What was being written then is written when the second has more.
    let before = counts(1, 1).0;
    soon("some in the second", || (counts(1, 1).0 > before + 2).then_some(()));
    let ended = counts(0, 1);
    let before = counts(1, 1).0;
    soon("more in the second", || (counts(1, 1).0 > before + 100).then_some(()));
    assert_eq!(counts(0, 1), ended);
    // The slot is used again, by a channel configuration that is no good, then by one that is.
    switch_on(&shared, &program, 0, 2, &ChannelConfig { sub_buffer: 5000, ..config("*", "") });
    soon("a refusal", || (program.slot(0).answered == 2).then_some(()));
    let slot = program.slot(0);
    assert_eq!((slot.answer, slot.errno), (Some(SlotAnswer::Failed), 0));
    soon("lost events", || (program.slot(0).lost > 10).then_some(()));
    switch_on(&shared, &program, 0, 3, &config("*", "nonsense == 1"));
    soon("an unfit filter", || (program.slot(0).unfit > 10).then_some(()));
    switch_on(&shared, &program, 0, 4, &config("*", ""));
    soon("the third ring", || (program.slot(0).answered == 4).then_some(()));
    soon("events", || (counts(0, 4).0 > 100).then_some(()));
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());

    for (slot, generation, step) in [(0, 1, 1), (1, 1, 2), (0, 4, 1)] {
        let numbers = numbers(&program.babeltrace(slot, generation));
        assert_eq!(numbers.len() as u64, counts(slot, generation).0);
        assert!(numbers.windows(2).all(|n| n[0] + step == n[1]), "{slot} {generation}");
        assert!(step == 1 || numbers.iter().all(|n| n % 2 == 1));
    }
    assert!(program.slot(1).rejected > 100);
    assert_eq!(counts(0, 3).0, 0);
}

#[test]
fn a_forked_child_is_a_program_of_its_own() {
    if is_role() {
        (0..100).for_each(|i| emit!(counted(i, !i)));
        // SAFETY: the child emits and ends.
        let child = unsafe { libc::fork() };
        (100..150).for_each(|i| emit!(counted(i, !i)));
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(0) };
        }
        // SAFETY: our own child.
        unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
        return;
    }
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let shared = Shared::new();
    shared.want("s", &config("test:counted", ""));
    let mut command = shared.program("a_forked_child_is_a_program_of_its_own");
    assert!(command.status().unwrap().success());
    let mut seen: Vec<_> = shared.programs().iter().map(|p| numbers(&p.babeltrace(0, 1))).collect();
    seen.sort_by_key(Vec::len);
    assert_eq!(seen, [(100..150).collect::<Vec<_>>(), (0..150).collect()]);
}

#[test]
fn large_events_go_into_the_ring_in_place() {
    if is_role() {
        [1, 400, 500, 30_000, 40_000].into_iter().for_each(|len| emit!(large(len)));
        return;
    }
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let shared = Shared::new();
    shared.want("s", &config("test:large", ""));
    let mut command = shared.program("large_events_go_into_the_ring_in_place");
    assert!(command.status().unwrap().success());
    let program = &shared.programs()[0];
    let (lines, warning) = program.babeltrace_with_warning(0, 1);
    assert!(warning.contains("discarded"), "{warning}");
    let text = |line: &str| line.split_once("text = \"").unwrap().1.matches('x').count();
    let lens: Vec<_> = lines.iter().map(|line| text(line)).collect();
    // The last does not fit into a packet of 64 KiB.
    assert_eq!(lens, [1, 400, 500, 30_000]);
    assert_eq!(program.ring(0, 1).counts(), (4, 1));
}

/// Counters in which a program of the next test reports its progress.
fn progress(path: &std::path::Path) -> &'static [AtomicU64; 4] {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a mapping of a file of that size, never unmapped; atomics have no invalid values.
    unsafe {
        let fd = file.as_raw_fd();
        let at = libc::mmap(std::ptr::null_mut(), 32, protection, libc::MAP_SHARED, fd, 0);
        assert_ne!(at, libc::MAP_FAILED);
        &*at.cast()
    }
}

/// The numbers of the `counted` events in a ring, whose packets are whole from the first event
/// to the last byte.
fn committed(ring: &common::RingFile) -> Vec<u64> {
    let size = ring.header.config().sub_buffer as usize;
    let mut numbers = Vec::new();
    for area in 0..ring.header.areas() {
        for packet in ring.packets(area).chunks(size) {
            let context = kymo_ring::Context::parse(packet).unwrap();
            let (mut at, end) = (kymo_ring::CONTEXT_END, context.content_bits as usize / 8);
            while at < end {
                // The header (in full when the time is stored in full) and the thread.
                let payload = at + if packet[at] & 31 == 30 { 13 } else { 4 } + 4;
                let word = |at: usize| u64::from_le_bytes(packet[at..at + 8].try_into().unwrap());
                assert_eq!(word(payload), !word(payload + 8), "at {at} of {context:?}");
                numbers.push(word(payload));
                at = payload + 16;
            }
            assert_eq!(at, end, "{context:?}");
        }
    }
    numbers
}

#[test]
fn a_killed_program_leaves_everything_it_had_committed() {
    if is_role() {
        let progress = progress(std::env::var_os("KYMO_TEST_PROGRESS").unwrap().as_ref());
        // Threads that wait for a CPU must not be overwritten by those that run.
        let slowest = || progress.iter().map(|done| done.load(Ordering::Relaxed)).min().unwrap();
        std::thread::scope(|scope| {
            for (thread, done) in (0u64..).zip(progress) {
                scope.spawn(move || {
                    for i in 1.. {
                        let number = thread << 48 | i;
                        emit!(counted(number, !number));
                        done.store(i, Ordering::Release);
                        while i % 64 == 0 && i > slowest() + 4096 {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
        return;
    }
    if !require(&[Need::Babeltrace]) {
        return;
    }
    let mut events = 0;
    for round in 0..200 {
        let shared = Shared::new();
        let small =
            ChannelConfig { overwrite: true, sub_buffer: 1 << 20, ..config("test:counted", "") };
        shared.want("s", &small);
        let file = shared.user().join("wanted/.progress");
        std::fs::write(&file, [0; 32]).unwrap();
        let mut command = shared.program("a_killed_program_leaves_everything_it_had_committed");
        let mut child = command.env("KYMO_TEST_PROGRESS", &file).spawn().unwrap();
        let done = progress(&file);
        let begun = || done.iter().all(|d| d.load(Ordering::Relaxed) > 0);
        soon("an event of each thread", || begun().then_some(()));
        std::thread::sleep(Duration::from_micros(997 * (round % 13)));
        child.kill().unwrap();
        child.wait().unwrap();
        let program = &shared.programs()[0];
        let mut numbers = committed(&program.ring(0, 1));
        numbers.sort_unstable();
        if round % 10 == 0 {
            // Takes its time, and says the same, without a warning.
            let mut shown = self::numbers(&program.babeltrace(0, 1));
            shown.sort_unstable();
            assert!(shown == numbers);
        }
        events += numbers.len();
        for (thread, done) in (0u64..).zip(done) {
            let mut of_thread: Vec<_> =
                numbers.iter().filter(|n| *n >> 48 == thread).map(|n| n & 0xffff_ffff).collect();
            of_thread.sort_unstable();
            let (last, done) = (of_thread.last().copied().unwrap(), done.load(Ordering::Acquire));
            // One may have been committed and not yet been said.
            assert!(last == done || last == done + 1, "thread {thread}: {last} of {done}");
            // None is twice there, and none missing of the newest.
            let newest = &of_thread[of_thread.len().saturating_sub(1000)..];
            assert!(of_thread.windows(2).all(|n| n[0] < n[1]));
            assert_eq!(last - newest[0], newest.len() as u64 - 1, "thread {thread}");
        }
    }
    assert!(events > 0);
}

#[test]
fn callbacks_come_and_go_while_threads_call() {
    let calls = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&calls);
    let first = counted::register(move |number, other| {
        assert_eq!(number, !other);
        sum.fetch_add(number, Ordering::Relaxed);
    });
    emit!(counted(5, !5));
    let more = Arc::clone(&calls);
    let second = counted::register(move |_, _| {
        more.fetch_add(100, Ordering::Relaxed);
    });
    emit!(counted(5, !5));
    drop(first);
    emit!(counted(5, !5));
    assert_eq!(calls.load(Ordering::Relaxed), 5 + 105 + 100);
    drop(second);
    assert!(!counted::enabled());
    let evaluated = AtomicBool::new(false);
    emit!(counted(u64::from(evaluated.swap(true, Ordering::Relaxed)), 0));
    assert!(!evaluated.into_inner(), "evaluated without a listener");

    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    emit!(class_one(7));
                }
            });
        }
        for round in 0..300u64 {
            // What a callback holds is gone only when no thread calls it any more.
            let held = Arc::new(round);
            let registration = class_one::register(move |who| assert!(who == 7 && *held < 300));
            if round % 3 == 0 {
                std::thread::yield_now();
            }
            drop(registration);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A loop whose result is wrong if a probe at the marker changes anything: a leaf that keeps
/// its values in registers and in the red zone.
fn mixed(rounds: u64) -> u64 {
    let mut words = [1u64, 2, 3, 5, 8, 13, 21, 34];
    for i in 0..rounds {
        let at = (i % 8) as usize;
        words[at] = words[at].wrapping_mul(0x9e37_79b9).rotate_left(7) ^ i;
        emit!(counted(i, !i));
        words[(at + 3) % 8] ^= words[at] >> 3;
    }
    words.iter().fold(0, |sum, word| sum ^ word)
}

/// A tracer of its own in tracefs; gone at the end.
struct Uprobe {
    instance: PathBuf,
}

impl Uprobe {
    fn new(definition: &str) -> Self {
        let tracing = Path::new("/sys/kernel/tracing");
        let name = format!("kymo_test_sdt_{}", std::process::id());
        let append = |text: String| {
            let mut file =
                std::fs::File::options().append(true).open(tracing.join("uprobe_events")).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        };
        append(format!("p:{name}/counted {definition}\n"));
        let instance = tracing.join("instances").join(&name);
        std::fs::create_dir(&instance).unwrap();
        std::fs::write(instance.join(format!("events/{name}/enable")), "1").unwrap();
        Self { instance }
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.instance.join("trace")).unwrap();
        text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect()
    }
}

impl Drop for Uprobe {
    fn drop(&mut self) {
        let name = self.instance.file_name().unwrap().to_str().unwrap();
        let _ = std::fs::write(self.instance.join(format!("events/{name}/enable")), "0");
        let _ = std::fs::remove_dir(&self.instance);
        let events =
            std::fs::File::options().append(true).open("/sys/kernel/tracing/uprobe_events");
        let _ = events.and_then(|mut f| f.write_all(format!("-:{name}/counted\n").as_bytes()));
    }
}

#[test]
fn a_tracer_at_the_sdt_marker_changes_nothing_and_sees_all() {
    const ROUNDS: u64 = 5_000;
    if is_role() {
        println!("\nresult {:x}", mixed(ROUNDS));
        return;
    }
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("readelf")]) {
        return;
    }
    // A copy, so that the tracer does not see the programs of other tests.
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let run = || {
        let role = "a_tracer_at_the_sdt_marker_changes_nothing_and_sees_all";
        let mut command = Command::new(&program);
        command.args(["--exact", role, "--nocapture"]).env("KYMO_UST", "off");
        let output = command.env("KYMO_TEST_ROLE", role).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().find(|l| l.starts_with("result")).unwrap().to_owned()
    };
    let bare = run();
    let marker = common::Marker::find(&program, "test", "counted");
    assert_eq!(marker.arguments, "8@0(%rax) 8@8(%rax)");
    let place = marker.place(&program);
    let uprobe = Uprobe::new(&format!("{place} a=+0(%ax):u64 b=+8(%ax):u64"));
    assert_eq!(run(), bare);
    let lines = uprobe.lines();
    assert_eq!(lines.len() as u64, ROUNDS);
    for (i, line) in (0u64..).zip(&lines) {
        assert!(line.ends_with(&format!(" a={i} b={}", !i)), "{line}");
    }
}
