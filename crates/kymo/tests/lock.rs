//! `kymo lock contention` beside `perf lock contention` of the same recording, number by number,
//! and beside a model of both that is made of the events as `kymo script` shows them.
//!
//! perf differs in these points, which the tests take into account:
//! - it leaves out the first three (6.1) or four functions of a stack, whatever they are: kymo
//!   does so with `--stack-skip`;
//! - it has the names of few of the tasks of a recording (`:4711`);
//! - rows of equal time are in no certain order.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::{BTreeMap, HashMap};

use kymo_testkit::{Need, Outcome, TracingState, ledger_of, peer, perf, require, run};
use serde_json::Value;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf];
/// Processes that wake each other, and wait for the locks of their CPUs.
const LOAD: [&str; 8] = ["perf", "bench", "sched", "messaging", "-g", "4", "-l", "200"];

fn kymo(args: &[&str]) -> Outcome {
    run(KYMO, args)
}

/// Rows of CSV, sorted; the comments are left out.
fn rows(text: &str) -> Vec<Vec<String>> {
    let lines = text.lines().filter(|l| !l.starts_with('#') && !l.trim().is_empty());
    let cells = |l: &str| l.split(',').map(|c| c.trim().to_owned()).collect();
    let mut rows: Vec<Vec<String>> = lines.map(cells).collect();
    rows.sort();
    rows
}

/// Lines of a table, sorted; title and notes are left out.
fn lines(text: &str) -> Vec<String> {
    let from = text.lines().position(|l| l.starts_with(" contended ")).unwrap();
    let is_note = |l: &&str| ["Trust:", "Note:", " Where to look next"].contains(l);
    let table = text.lines().skip(from).take_while(|l| !is_note(l)).filter(|l| !l.is_empty());
    let mut lines: Vec<String> = table.map(|l| l.trim_end().to_owned()).collect();
    lines.sort();
    lines
}

/// Rows are the same; else those that are not are shown.
#[track_caller]
fn same<T: PartialEq + std::fmt::Debug>(ours: &[T], theirs: &[T]) {
    let without = |a: &[T], b: &[T]| {
        format!("{:#?}", a.iter().filter(|r| !b.contains(r)).collect::<Vec<_>>())
    };
    assert!(ours == theirs, "ours: {}\nperf's: {}", without(ours, theirs), without(theirs, ours));
}

/// Waits by lock from the events: number, nanoseconds, the longest.
fn model(path: &str) -> BTreeMap<String, (u64, u64, u64)> {
    let text = kymo(&["script", "-i", path, "--json"]).success().stdout;
    let mut begun: HashMap<(i64, u64, String), f64> = HashMap::new();
    let mut waits: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    for line in text.lines() {
        let e: Value = serde_json::from_str(line).unwrap();
        let name = e["event"].as_str().unwrap_or("").rsplit(':').next().unwrap().to_owned();
        if !name.starts_with("contention_") {
            continue;
        }
        let lock = e["fields"]["lock_addr"].to_string();
        // -1: the thread is being released.
        let (tid, time) = (e["tid"].as_i64().unwrap(), e["time"].as_f64().unwrap());
        let cpu = if tid <= 0 { e["cpu"].as_u64().unwrap() } else { 0 };
        let key = (tid, cpu, lock.clone());
        if name == "contention_begin" {
            begun.entry(key).or_insert(time);
        } else if let Some(from) = begun.remove(&key) {
            let nanos = ((time - from) * 1e9).round() as u64;
            let wait = waits.entry(lock).or_default();
            *wait = (wait.0 + 1, wait.1 + nanos, wait.2.max(nanos));
        }
    }
    waits
}

/// Rows by lock are those of the model; times in `script` are of microseconds' fractions that a
/// number of 64 bits holds to some 4 ns.
#[track_caller]
fn locks_are_the_models(path: &str) {
    let args = ["lock", "contention", "-l", "--json", "-i", path];
    let page: Value = serde_json::from_str(&kymo(&args).success().stdout).unwrap();
    let number = |v: &Value| v.as_u64().unwrap_or(0);
    let mut ours: Vec<(u64, u64, u64)> = page["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| (number(&l["acquired"]), number(&l["total_ns"]), number(&l["max_ns"])))
        .filter(|l| l.0 > 0)
        .collect();
    let mut theirs: Vec<(u64, u64, u64)> = model(path).into_values().collect();
    ours.sort_unstable();
    theirs.sort_unstable();
    let all = |rows: &[(u64, u64, u64)]| rows.iter().map(|r| r.0).sum::<u64>();
    assert!(ours.len() > 3 && all(&ours) > 50, "{ours:?}");
    assert_eq!((ours.len(), all(&ours)), (theirs.len(), all(&theirs)));
    let total = |rows: &[(u64, u64, u64)]| rows.iter().map(|r| r.1).sum::<u64>();
    assert!(total(&ours).abs_diff(total(&theirs)) <= 10 * all(&ours), "{ours:?} {theirs:?}");
}

#[test]
fn numbers_are_those_of_perf() {
    if !require(&NEEDS) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("a.data").to_str().unwrap().to_owned();
    // Its pass for build-ids (without -B) crashes at times when processes end meanwhile.
    let record = ["lock", "record", "-B", "-o", &data, "--"];
    let contention = |more: &[&str]| -> String {
        kymo(&[&["lock", "contention", "-i", &data], more].concat()).success().stdout
    };
    // The text of perf 6.1.
    let said = |more: &[&str]| {
        let outcome = perf([&["lock", "contention", "-i", &data], more].concat()).success();
        // It writes the table to standard error.
        outcome.stdout + &outcome.stderr
    };
    // On a busy machine perf sometimes records events out of their order, and then takes an end
    // for that of another wait: waits of 0 ns. Such a recording judges nothing.
    let is_ordered = (0..5).any(|_| {
        let _ = perf([&record[..], &LOAD].concat()).success();
        !said(&[]).contains("  0 ns         0 ns")
    });
    assert!(is_ordered, "{}", said(&[]));
    same(&lines(&contention(&["--stack-skip", "3"])), &lines(&said(&[])));
    let columns = ["-F", "contended,wait_min,avg_wait", "-k", "contended"];
    let ours = contention(&[&columns[..], &["--stack-skip", "3"]].concat());
    same(&lines(&ours), &lines(&said(&columns)));
    assert!(lines(&ours).len() > 10, "{ours}");
    let tasks = |text: &str| -> Vec<String> {
        let numbers = |l: String| l.rsplit_once("   ").map(|(n, _)| n.to_owned()).unwrap();
        lines(text).into_iter().map(numbers).collect()
    };
    same(&tasks(&contention(&["-t"])), &tasks(&said(&["-t"])));
    locks_are_the_models(&data);
    // The numbers of the newest perf, in nanoseconds, by caller, lock and task.
    let newest = peer("perf");
    if newest.is_newest() {
        let said = |more: &[&str]| {
            let args = [&["lock", "contention", "-i", &data, "-x,"], more].concat();
            let outcome = newest.run(args).success();
            rows(&(outcome.stdout + &outcome.stderr))
        };
        same(&rows(&contention(&["-x,", "--stack-skip", "4"])), &said(&[]));
        // perf gives the name of the last symbol that kallsyms has of the kernel's data to all that
        // lies behind it, megabytes away; kymo gives none.
        let without_names = |mut rows: Vec<Vec<String>>| {
            rows.iter_mut().filter(|r| r[5] == "__start_init_stack").for_each(|r| r[5].clear());
            // Of a lock that was waited for to read and to write perf does not say which.
            rows.iter_mut().for_each(|r| r[6] = r[6].split(':').next().unwrap().to_owned());
            rows
        };
        let ours = rows(&contention(&["-x,", "-l"]));
        same(&without_names(ours), &without_names(said(&["-l"])));
        let numbers = |rows: Vec<Vec<String>>| -> Vec<Vec<String>> {
            rows.into_iter().map(|r| r[..5].to_vec()).collect()
        };
        same(&numbers(rows(&contention(&["-x,", "-t"]))), &numbers(said(&["-t"])));
    }
    // Without a number of functions left out, the caller is the first that is no lock.
    let page: Value = serde_json::from_str(&contention(&["--json"])).unwrap();
    for lock in page["locks"].as_array().unwrap() {
        let caller = lock["caller"].as_str().unwrap();
        let is_lock = ["_raw_spin_lock", "__pv_queued", "schedule+", "__schedule+", "mutex_lock+"];
        assert!(!is_lock.iter().any(|l| caller.starts_with(l)), "{lock}");
    }
}

#[test]
fn own_recordings_of_both_formats_and_what_is_chosen() {
    if !require(&NEEDS) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    for path in [path("a.data"), path("b.dat")] {
        let record = ["lock", "record", "-q", "-o", &path, "--"];
        let _ = kymo(&[&record[..], &LOAD].concat()).success();
        locks_are_the_models(&path);
        let page = |more: &[&str]| -> Value {
            let args = [&["lock", "contention", "--json", "-i", &path], more].concat();
            serde_json::from_str(&kymo(&args).success().stdout).unwrap()
        };
        let sum = |page: &Value| -> (u64, u64) {
            let locks = page["locks"].as_array().unwrap();
            let of = |n: &str| locks.iter().map(|l| l[n].as_u64().unwrap()).sum();
            (of("contended"), of("total_ns"))
        };
        let all = page(&[]);
        assert_eq!(sum(&all), sum(&page(&["-l"])));
        assert_eq!(sum(&all), sum(&page(&["-t"])));
        // Each wait has both events, unless the ring of a busy machine lost some.
        let said = kymo(&["lock", "contention", "--json", "-i", &path]).success().stderr;
        let notes = ledger_of(&said);
        if !notes.as_array().unwrap().iter().any(|note| note["kind"] == "lost") {
            let both = i64::try_from(sum(&all).0 * 2).unwrap();
            let events = all["events"].as_i64().unwrap() + unmatched(&all);
            // A mutex that spins and then sleeps reports its start twice.
            let locks = all["locks"].as_array().unwrap();
            let has_mutex = locks.iter().any(|l| l["type"].as_str().unwrap().contains("mutex"));
            assert!(both == events || has_mutex && both < events, "{both} {events}: {said}");
        }
        let named = |page: &Value, name: &str| {
            let locks = page["locks"].as_array().unwrap();
            locks.iter().any(|l| l["caller"].as_str().unwrap().starts_with(name))
        };
        assert!(named(&all, "try_to_wake_up+"), "{all:#}");
        // Parts: by type, function, lock and task.
        assert_eq!(
            sum(&page(&["-Y", "spinlock,mutex,rwsem,rwlock,pcpu-sem,semaphore,rt-mutex"])),
            sum(&all)
        );
        let wakers = page(&["-S", "try_to_wake_up"]);
        assert!(sum(&wakers).0 > 0 && sum(&wakers).0 < sum(&all).0);
        let first = page(&["-l", "-E", "1"]);
        let first = &first["locks"][0];
        let one = page(&["-L", first["address"].as_str().unwrap()]);
        assert_eq!(sum(&one).0, first["contended"].as_u64().unwrap());
        let load = page(&["--comm", "sched-messaging"]);
        assert!(sum(&load).0 > 0 && sum(&load).0 <= sum(&all).0);
    }
    // Reports say that locks without a wait are not in them.
    let report = kymo(&["lock", "report", "-i", &path("a.data"), "-E", "2"]).success().stdout;
    assert!(report.contains("acquired") && report.contains("lock:lock_acquire"), "{report}");
    let threads = kymo(&["lock", "info", "-t", "-i", &path("a.data")]).success().stdout;
    assert!(
        threads.contains("Thread ID: comm") && threads.contains(": sched-messaging"),
        "{threads}"
    );
    let locks = kymo(&["lock", "info", "-m", "-i", &path("a.data")]).success().stdout;
    assert!(locks.contains("Address of instance") && locks.contains(" (spinlock)"), "{locks}");
    assert_eq!(state.left_behind(), None);
}

/// Begins without ends, less ends without begins.
fn unmatched(page: &Value) -> i64 {
    page["no_end"].as_i64().unwrap() - page["no_begin"].as_i64().unwrap()
}

#[test]
fn what_is_missing_is_said() {
    let fixture =
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/perf-data/x86_64/sched.data");
    let none = kymo(&["lock", "contention", "-i", fixture, "--strict"]).expect_status(3).stdout;
    assert!(none.contains("no events lock:contention_begin") && none.contains("kymo lock record"));
    let bad = kymo(&["lock", "contention", "-k", "color", "-i", fixture]).failure();
    assert!(bad.stderr.contains("unknown key \"color\""), "{}", bad.stderr);
}

/// Four programs that write to one file, of which one at a time may.
const WRITERS: &str = "for n in 1 2 3 4; do dd if=/dev/zero of=$0 bs=1M count=60 conv=notrunc \
                       status=none & done; wait";

/// Wakers of waits for semaphores, by name: the last task that woke the waiter.
fn wakers(path: &str) -> BTreeMap<Option<String>, u64> {
    let text = kymo(&["script", "-i", path, "--json"]).success().stdout;
    let mut open: HashMap<(i64, String), Option<String>> = HashMap::new();
    let mut wakers: BTreeMap<Option<String>, u64> = BTreeMap::new();
    for line in text.lines() {
        let e: Value = serde_json::from_str(line).unwrap();
        let (name, tid, fields) = (&e["event"], e["tid"].as_i64().unwrap(), &e["fields"]);
        let key = || (tid, fields["lock_addr"].to_string());
        if name == "sched:sched_waking" {
            let woken = fields["pid"].as_i64();
            let comm = e["comm"].as_str().map(str::to_owned);
            let waits = open.iter_mut().filter(|((tid, _), _)| Some(*tid) == woken);
            waits.for_each(|(_, waker)| *waker = comm.clone());
        } else if name == "lock:contention_begin" && is_semaphore(&fields["flags"]) {
            open.entry(key()).or_insert(None);
        } else if name == "lock:contention_end"
            && let Some(waker) = open.remove(&key())
        {
            *wakers.entry(waker).or_default() += 1;
        }
    }
    wakers
}

/// Readers or writers of a semaphore, which do not spin: LCB_F_READ, LCB_F_WRITE.
fn is_semaphore(flags: &Value) -> bool {
    matches!(flags.as_u64(), Some(2 | 4))
}

#[test]
fn who_released_a_lock_is_who_woke_the_task() {
    if !require(&NEEDS) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (data, file) = (path("a.data"), path("file"));
    let record = ["lock", "record", "--wakers", "-q", "-o", &data, "--", "sh", "-c"];
    let _ = kymo(&[&record[..], &[WRITERS, &file]].concat()).success();
    let args = ["lock", "contention", "-i", &data, "-Y", "rwsem"];
    let page = kymo(&[&args[..], &["--json"]].concat()).success().stdout;
    let page: Value = serde_json::from_str(&page).unwrap();
    let mut counted: BTreeMap<Option<String>, u64> = BTreeMap::new();
    let mut by_writers = 0;
    for lock in page["locks"].as_array().unwrap() {
        let cells = lock["stacks"].as_array().unwrap();
        let sum = |name: &str| cells.iter().map(|c| c[name].as_u64().unwrap()).sum::<u64>();
        assert_eq!(lock["acquired"].as_u64().unwrap(), sum("count"), "{lock:#}");
        assert_eq!(lock["total_ns"].as_u64().unwrap(), sum("total_ns"), "{lock:#}");
        for cell in cells {
            let count = cell["count"].as_u64().unwrap();
            *counted.entry(cell["waker"]["comm"].as_str().map(str::to_owned)).or_default() += count;
            let has = |stack: &Value, part: &str| {
                let names = stack.as_array().unwrap();
                names.iter().any(|n| n.as_str().unwrap().contains(part))
            };
            if cell["waker"]["comm"] == "dd" && has(&cell["stack"], "down_write") {
                assert!(has(&cell["waker"]["stack"], "up_write"), "{cell:#}");
                by_writers += count;
            }
        }
    }
    assert!(by_writers > 5, "{page:#}");
    assert_eq!(counted, wakers(&data));
    let text = kymo(&args).success().stdout;
    assert!(text.contains("Waiters and wakers") && text.contains("woken by dd, in"));
    let without = kymo(&[&args[..], &["--pairs", "0"]].concat()).success().stdout;
    assert!(!without.contains("woken by"), "{without}");
    assert_eq!(state.left_behind(), None);
}

/// Waits for two futexes: one whose time is over each round, and one that a thread wakes. What
/// the rounds took is printed. System calls are made without the C library, so that a chain of
/// frame pointers has the function that made them.
const FUTEXES: &str = r#"
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
static int alone;
static struct { long count; int word; } queue;
#define shared queue.word
static long call(int *word, int op, int value, struct timespec *t) {
    register struct timespec *r10 __asm__("r10") = t;
    long ret;
    __asm__ volatile("syscall" : "=a"(ret) : "a"(SYS_futex), "D"(word), "S"(op), "d"(value), "r"(r10)
                     : "rcx", "r11", "memory");
    return ret;
}
__attribute__((noinline)) long time_out(long n) {
    struct timespec t = {0, 4000000};
    return call(&alone, FUTEX_WAIT_PRIVATE, 0, &t) + n;
}
__attribute__((noinline)) long wait_shared(long n) {
    return call(&shared, FUTEX_WAIT_PRIVATE, n, 0) + n;
}
__attribute__((noinline)) long wake_shared(long n) {
    __atomic_add_fetch(&shared, 1, __ATOMIC_SEQ_CST);
    return call(&shared, FUTEX_WAKE_PRIVATE, 1, 0) + n;
}
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
static void *waker(void *v) {
    for (int i = 0; i < 5; i++) { usleep(5000); wake_shared(i); }
    return v;
}
int main(void) {
    long all = 0;
    for (int i = 0; i < 8; i++) { long from = now(); time_out(i); all += now() - from; }
    printf("%p %ld\n", (void *)&alone, all);
    pthread_t t;
    pthread_create(&t, 0, waker, 0);
    all = 0;
    for (long i = 0; i < 5; i++) {
        long from = now();
        while (__atomic_load_n(&shared, __ATOMIC_SEQ_CST) == i) wait_shared(i);
        all += now() - from;
    }
    printf("%p %ld\n", (void *)&shared, all);
    pthread_join(t, 0);
    return 0;
}
"#;

#[test]
fn futexes_are_waited_for_as_the_program_measured() {
    if !require(&[&NEEDS[..], &[Need::Gcc]].concat()) {
        return;
    }
    let state = TracingState::take();
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (source, program) = (path("futexes.c"), path("futexes"));
    std::fs::write(&source, FUTEXES).unwrap();
    let flags = ["-O1", "-fno-omit-frame-pointer", "-pthread", "-o", &program, &source];
    assert!(std::process::Command::new("gcc").args(flags).status().unwrap().success());
    // All system calls by their numbers have those of futexes among them.
    let raw = ["-e", "raw_syscalls:sys_enter", "-e", "raw_syscalls:sys_exit"];
    let own = ["lock", "record", "--futex"];
    for (recording, record) in [
        (path("a.data"), &own[..]),
        (path("b.dat"), &own),
        (path("raw.data"), &[&["record", "-g"], &raw[..]].concat()),
        (path("raw.dat"), &[&["trace"], &raw[..]].concat()),
    ] {
        let record = [record, &["-q", "-o", &recording, "--", &program]].concat();
        let said = kymo(&record).success().stdout;
        let args = ["lock", "contention", "--futex", "--comm", "futexes", "-i", &recording];
        let page = kymo(&[&args[..], &["--json"]].concat()).success().stdout;
        let page: Value = serde_json::from_str(&page).unwrap();
        for (line, [count, timeouts]) in said.lines().zip([[8, 8], [5, 0]]) {
            let (address, measured) = line.split_once(' ').unwrap();
            let measured: u64 = measured.parse().unwrap();
            let futexes = page["futexes"].as_array().unwrap();
            let futex = futexes.iter().find(|f| f["address"] == *address).unwrap();
            let number = |name: &str| futex[name].as_u64().unwrap();
            // A wake-up that comes before the wait is none.
            assert!(number("count") <= count && number("count") + 1 >= count, "{futex:#}");
            assert_eq!((number("timeouts"), number("interrupted")), (timeouts, 0), "{futex:#}");
            // Around the system call are two readings of the clock, and at times another task.
            let total = number("total_ns");
            assert!(total <= measured && total * 10 >= measured * 7, "{total} of {measured}");
            if recording.ends_with(".dat") {
                assert!(futex["variable"].is_null(), "{futex:#}");
                continue;
            }
            let variable = if timeouts == 0 { "queue+0x8" } else { "alone" };
            assert_eq!(futex["variable"], variable, "{futex:#}");
            let cells = futex["stacks"].as_array().unwrap();
            let has = |stack: &Value, f: &str| {
                stack["stack"].as_array().is_some_and(|s| s.iter().any(|n| *n == *f))
            };
            let (waits, wakes) = match timeouts {
                0 => ("wait_shared", true),
                _ => ("time_out", false),
            };
            assert!(!cells.is_empty() && cells.iter().all(|c| has(c, waits)), "{futex:#}");
            assert!(cells.iter().all(|c| has(&c["waker"], "wake_shared") == wakes), "{futex:#}");
            // A call that wakes before anybody waited is nobody's.
            assert!(if wakes { number("wakes") >= 4 } else { number("wakes") == 0 }, "{futex:#}");
        }
        let text = kymo(&args).success().stdout;
        assert!(text.contains("waits for futexes took") && text.contains("timeouts"), "{text}");
        assert_eq!(text.contains("   queue+0x8\n"), recording.ends_with(".data"), "{text}");
        let beside = text.contains("woken by futexes, in");
        assert_eq!(beside, recording.ends_with(".data"), "{text}");
    }
    assert_eq!(state.left_behind(), None);
}

/// Three mutexes within static variables that a thread waits for while another one holds them.
const POOL: &str = r#"
#include <pthread.h>
#include <unistd.h>
struct side { long jobs; union { int kind; long wide; }; pthread_mutex_t lock; pthread_cond_t wake; };
static struct pool { int size; struct side sides[3]; pthread_mutex_t all; } pool;
struct { struct { pthread_mutex_t first; }; } named;
static pthread_mutex_t *locks[] = { &pool.sides[2].lock, &pool.all, &named.first };
static int ready;
static void *hold(void *lock) {
    pthread_mutex_lock(lock);
    __atomic_store_n(&ready, 1, __ATOMIC_SEQ_CST);
    usleep(30000);
    pthread_mutex_unlock(lock);
    return 0;
}
int main(void) {
    for (int i = 0; i < 3; i++) {
        pthread_t t;
        ready = 0;
        pthread_mutex_init(locks[i], 0);
        pthread_create(&t, 0, hold, locks[i]);
        while (!__atomic_load_n(&ready, __ATOMIC_SEQ_CST)) usleep(100);
        pthread_mutex_lock(locks[i]);
        pthread_mutex_unlock(locks[i]);
        pthread_join(t, 0);
    }
    return 0;
}
"#;

#[test]
fn mutexes_within_variables_have_the_names_of_the_source() {
    if !require(&[&NEEDS[..], &[Need::Gcc]].concat()) {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (source, program, recording) = (path("pool.c"), path("pool"), path("pool.data"));
    std::fs::write(&source, POOL).unwrap();
    for (flag, expected) in [
        ("-gdwarf-5", ["pool.sides[2].lock", "pool.all", "named.first"]),
        ("-gdwarf-4", ["pool.sides[2].lock", "pool.all", "named.first"]),
        ("-g0", ["pool+0xe8", "pool+0x140", "named"]),
    ] {
        let flags = ["-O1", flag, "-pthread", "-o", &program, &source];
        assert!(std::process::Command::new("gcc").args(flags).status().unwrap().success());
        let record = ["lock", "record", "--futex", "-q", "-o", &recording, "--", &program];
        let _ = kymo(&record).success();
        let args = ["lock", "contention", "--futex", "--comm", "pool", "--json", "-i", &recording];
        let page: Value = serde_json::from_str(&kymo(&args).success().stdout).unwrap();
        let futexes = page["futexes"].as_array().unwrap();
        let names: Vec<&str> = futexes.iter().filter_map(|f| f["variable"].as_str()).collect();
        for name in expected {
            assert!(names.contains(&name), "{flag}: {name}: {names:?}");
        }
        assert_eq!(names.len(), 3, "{flag}: {names:?}");
    }
    let args = ["profile", "--call-graph", "fp", "--", &program];
    let page = kymo(&args).success().stderr;
    assert!(page.contains("futex pool+0x") || page.contains("futex named"), "{page}");
}

/// Rows of `lock report`: name, acquired, contended, and the times, as perf words them; names are
/// cut as perf cuts them.
fn report_rows(text: &str) -> Vec<(String, u64, u64, String)> {
    let title = text.lines().find_map(|l| Some(l.split_once("Name ")?.0.len() + 4)).unwrap();
    let row = |line: &str| {
        let (name, numbers) = (line.get(..title)?.trim(), line.get(title..)?);
        let name = match name.len() {
            0..20 => name.to_owned(),
            _ => format!("{}...", name.get(..16)?),
        };
        let mut words = numbers.split_whitespace();
        let (acquired, contended) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let times = words.collect::<Vec<_>>().join(" ");
        Some((name, acquired, contended, times))
    };
    text.lines().filter_map(row).collect()
}

/// The recording is of a kernel with lock debugging (see the README.md beside it). Each
/// `lock_acquire` is a lock that is taken, sooner or later.
///
/// perf follows a lock from one event to the next and gives up on it (`bad`, its row is not
/// shown, or counts less) where it is not as it expects:
/// - run queues' locks are taken by one task and released by the next one;
/// - locks for readers and of lockdep's own (`fs_reclaim`, `rcu_read_lock`) are taken again while
///   they are held;
/// - idle tasks of all CPUs are one for it.
#[test]
fn locks_that_were_taken_are_those_of_lockdep_and_of_perf() {
    if !require(&[Need::Perf]) {
        return;
    }
    let fixtures = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let path = fixtures.join("perf-data/x86_64/lockdep.data");
    let path = path.to_str().unwrap();
    let mut asked: BTreeMap<String, u64> = BTreeMap::new();
    let mut contended: BTreeMap<String, u64> = BTreeMap::new();
    let mut unfinished: BTreeMap<String, u64> = BTreeMap::new();
    for line in kymo(&["script", "-i", path, "--json"]).success().stdout.lines() {
        let e: Value = serde_json::from_str(line).unwrap();
        let address = e["fields"]["lockdep_addr"].as_str().unwrap().to_owned();
        match e["event"].as_str().unwrap() {
            "lock:lock_acquire" => {
                *asked.entry(address.clone()).or_default() += 1;
                *unfinished.entry(address).or_default() += 1;
            }
            "lock:lock_contended" => *contended.entry(address).or_default() += 1,
            _ => _ = unfinished.remove(&address),
        }
    }
    assert!(asked.values().sum::<u64>() > 3000 && contended.len() > 1, "{asked:?}");
    let report = kymo(&["lock", "report", "--json", "-i", path]).success().stdout;
    let report: Value = serde_json::from_str(&report).unwrap();
    let mut rows: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    let mut classes: BTreeMap<&str, u64> = BTreeMap::new();
    for row in report["locks"].as_array().unwrap() {
        let number = |name: &str| row[name].as_u64().unwrap();
        let address = row["address"].as_str().unwrap();
        rows.insert(address, (number("acquired"), number("contended")));
        *classes.entry(row["class"].as_str().unwrap()).or_default() += number("acquired");
        assert!(row["type"].is_null() && row["caller"].is_null(), "{row}");
    }
    assert_eq!(rows.len(), asked.len());
    for (address, asked) in &asked {
        let (acquired, waited) = rows[address.as_str()];
        let open = unfinished.get(address).copied().unwrap_or(0);
        assert!((asked - open..=*asked).contains(&acquired), "{address}: {acquired} of {asked}");
        assert_eq!(waited, contended.get(address).copied().unwrap_or(0), "{address}");
    }
    // Classes are those of the rows, combined.
    let combined = kymo(&["lock", "report", "-c", "-i", path]).success().stdout;
    let combined = report_rows(&combined);
    assert_eq!(combined.len(), classes.len());
    assert_eq!(combined.iter().map(|r| r.1).sum::<u64>(), classes.values().sum::<u64>());
    assert!(combined.iter().any(|r| r.0 == "tasklist_lock" && r.1 == classes["tasklist_lock"]));
    // perf's rows are among these, but for those that it does not follow to their end.
    let ours = report_rows(&kymo(&["lock", "report", "-i", path]).success().stdout);
    let theirs = perf(["lock", "report", "-i", path]).success();
    let theirs = report_rows(&format!("{}\n{}", theirs.stdout, theirs.stderr));
    assert!(theirs.len() > 100, "{theirs:?}");
    let mut left = ours.clone();
    let mut less = Vec::new();
    for row in theirs {
        match left.iter().position(|own| *own == row) {
            Some(at) => _ = left.remove(at),
            None => less.push(row),
        }
    }
    for (name, acquired, ..) in &less {
        let known = ["&rq->__lock", "&____s->seqcount", "tk_core.seq.seqc..."];
        assert!(known.contains(&name.as_str()), "{name} {acquired}");
        assert!(left.iter().any(|own| own.0 == *name && own.1 > *acquired), "{name} {acquired}");
    }
    assert!(less.len() < 8, "{less:?}");
    // Threads, and what `info` says.
    let threads = kymo(&["lock", "report", "-t", "-i", path]).success().stdout;
    assert!(report_rows(&threads).iter().any(|r| r.0 == "load2"), "{threads}");
    let info = kymo(&["lock", "info", "-m", "-i", path]).success().stdout;
    assert!(info.lines().any(|l| l.ends_with(": tasklist_lock")), "{info}");
}
