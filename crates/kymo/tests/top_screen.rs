//! `kymo top` on a terminal: driven through a pty whose other end is a terminal emulator, what
//! it shows is what is asserted.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod terminal;

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kymo_testkit::{Need, Workload, require, run};
use rustix::termios::{LocalModes, tcgetattr};
use terminal::TerminalTest;

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 3] = [Need::Root, Need::PerfEvents, Need::Gcc];

/// A terminal with `kymo top` on it.
fn top_on(size: (u16, u16), environment: &[(&str, &str)], args: &[&str]) -> TerminalTest {
    TerminalTest::start(size, environment, &[&[KYMO, "top"], args].concat())
}

/// A child that burns CPU until this is dropped.
struct Burner {
    child: Child,
    workload: Workload,
}

impl Burner {
    fn start() -> Burner {
        Burner::of(Workload::spin())
    }

    fn of(workload: Workload) -> Burner {
        let child = Command::new(workload.program()).arg("1000000").spawn().unwrap();
        Burner { child, workload }
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

#[test]
fn every_view_shows_what_runs() {
    if !require(&NEEDS) {
        return;
    }
    let burner = Burner::start();
    let pid = burner.pid();
    let mut top = top_on((24, 80), &[], &["-g", "-p", &pid, "-d", "0.2"]);
    top.wait("functions", |t| t.line(3).contains('%') && t.text().contains("[.] hot"));
    assert!(top.line(0).contains(&format!("target_pid: {pid}")), "{}", top.line(0));
    assert!(top.line(1).starts_with("functions"), "{}", top.line(1));
    assert!(top.line(2).contains("Total    Self  Shared Object"), "{}", top.line(2));
    assert!(top.line(23).contains(" samples"), "{}", top.line(23));
    // Without callees, what burns stands first.
    top.press("s");
    top.wait("own weight first", |t| t.line(3).contains("[.] hot") && !t.line(2).contains("Total"));
    top.press("t");
    top.wait_text("call tree");
    top.wait("a tree", |t| t.text().contains("- spin") && t.text().contains("- main"));
    top.press("f");
    top.wait("flames", |t| t.line(2).starts_with("|all") && t.text().contains("|hot"));
    // To the program, and into it.
    top.press("j\r");
    top.wait("the program's flames", |t| t.line(2).starts_with("|spin"));
    top.wait("what is chosen", |t| t.line(22).contains("%") && t.line(22).ends_with("spin"));
    top.press("2");
    top.wait("threads", |t| t.line(3).contains(&format!("{pid}:spin")));
    top.press("3");
    top.wait("processes", |t| {
        t.line(1).starts_with("processes") && t.line(3).contains(&format!("{pid}:spin"))
    });
    top.press("\r");
    top.wait("zoom", |t| t.line(1).contains(&format!("functions of {pid}:spin")));
    top.press("4");
    top.wait("lines", |t| t.text().contains("spin.c:"));
    top.press("5");
    top.wait("binaries", |t| t.line(3).ends_with(" spin"));
    top.press("?");
    top.wait_text("save what is shown as perf.data");
    top.press("x1");
    top.wait("functions again", |t| t.line(1).starts_with("functions"));
    top.press("q");
    let (status, text) = top.end();
    assert!(status.success(), "{text}");
    assert!(text.contains("overhead: kymo itself used"), "{text}");
}

/// Names are as long as a binary says: they end at the edge of the screen, and `--stdio` writes
/// them as they are.
#[test]
fn names_longer_than_any_column() {
    if !require(&NEEDS) {
        return;
    }
    let name = "n".repeat(70_000);
    let source = format!(
        "volatile unsigned long sink; __attribute__((noinline)) void {name}(void) \
         {{ for (int i = 0; i < 10000; i++) sink++; }} int main(void) {{ for (;;) {name}(); }}"
    );
    let burner = Burner::of(Workload::compile("long_name", &source));
    let pid = burner.pid();
    let mut top = top_on((24, 80), &[], &["-g", "-p", &pid, "-d", "0.2"]);
    top.wait("functions", |t| t.text().contains("[.] nnnn"));
    for (key, shown) in [("t", "nnnn"), ("f", "|nnnn"), ("4", "%"), ("3", "%"), ("1", "[.] nnnn")] {
        top.press(key);
        top.wait(key, |t| t.text().contains(shown));
    }
    top.press("s");
    top.wait("own weight first", |t| t.line(3).contains("[.] nnnn"));
    top.press("\r");
    top.wait_text("code of nnnn");
    top.press("\x1bq");
    let (status, text) = top.end();
    assert!(status.success(), "{text}");
    for sort in ["dso,sym", "sym,dso"] {
        let args = ["top", "--stdio", "-p", &pid, "-s", sort, "-d", "0.2", "--timeout", "500"];
        let pages = run(KYMO, args).success().stdout;
        assert!(pages.contains(&name), "{sort}: {} bytes", pages.len());
    }
}

#[test]
fn rows_are_filtered_as_one_types() {
    if !require(&NEEDS) {
        return;
    }
    let burner = Burner::start();
    let mut top = top_on((10, 60), &[], &["-p", &burner.pid(), "-d", "0.2"]);
    top.wait("both", |t| t.text().contains("[.] hot") && t.text().contains("[.] warm"));
    top.press("/WAR");
    top.wait("one row", |t| t.line(3).contains("[.] warm") && !t.text().contains("[.] hot"));
    assert!(top.line(9).starts_with("/WAR_"), "{}", top.line(9));
    top.press("X");
    top.wait_text("no row has this");
    top.press("\x7f\r");
    top.wait("the filter stays", |t| {
        t.line(1).contains("with \"WAR\"") && !t.line(9).contains('_')
    });
    top.press("\x1b");
    top.wait("all rows", |t| t.text().contains("[.] hot"));
    // Without its program's side nothing is left.
    top.press("U");
    top.wait("no programs", |t| {
        t.line(1).contains("the kernel alone") && !t.text().contains("[.] hot")
    });
    top.press("Uq");
    assert!(top.end().0.success());
}

#[test]
fn code_is_shown_in_place() {
    if !require(&NEEDS) {
        return;
    }
    let burner = Burner::start();
    let mut top = top_on((40, 100), &[], &["-p", &burner.pid(), "-d", "0.2"]);
    top.wait("functions", |t| t.line(3).contains("[.] hot"));
    top.press("\r");
    top.wait_text("code of hot");
    top.wait("instructions", |t| t.text().contains("ret") && t.text().contains("spin.c:"));
    // All of a function's weight is in its instructions.
    let shares = |t: &TerminalTest| -> f64 {
        let lines = t.text();
        let share =
            |l: &str| l.trim_start().split_once('%').and_then(|(n, _)| n.parse::<f64>().ok());
        lines.lines().skip(2).filter_map(share).sum::<f64>()
    };
    top.wait("shares", |t| (99.5..100.5).contains(&shares(t)));
    top.press("\x1b");
    top.wait("the table", |t| t.line(1).starts_with("functions"));
    top.press("q");
    assert!(top.end().0.success());
}

#[test]
fn what_is_frozen_stays_and_is_saved() {
    if !require(&NEEDS) {
        return;
    }
    let burner = Burner::start();
    let saved = burner.workload.file("seen.data");
    let args = ["-p", &burner.pid(), "-d", "0.1", "--window", "0.5", "-o", &saved];
    let mut top = top_on((24, 100), &[], &args);
    let seconds = |t: &TerminalTest| -> Option<u64> {
        t.line(23).split(' ').next().and_then(|n| n.parse().ok())
    };
    // More than one window has passed.
    top.wait("a window", |t| t.line(0).contains("last 0.5 s"));
    std::thread::sleep(Duration::from_millis(800));
    top.press(" ");
    top.wait("FROZEN", |t| t.line(0).starts_with("FROZEN 0.5 s"));
    let (before, samples) = (top.line(3), seconds(&top));
    std::thread::sleep(Duration::from_millis(500));
    top.read();
    assert_eq!((top.line(3), seconds(&top)), (before.clone(), samples));
    top.press("[");
    top.wait("another time", |t| t.line(3) != before || seconds(t) != samples);
    let count = seconds(&top).unwrap();
    assert!(count > 0);
    top.press("w");
    top.wait_text(&format!("saved {count} samples to "));
    top.press("]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]");
    top.wait("the present", |t| t.line(0).starts_with("last "));
    top.press("q");
    assert!(top.end().0.success());
    let shape = ["report", "--stdio", "--no-children", "-n", "--sort", "symbol", "-i", &saved];
    let report = run(KYMO, shape).success().stdout;
    let sum = report.lines().filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    assert_eq!(sum.sum::<u64>(), count, "{report}");
    let theirs = kymo_testkit::perf(shape).success().stdout;
    let sum = theirs.lines().filter_map(|l| l.split_whitespace().nth(1)?.parse::<u64>().ok());
    assert_eq!(sum.sum::<u64>(), count, "{theirs}");
}

#[test]
fn any_size_is_drawn() {
    if !require(&NEEDS) {
        return;
    }
    let burner = Burner::start();
    let mut top = top_on((5, 20), &[], &["-g", "-p", &burner.pid(), "-d", "0.2"]);
    top.wait("something small", |t| t.line(1).contains('%') || t.line(2).contains('%'));
    for (rows, columns) in [(1, 1), (2, 20), (120, 400), (24, 80), (5, 20), (60, 300)] {
        top.resize((rows, columns));
        for view in ["1", "t", "f", "?", "x2"] {
            top.press(view);
            std::thread::sleep(Duration::from_millis(60));
            top.read();
        }
        top.press("1s");
        if rows > 20 {
            top.wait("rows", |t| t.text().contains("[.] hot"));
            // The last line is the ledger, wherever that is now.
            top.wait("the ledger", |t| t.line(rows - 1).contains("samples"));
        }
    }
    top.press("q");
    assert!(top.end().0.success());
}

fn signal(top: &TerminalTest, name: &str) {
    let pid = top.child.id().to_string();
    assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
}

#[test]
fn the_terminal_is_given_back() {
    if !require(&NEEDS) {
        return;
    }
    let burner = Burner::start();
    let args = ["-p", &burner.pid(), "-d", "0.2"];
    for name in ["-TERM", "-HUP", "-INT"] {
        let mut top = top_on((24, 80), &[], &args);
        top.wait_text("[.] hot");
        signal(&top, name);
        let (status, text) = top.end();
        assert!(status.success(), "{name}: {text}");
    }
    // Ctrl-C and the end of who is watched.
    let mut top = top_on((24, 80), &[], &args);
    top.wait_text("[.] hot");
    top.press("\x03");
    assert!(top.end().0.success());
    // Ctrl-Z gives it back, and going on takes it again.
    let mut top = top_on((24, 80), &[], &args);
    top.wait_text("[.] hot");
    top.press("\x1a");
    top.wait("the old screen", |t| !t.emulator.screen().alternate_screen());
    let modes = tcgetattr(&top.tty).unwrap().local_modes;
    assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO), "{modes:?}");
    signal(&top, "-CONT");
    top.wait("the new screen", |t| {
        t.emulator.screen().alternate_screen() && t.text().contains("[.] hot")
    });
    drop(burner);
    assert!(top.end().0.success());
}

#[test]
fn terminals_that_can_do_less_get_less() {
    if !require(&NEEDS) {
        return;
    }
    let burner = Burner::start();
    let pid = burner.pid();
    // No colors: attributes alone.
    let mut top = top_on((24, 80), &[("NO_COLOR", "1")], &["-p", &pid, "-d", "0.2"]);
    top.wait_text("[.] hot");
    top.press("q");
    top.read();
    let text = String::from_utf8_lossy(&top.all).into_owned();
    let is_color = |n: &u8| text.contains(&format!(";{n}m"));
    assert!(!(30..48).any(|n| is_color(&n)), "{text:?}");
    top.end();
    // No cursor to move: pages.
    let args = ["-p", &pid, "--timeout", "300"];
    let top = top_on((24, 80), &[("TERM", "dumb")], &args);
    let (status, text) = top.end();
    assert!(status.success() && text.contains("[.] hot"), "{text}");
}

#[test]
fn hostile_names_do_not_reach_the_terminal() {
    if !require(&NEEDS) {
        return;
    }
    // A program whose file and task have escape sequences in their names.
    let source = r#"
#include <sys/prctl.h>
volatile unsigned long sink;
int main(void) {
  prctl(PR_SET_NAME, "\033[31mred\007\033]0;t");
  for (;;) sink++;
}
"#;
    let workload = Workload::compile("hostile", source);
    let name = workload.dir().join("a\x1b[2Jb\nc");
    std::fs::copy(workload.program(), &name).unwrap();
    let child = Command::new(&name).spawn().unwrap();
    let burner = Burner { child, workload };
    let pid = burner.pid();
    for locale in ["C", "C.UTF-8"] {
        let mut top = top_on(
            (24, 80),
            &[("LC_ALL", locale)],
            &["-p", &pid, "-d", "0.2", "-s", "comm,dso,symbol"],
        );
        top.wait_text("a?[2Jb");
        top.press("2");
        top.wait_text(":?[31mred??]0;t");
        top.press("q");
        top.read();
        let bytes = String::from_utf8_lossy(&top.all).into_owned();
        assert!(!bytes.contains("\x1b]") && !bytes.contains("\x1b[31mred"), "{bytes:?}");
        assert!(top.end().0.success());
    }
}

#[test]
fn tasks_are_ordered_and_held_by_keys() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let _burner = Burner::start();
    let args = ["--tasks", "-d", "0.3"];
    let mut top = top_on((24, 120), &[], &args);
    top.wait_text("order: r run");
    // Names begin at one column in each row.
    let names = |t: &TerminalTest| -> Vec<String> {
        let rows = (2..22).map(|row| t.line(row));
        let rows = rows.take_while(|l| l.contains('%'));
        rows.map(|l| l.chars().skip(55).take(15).collect::<String>().trim_end().to_owned())
            .collect()
    };
    top.press("n");
    top.wait("order by name", |t| {
        let names = names(t);
        names.len() > 3 && names.is_sorted()
    });
    top.press(" ");
    top.wait_text("held; order");
    let held = top.text();
    std::thread::sleep(Duration::from_millis(700));
    top.read();
    assert_eq!(top.text(), held);
    top.press("r");
    let share = |line: String| line.trim_start().split('%').next().unwrap().parse::<f64>().unwrap();
    top.wait("order by run time", |t| {
        let rows = (2..22).map(|row| t.line(row)).take_while(|l| l.contains('%'));
        let shares: Vec<f64> = rows.map(share).collect();
        shares.len() > 3 && shares.is_sorted_by(|a, b| a >= b) && !names(t).is_sorted()
    });
    top.press("q");
    let (status, said) = top.end();
    assert!(status.success(), "{said}");
    assert!(said.contains("kymo itself used"), "{said}");
}

#[test]
fn tasks_fit_any_terminal_and_give_it_back() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let _burner = Burner::start();
    let ascii = [("LC_ALL", "C"), ("NO_COLOR", "1")];
    let mut top = top_on((5, 20), &ascii, &["--tasks", "-d", "0.1"]);
    top.wait("a row", |t| t.line(2).contains('%') && t.line(3).starts_with("order"));
    for (rows, columns) in [(1, 1), (2, 20), (120, 400), (5, 20), (24, 80)] {
        top.resize((rows, columns));
        std::thread::sleep(Duration::from_millis(250));
        top.read();
    }
    top.wait("rows", |t| t.line(1).contains("Block%") && t.line(4).contains('%'));
    top.press("\x1a");
    top.wait("the old screen", |t| !t.emulator.screen().alternate_screen());
    signal(&top, "-CONT");
    top.wait("the new screen", |t| {
        t.emulator.screen().alternate_screen() && t.line(4).contains('%')
    });
    signal(&top, "-TERM");
    assert!(top.end().0.success());
}

/// Set in the process that panics.
const PANICS: &str = "KYMO_TEST_PANICS";

/// The test itself, run once more on a terminal, takes that over and panics.
#[test]
fn a_panic_gives_the_terminal_back() {
    if std::env::var_os(PANICS).is_some() {
        let _raw = kymo_kernel::terminal::RawTerminal::enter().unwrap();
        // Until the other side has seen the screen.
        std::thread::sleep(Duration::from_millis(300));
        panic!("as it was asked to");
    }
    let program = std::env::current_exe().unwrap();
    let name = "a_panic_gives_the_terminal_back";
    let words = [program.to_str().unwrap(), "--exact", name, "--nocapture", "--test-threads=1"];
    let mut test = TerminalTest::start((24, 80), &[(PANICS, "1"), ("RUST_BACKTRACE", "0")], &words);
    test.wait("the other screen", |t| t.emulator.screen().alternate_screen());
    assert!(!tcgetattr(&test.tty).unwrap().local_modes.contains(LocalModes::ECHO));
    let (status, text) = test.end();
    assert!(!status.success());
    assert!(text.contains("as it was asked to"), "{text}");
}

/// Sleeps in one function and burns in another; a thread waits for the lock that the latter
/// holds.
const SLEEPER: &str = r"
#include <pthread.h>
#include <time.h>
volatile unsigned long sink;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
__attribute__((noinline)) void burns(void) { for (int i = 0; i < 3000000; i++) sink++; }
// The C library is built without frame pointers: chains through it miss its caller.
__attribute__((noinline)) void calls(long span) {
  struct timespec t = {0, span};
  if (span) nanosleep(&t, 0);
  else pthread_mutex_lock(&lock);
  sink++;
}
__attribute__((noinline)) void naps(void) { calls(20000000); sink++; }
__attribute__((noinline)) void waits(void) { calls(0); sink++; }
__attribute__((noinline)) void *other(void *unused) {
  for (;;) {
    waits();
    pthread_mutex_unlock(&lock);
    calls(100000);
  }
}
int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, other, 0);
  for (;;) {
    pthread_mutex_lock(&lock);
    burns();
    pthread_mutex_unlock(&lock);
    naps();
  }
}
";

#[test]
fn time_off_the_cpu_has_a_column_and_an_order() {
    if !require(&NEEDS) {
        return;
    }
    let burner = Burner::of(Workload::compile("sleeper", SLEEPER));
    let pid = burner.pid();
    let mut top = top_on((50, 100), &[], &["--off-cpu", "-p", &pid, "-d", "0.2"]);
    let row = |t: &TerminalTest, name: &str| -> Option<u16> {
        let name = format!("[.] {name}");
        (3..49).find(|row| t.line(*row).ends_with(&name))
    };
    let has_time = |t: &TerminalTest, name: &str| {
        let words = row(t, name).map(|row| t.line(row)).unwrap_or_default();
        words.split_whitespace().nth(2).is_some_and(|w| w.parse::<f64>().is_ok_and(|n| n > 0.0))
    };
    top.wait("where it burns", |t| row(t, "burns").is_some_and(|row| row < 8));
    assert!(top.line(2).starts_with("  Total    Self  Off-CPU   Shared Object"), "{}", top.line(2));
    top.press("o");
    top.wait("where it sleeps", |t| {
        t.line(1).contains("by time off the CPU")
            && row(t, "naps").zip(row(t, "burns")).is_none_or(|(naps, burns)| naps < burns)
            && has_time(t, "naps")
            && has_time(t, "waits")
    });
    top.press("t");
    top.wait("the tree of waits", |t| t.text().contains("naps") && t.text().contains("waits"));
    top.press("f");
    // The mutex is not fair: how long it is waited for, and whether all of the name fits, differs.
    top.wait("flames of waits", |t| t.text().contains("|wa") && t.text().contains("|naps"));
    top.press("2");
    // Nobody's time is more than that of the page.
    top.wait("threads", |t| t.line(3).contains(":sleeper") && t.line(4).contains(":sleeper"));
    top.press("oe");
    top.wait("the order of before", |t| !t.line(1).contains("by time off the CPU"));
    assert!(top.line(0).contains("Hz"), "{}", top.line(0));
    top.press("q");
    assert!(top.end().0.success());
    // Without the flag a key says how to get it.
    let mut top = top_on((24, 80), &[], &["-p", &pid, "-d", "0.2"]);
    top.press("o");
    top.wait_text("start with --off-cpu");
    top.press("q");
    assert!(top.end().0.success());
}

#[test]
fn ten_thousand_threads_are_watched() {
    if !require(&[Need::Root, Need::PerfEvents, Need::Tracefs, Need::Gcc]) {
        return;
    }
    let source = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
volatile unsigned long sink;
static void *sleeps(void *unused) { for (;;) sleep(1); }
int main(void) {
  pthread_attr_t small;
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 16384);
  int count = 0;
  for (pthread_t thread; count < 10000; count++)
    if (pthread_create(&thread, &small, sleeps, 0)) break;
  printf("%d\n", count);
  fflush(stdout);
  for (;;) sink++;
}
"#;
    let workload = Workload::compile("many", source);
    let mut child = Command::new(workload.program()).stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let out = child.stdout.take().unwrap();
    let burner = Burner { child, workload };
    std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut said).unwrap();
    assert_eq!(said.trim(), "10000");
    let pid = burner.pid();
    let mut top = top_on((24, 80), &[], &["-g", "-d", "0.2"]);
    for key in ["2", "3"] {
        top.press(key);
        top.wait("the program", |t| t.text().contains(&format!("{pid}:many")));
    }
    top.press("f");
    top.wait("flames", |t| t.text().contains("|many"));
    top.press("q");
    assert!(top.end().0.success());
    let mut top = top_on((24, 120), &[], &["--tasks", "-d", "1"]);
    top.wait("ten thousand tasks", |t| {
        let seen = t
            .line(0)
            .split(' ')
            .zip(t.line(0).split(' ').skip(1))
            .find_map(|(n, what)| (what == "tasks").then(|| n.parse::<u64>().ok())?);
        t.line(0).contains("tasks seen") && seen.is_some_and(|n| n >= 10_000)
    });
    top.press("q");
    assert!(top.end().0.success());
}

#[test]
fn a_program_of_very_many_symbols_has_its_names() {
    if !require(&NEEDS) {
        return;
    }
    let source = r#"
__asm__(".altmacro\n.macro one n\nf\\n: nop; ret\n.endm\n.set i, 0\n"
        ".rept 250000\none %i\n.set i, i + 1\n.endr\n");
void f177777(void);
int main(void) { for (;;) f177777(); }
"#;
    let burner = Burner::of(Workload::compile("symbols", source));
    let mut top = top_on((24, 80), &[], &["-p", &burner.pid(), "-d", "0.2"]);
    // Where the table is read the screen is there already.
    top.wait("the program", |t| t.text().contains(" symbols "));
    top.wait("its function", |t| t.text().contains("[.] f177777"));
    top.press("q");
    assert!(top.end().0.success());
}
