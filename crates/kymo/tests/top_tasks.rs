//! `kymo top --tasks`: what tasks of known habits are seen to do, and that it adds up.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Child, Command, Stdio};

use kymo_testkit::{Need, Workload, require, run};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");
const NEEDS: [Need; 4] = [Need::Root, Need::Tracefs, Need::PerfEvents, Need::Gcc];

/// By its argument: burns, sleeps a millisecond at a time, or passes a byte to and fro with a
/// child, which it then is woken by.
const HABITS: &str = r#"
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
volatile unsigned long sink;
int main(int argc, char **argv) {
  if (argc != 2) return 1;
  prctl(PR_SET_NAME, argv[1]);
  if (!strcmp(argv[1], "top-burns")) for (;;) sink++;
  if (!strcmp(argv[1], "top-sleeps")) {
    struct timespec t = {0, 1000000};
    for (;;) nanosleep(&t, 0);
  }
  int to[2], from[2];
  char byte = 0;
  if (pipe(to) || pipe(from)) return 1;
  if (fork() == 0) {
    close(to[1]);
    close(from[0]);
    while (read(to[0], &byte, 1) == 1) {
      struct timespec t = {0, 2000000};
      nanosleep(&t, 0);
      if (write(from[1], &byte, 1) != 1) return 0;
    }
    return 0;
  }
  close(to[0]);
  close(from[1]);
  for (;;)
    if (write(to[1], &byte, 1) != 1 || read(from[0], &byte, 1) != 1) return 0;
}
"#;

struct Habits(Vec<Child>);

impl Drop for Habits {
    fn drop(&mut self) {
        for child in &mut self.0 {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}

/// Run, wait and block of a task in percent, its switches, and what it does.
fn row(page: &str, tid: u32) -> (f64, f64, f64, u64, String) {
    let line = page.lines().find(|l| l.split_whitespace().nth(5) == Some(&tid.to_string()));
    let line = line.unwrap_or_else(|| panic!("no task {tid}: {page}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let share = |n: usize| words[n].trim_end_matches('%').parse::<f64>().unwrap();
    (share(0), share(1), share(2), words[3].parse().unwrap(), words[7..].join(" "))
}

#[test]
fn tasks_do_what_they_are_known_to_do() {
    if !require(&NEEDS) {
        return;
    }
    let workload = Workload::compile("habits", HABITS);
    let names = ["top-burns", "top-sleeps", "top-pipes"];
    let start = |name: &&str| {
        let mut command = Command::new(workload.program());
        command.arg(name).stdout(Stdio::null()).spawn().unwrap()
    };
    let habits = Habits(names.iter().map(start).collect());
    let args = ["top", "--tasks", "--stdio", "-d", "0.5", "--timeout", "1700", "-E", "100000"];
    let top = run(KYMO, args).success();
    let pages: Vec<&str> = top.stdout.split("\n\n").filter(|p| p.contains("Run%")).collect();
    assert!(pages.len() >= 3, "{}", top.stdout);
    // The second page: everybody was seen before it began.
    let page = pages[1];
    let tids: Vec<u32> = habits.0.iter().map(Child::id).collect();
    for tid in &tids {
        let (run, wait, blocked, _, _) = row(page, *tid);
        let sum = run + wait + blocked;
        assert!((99.9..100.1).contains(&sum), "{tid}: {sum} in {page}");
    }
    let (ran, _, blocked, _, _) = row(page, tids[0]);
    assert!(ran > 0.0 && blocked == 0.0, "{page}");
    let (ran, _, blocked, switches, what) = row(page, tids[1]);
    assert!(blocked > ran && switches > 0 && what.contains("sleeping"), "{page}");
    let (_, _, _, _, what) = row(page, tids[2]);
    assert!(what.contains("blocked: pipe"), "{page}");
    assert!(page.contains("% busy"), "{page}");
    assert!(top.stdout.contains("overhead: kymo itself used"), "{}", top.stdout);
    // Flags of the profile mean nothing here.
    assert!(!run(KYMO, ["top", "--tasks", "-g"]).failure().stderr.is_empty());
}
