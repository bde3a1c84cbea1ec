//! LTTng as a peer: its session daemon as a child with a home of its own, and a
//! program with tracepoints of every type.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::peer::{newest_peers, peer, programs};
use crate::run::{Outcome, run_command};

/// The tracepoints of [`Lttng::program`].
const TRACEPOINTS: &str = r#"
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER kt
#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./tp.h"
#if !defined(TP_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TP_H
#include <lttng/tracepoint.h>
#include <stdint.h>
LTTNG_UST_TRACEPOINT_ENUM(kt, color, LTTNG_UST_TP_ENUM_VALUES(
  lttng_ust_field_enum_value("RED", 0)
  lttng_ust_field_enum_range("GREENS", 1, 5)
  lttng_ust_field_enum_value("BLUE", 7)
  lttng_ust_field_enum_value("AZURE", 7)
  lttng_ust_field_enum_auto("AUTO")
))
LTTNG_UST_TRACEPOINT_ENUM(kt, signs, LTTNG_UST_TP_ENUM_VALUES(
  lttng_ust_field_enum_value("NEG", -3)
  lttng_ust_field_enum_range("RANGE", -2, 2)
  lttng_ust_field_enum_value("with \"quote\\", 9)
))
LTTNG_UST_TRACEPOINT_EVENT(kt, numbers, LTTNG_UST_TP_ARGS(int, i), LTTNG_UST_TP_FIELDS(
    lttng_ust_field_integer(int8_t, i8, i)
    lttng_ust_field_integer(uint8_t, u8, i)
    lttng_ust_field_integer(int16_t, i16, i)
    lttng_ust_field_integer(uint16_t, u16, i)
    lttng_ust_field_integer(int32_t, i32, i)
    lttng_ust_field_integer(uint32_t, u32, i)
    lttng_ust_field_integer(int64_t, i64, (int64_t)i << 33)
    lttng_ust_field_integer(uint64_t, u64, (int64_t)i << 33)
    lttng_ust_field_integer_hex(int16_t, h16, i)
    lttng_ust_field_integer_hex(uint64_t, h64, i)
    lttng_ust_field_integer_network(uint16_t, n16, i)
    lttng_ust_field_integer_network_hex(uint32_t, nh32, i)
    lttng_ust_field_float(float, f, i / 3.0f)
    lttng_ust_field_float(double, d, i * 1e20 / 7)
    lttng_ust_field_enum(kt, color, int, e, i & 7)
    lttng_ust_field_enum(kt, signs, int8_t, se, (i % 11) - 3)
    lttng_ust_field_enum(kt, color, uint64_t, ue, i & 7)))
LTTNG_UST_TRACEPOINT_EVENT(kt, rows,
  LTTNG_UST_TP_ARGS(const char *, s, const uint16_t *, a, size_t, n, size_t, m),
  LTTNG_UST_TP_FIELDS(
    lttng_ust_field_string(str, s)
    lttng_ust_field_array(uint16_t, a16, a, 3)
    lttng_ust_field_array_hex(uint16_t, ah16, a, 2)
    lttng_ust_field_array_text(char, at, s, 4)
    lttng_ust_field_sequence(uint16_t, s16, a, size_t, m)
    lttng_ust_field_sequence_hex(uint16_t, sh16, a, uint8_t, m)
    lttng_ust_field_sequence_text(char, st, s, uint32_t, n)
    lttng_ust_field_array_network(uint16_t, an16, a, 2)
    lttng_ust_field_sequence_network(uint16_t, sn16, a, uint8_t, m)))
LTTNG_UST_TRACEPOINT_EVENT(kt, empty, LTTNG_UST_TP_ARGS(), LTTNG_UST_TP_FIELDS())
LTTNG_UST_TRACEPOINT_EVENT(kt, two, LTTNG_UST_TP_ARGS(uint64_t, a, uint64_t, b),
  LTTNG_UST_TP_FIELDS(
    lttng_ust_field_integer(uint64_t, a, a) lttng_ust_field_integer(uint64_t, b, b)))
#endif
#include <lttng/tracepoint-event.h>
"#;

/// Arguments: rounds, and `two` for that tracepoint alone, in a loop.
const PROGRAM: &str = r#"
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "tp.h"
#include <stdlib.h>
/* A function of its own, for probes to be put on. */
__attribute__((noinline)) void two(uint64_t a, uint64_t b) { lttng_ust_tracepoint(kt, two, a, b); }
int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 100;
    const char *s[] = { "hello", "a \"quoted\" \\ back\nline\ttab\x01", "uml\xc3\xa4ut raw", "abcd" };
    uint16_t a[16];
    for (int i = 0; i < n; i++) {
        if (argc > 2) { two(i, 3ul * i); continue; }
        for (int j = 0; j < 16; j++) a[j] = i * 31 + j;
        lttng_ust_tracepoint(kt, numbers, i % 2 ? i : -i);
        /* Of a text without characters babeltrace2 2.0.4 shows the one before. */
        lttng_ust_tracepoint(kt, rows, s[i % 4], a, 1 + i % 4, i % 5);
        lttng_ust_tracepoint(kt, empty);
    }
    return 0;
}
"#;

/// Parameters of a session.
#[derive(Clone, Copy, Debug)]
pub struct LttngSession<'s> {
    /// A directory that is not there yet.
    pub output: &'s Path,
    /// One set of buffers for each process instead of each user.
    pub by_process: bool,
    /// Bytes of a sub-buffer, as `--subbuf-size` takes them.
    pub sub_buffer: &'s str,
    /// Number of sub-buffers per CPU.
    pub sub_buffers: u32,
    /// Contexts that events carry.
    pub contexts: &'s [&'s str],
    /// The program waits for room instead of losing events.
    pub waits: bool,
}

/// A session daemon that ends with this value.
#[derive(Debug)]
pub struct Lttng {
    daemon: Child,
    dir: tempfile::TempDir,
    /// The newest peers, if it is of those.
    root: Option<PathBuf>,
    /// Root has one daemon at a time, wherever its home is; other tests wait.
    _only: std::fs::File,
}

impl Lttng {
    /// Starts the installed daemon and waits until it answers.
    ///
    /// # Panics
    /// If it cannot be started or does not answer.
    #[track_caller]
    pub fn start() -> Lttng {
        Lttng::start_from(None)
    }

    /// Starts the newest daemon, which must be there (see [`crate::Need::NewestPeers`]).
    ///
    /// # Panics
    /// If it is not there, cannot be started or does not answer.
    #[track_caller]
    pub fn newest() -> Lttng {
        let root = newest_peers();
        Lttng::start_from(Some(root.unwrap_or_else(|| panic!("no newest peers here"))))
    }

    #[track_caller]
    fn start_from(root: Option<PathBuf>) -> Lttng {
        let dir = tempfile::tempdir().unwrap_or_else(|e| panic!("temporary directory: {e}"));
        let lock = std::env::temp_dir().join("kymo-test-lttng.lock");
        let only = std::fs::File::create(&lock)
            .and_then(|f| f.lock().map(|()| f))
            .unwrap_or_else(|e| panic!("{}: {e}", lock.display()));
        let mut command = tool(root.as_deref(), "lttng-sessiond");
        if let Some(root) = &root {
            let consumer = dir.path().join("consumer");
            std::fs::write(&consumer, programs::consumer(root))
                .and_then(|()| {
                    std::fs::set_permissions(&consumer, PermissionsExt::from_mode(0o755))
                })
                .unwrap_or_else(|e| panic!("{}: {e}", consumer.display()));
            command.env("LTTNG_CONSUMERD64_BIN", consumer);
        }
        let daemon = command
            .args(["--no-kernel", "--quiet"])
            .env("LTTNG_HOME", dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|e| panic!("lttng-sessiond: {e}"));
        let lttng = Lttng { daemon, dir, root, _only: only };
        let start = Instant::now();
        while lttng.try_client(&["list"]).status != 0 {
            assert!(start.elapsed() < Duration::from_secs(90), "lttng-sessiond does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        lttng
    }

    fn try_client(&self, args: &[&str]) -> Outcome {
        let mut client = tool(self.root.as_deref(), "lttng");
        client.args(["-n"]).args(args).env("LTTNG_HOME", self.dir.path());
        run_command(client)
    }

    /// Has the daemon's client do something.
    ///
    /// # Panics
    /// If it refuses.
    #[track_caller]
    pub fn client(&self, args: &[&str]) {
        let _ = self.try_client(args).success();
    }

    /// Compiles a program with tracepoints `kt:numbers`, `kt:rows`, `kt:empty`, one of each
    /// a round, and `kt:two`. Arguments: rounds, and `two` for that one alone.
    ///
    /// # Panics
    /// If it cannot be compiled.
    #[track_caller]
    pub fn program(&self) -> PathBuf {
        let (program, source) = (self.dir.path().join("traced"), self.dir.path().join("tp.c"));
        let written = std::fs::write(self.dir.path().join("tp.h"), TRACEPOINTS)
            .and_then(|()| std::fs::write(&source, PROGRAM));
        written.unwrap_or_else(|e| panic!("{}: {e}", source.display()));
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-I."]).arg(&source).arg("-o").arg(&program);
        gcc.args(self.root.iter().flat_map(|root| programs::flags(root)));
        gcc.args(["-llttng-ust", "-ldl"]).current_dir(self.dir.path());
        let _ = run_command(gcc).success();
        program
    }

    /// A command that runs a program of [`Lttng::program`].
    pub fn command(&self, program: &Path) -> Command {
        match &self.root {
            Some(root) => programs::command(root, program),
            None => Command::new(program),
        }
    }

    /// Runs a command that waits for the daemon.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn run_traced(&self, mut command: Command) {
        command.env("LTTNG_HOME", self.dir.path()).env("LTTNG_UST_REGISTER_TIMEOUT", "-1");
        let _ = run_command(command).success();
    }

    /// Makes traces of what lies in the shared memory of buffers: `lttng-crash --extract`.
    ///
    /// # Panics
    /// If it fails.
    #[track_caller]
    pub fn extract(&self, memory: &Path, output: &Path) {
        let mut crash = tool(self.root.as_deref(), "lttng-crash");
        crash.arg("--extract").arg(output).arg(memory);
        let _ = run_command(crash).success();
    }

    /// Records a command's events into a directory.
    ///
    /// # Panics
    /// If anything of that fails.
    #[track_caller]
    pub fn record(&self, session: &LttngSession<'_>, command: Command) {
        self.record_as(session, None, command);
    }

    /// Records in a format, `ctf-1.8` or `ctf-2`, which the newest daemon supports.
    ///
    /// # Panics
    /// If anything of that fails.
    #[track_caller]
    pub fn record_as(
        &self,
        session: &LttngSession<'_>,
        format: Option<&str>,
        mut command: Command,
    ) {
        let output = format!("--output={}", session.output.display());
        let format = format.map(|f| format!("--trace-format={f}"));
        let format: Vec<&str> = format.iter().map(String::as_str).collect();
        self.client(&[&["create", "test", &output], &format[..]].concat());
        let buffers = if session.by_process { "--buffers-pid" } else { "--buffers-uid" };
        let n = session.sub_buffers.to_string();
        let size = ["--subbuf-size", session.sub_buffer, "--num-subbuf", &n];
        let waits: &[&str] = if session.waits { &["--blocking-timeout=inf"] } else { &[] };
        let channel = ["enable-channel", "-u", "ch", "-s", "test", buffers];
        self.client(&[&channel[..], &size, waits].concat());
        self.client(&["enable-event", "-u", "-s", "test", "-c", "ch", "kt:*"]);
        for context in session.contexts {
            self.client(&["add-context", "-u", "-s", "test", "-c", "ch", "-t", context]);
        }
        self.client(&["start", "test"]);
        if session.waits {
            command.env("LTTNG_UST_ALLOW_BLOCKING", "1");
        }
        self.run_traced(command);
        self.client(&["stop", "test"]);
        self.client(&["destroy", "test"]);
    }
}

/// A tool of LTTng's: that of the newest peers, or the installed one.
fn tool(root: Option<&Path>, name: &str) -> Command {
    match root {
        Some(_) => peer(name).command(),
        None => Command::new(name),
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        // It takes its consumers along only if it is asked to end.
        let pid = self.daemon.id().to_string();
        let _ = Command::new("kill").arg(&pid).status();
        let start = Instant::now();
        while matches!(self.daemon.try_wait(), Ok(None)) {
            if start.elapsed() > Duration::from_secs(10) {
                let _ = self.daemon.kill();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
