//! perf's own shell tests (`tests/shell` of Debian's newest perf, which `cargo xtask peers`
//! unpacks), run with that perf and with kymo under its name.
//!
//! A test runs in a mount namespace with an empty `/tmp`, which is also its home, and in a process
//! group of its own that ends with its time. Debian's perf is stripped, and many tests look for the
//! symbols of its workloads: `perf test` is kymo's for both, and the workload with inlined
//! functions is compiled by gcc, since a release build of kymo has no lines either.

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Source of the workload: the inlined functions are in lines 20 to 29, their caller in lines 30
/// to 39, as the test of inlined functions expects.
const INLINE_LOOP: &str = r#"#include <stdlib.h>
#include <time.h>

static volatile unsigned rounds;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}





static inline __attribute__((always_inline)) void leaf(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		rounds += i;
}

static inline __attribute__((always_inline)) void middle(unsigned n)
{
	leaf(n);
}

__attribute__((noinline)) void parent(double end)
{
	while (now() < end)
		middle(1000000);
}

int main(int argc, char **argv)
{
	parent(argc > 1 ? atof(argv[1]) : 1);
	return 0;
}
"#;

/// Program that a test runs as `perf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerfProgram {
    /// Debian's newest perf.
    Newest,
    /// kymo.
    Kymo,
}

/// Result of one test.
#[derive(Clone, Debug)]
pub struct PerfTestOutcome {
    /// Status: 0 passed, 2 skipped, 124 out of time; `None` if a signal ended it.
    pub status: Option<i32>,
    /// Both outputs, in the order of their lines.
    pub text: String,
}

/// The tests and the programs to run them with.
#[derive(Debug)]
pub struct PerfTests {
    place: tempfile::TempDir,
    scripts: PathBuf,
}

impl PerfTests {
    /// Prepares both programs in a directory below `target`. `None` without the newest perf.
    pub fn new(kymo: &Path) -> io::Result<Option<PerfTests>> {
        let Some(root) = crate::newest_peers() else { return Ok(None) };
        let scripts = root.join("usr/lib/perf-core/tests/shell");
        let Some(target) = root.parent().filter(|_| scripts.is_dir()) else { return Ok(None) };
        // Not in /tmp, which the tests do not see.
        let place = tempfile::tempdir_in(target)?;
        let at = |name: &str| place.path().join(name);
        for directory in ["newest", "kymo", "loader", "link", "workload"] {
            fs::create_dir(at(directory))?;
        }
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        // The task's name is the loader's, and the loaded program must not put its directory, in
        // which the loader is not used, in front of the search path.
        symlink(root.join("usr/lib64/ld-linux-x86-64.so.2"), at("loader/perf"))?;
        symlink(kymo, at("link/perf"))?;
        fs::write(at("workload/inlineloop.c"), INLINE_LOOP)?;
        let gcc = Command::new("gcc")
            .args(["-g", "-O2", "-fno-omit-frame-pointer", "-o", "perf", "inlineloop.c"])
            .current_dir(at("workload"))
            .status()?;
        if !gcc.success() {
            return Err(io::Error::other("gcc cannot compile the workload"));
        }
        let (loader, link, workload) = (at("loader/perf"), at("link/perf"), at("workload/perf"));
        let newest = format!(
            "{} --library-path {1}:{1}/systemd --argv0 perf {2}",
            loader.display(),
            libraries.display(),
            root.join("usr/bin/perf").display()
        );
        let link = link.display();
        for (name, words) in [("newest", newest), ("kymo", link.to_string())] {
            let text = format!(
                "#!/bin/sh\n\
                 if [ \"$1 $2 $3\" = 'test -w inlineloop' ]; then\n\
                 shift 3; exec {} \"$@\"\nfi\n\
                 [ \"$1\" = test ] && exec {link} \"$@\"\n\
                 exec {words} \"$@\"\n",
                workload.display()
            );
            let script = at(name).join("perf");
            fs::write(&script, text)?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        }
        Ok(Some(PerfTests { place, scripts }))
    }

    /// Names of all tests, in order.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.scripts)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.ends_with(".sh") {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Runs one test; after `limit` its process group is killed.
    pub fn run(
        &self,
        name: &str,
        program: PerfProgram,
        limit: Duration,
    ) -> io::Result<PerfTestOutcome> {
        let directory = self.place.path().join(match program {
            PerfProgram::Newest => "newest",
            PerfProgram::Kymo => "kymo",
        });
        let path = std::env::var("PATH").unwrap_or_default();
        let log = self.place.path().join("log");
        let output = fs::File::create(&log)?;
        // It makes a process group of its own, which it ends.
        let mut command = Command::new("timeout");
        command.arg("--kill-after=5").arg(limit.as_secs().max(1).to_string());
        command.args(["unshare", "--mount", "--propagation", "private", "sh", "-c"]);
        command.arg("mount -t tmpfs none /tmp && mkdir /tmp/home && exec bash \"$0\"");
        command.arg(format!("./{name}")).current_dir(&self.scripts);
        command.env("PATH", format!("{}:{path}", directory.display()));
        command.env("HOME", "/tmp/home").env("LC_ALL", "C");
        command.env_remove("PERF_CONFIG").env_remove("TMPDIR");
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let status = command.status()?;
        let text = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
        Ok(PerfTestOutcome { status: status.code(), text })
    }
}
