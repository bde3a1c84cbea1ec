//! Programs in containers: another root, other mounts and other process numbers. Their code has
//! names while they live and when they have gone.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};

use kymo_testkit::{Need, Outcome, Workload, require};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

/// Burns processor time in a function of its own and in one that it wrote itself, whose name is in
/// the map of a just-in-time compiler; then waits for the command to end.
const BUSY: &str = r#"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
__attribute__((noinline)) long burn_in_container(long n) {
    long sum = 0;
    for (long i = 0; i < n; i++) { sum += i * i; __asm__ volatile("" : "+r"(sum)); }
    return sum;
}
int main(void) {
    /* mov rax, rdi; 1: dec rax; jnz 1b; ret */
    static const unsigned char code[] = { 0x48, 0x89, 0xf8, 0x48, 0xff, 0xc8, 0x75, 0xfb, 0xc3 };
    void *made = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(made, code, sizeof code);
    char name[64];
    snprintf(name, sizeof name, "/tmp/perf-%d.map", getpid());
    FILE *map = fopen(name, "w");
    fprintf(map, "%lx %x made_in_container\n", (long)made, (int)sizeof code);
    fclose(map);
    for (int i = 0; i < 20; i++) {
        burn_in_container(20000000);
        ((long (*)(long))made)(20000000);
    }
    FILE *done = fopen("/tmp/done", "w");
    fclose(done);
    for (int i = 0; i < 3000 && access("/tmp/end", F_OK); i++) usleep(10000);
    return 0;
}
"#;

/// A root directory with the program, its libraries and `/tmp`, and a file that is made when the
/// program has done its work.
struct Container {
    work: Workload,
    root: PathBuf,
    cache: PathBuf,
}

impl Container {
    fn new() -> Container {
        let work = Workload::compile("busy_inside", BUSY);
        let [root, cache] = ["root", "cache"].map(|name| PathBuf::from(work.file(name)));
        for directory in ["tmp", "old", "proc", "opt"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        let libraries = kymo_testkit::run("ldd", [work.arg()]).success().stdout;
        let paths = libraries.split_whitespace().filter(|word| word.starts_with('/'));
        for path in paths.map(Path::new) {
            let inside = root.join(path.strip_prefix("/").unwrap());
            std::fs::create_dir_all(inside.parent().unwrap()).unwrap();
            std::fs::copy(path, inside).unwrap();
        }
        std::fs::rename(work.arg(), root.join("opt/busy_inside")).unwrap();
        Container { work, root, cache }
    }

    /// Command that runs it in a root of its own, as process 1 (as `unshare` starts it).
    fn command(&self) -> Vec<String> {
        let root = self.root.display();
        let script = format!(
            "mount --bind {root} {root} && cd {root} && pivot_root . old && exec /opt/busy_inside"
        );
        ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", &script]
            .map(str::to_owned)
            .to_vec()
    }

    fn kymo(&self, args: &[&str]) -> Outcome {
        // The cache of the user is not the test's.
        let home = format!("HOME={}", self.cache.display());
        kymo_testkit::run("env", [&[home.as_str(), KYMO], args].concat())
    }
}

fn begin() -> Option<Container> {
    let needs = [Need::Root, Need::PerfEvents, Need::Gcc, Need::Tool("unshare")];
    require(&needs).then(Container::new)
}

#[test]
fn code_of_a_container_has_names_when_it_has_gone() {
    let Some(container) = begin() else { return };
    std::fs::write(container.root.join("tmp/end"), "").unwrap();
    let recording = container.work.file("data");
    let data = recording.as_str();
    let command = container.command();
    let record = ["record", "-F", "999", "--call-graph", "dwarf", "-o", data, "--"];
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let out = container.kymo(&[&record[..], &command].concat()).success();
    // The program, and the map of what it made.
    assert!(out.stderr.contains("2 files of containers copied to"), "{out:?}");
    // Nothing is left of it.
    std::fs::remove_dir_all(&container.root).unwrap();
    let all = container.kymo(&["report", "-i", data, "-s", "sym", "-t", ","]);
    assert!(all.stdout.contains("made_in_container"), "{all:?}");
    let ids = container.kymo(&["buildid-list", "-i", data]).success().stdout;
    let map = ids.lines().find(|line| line.contains(" /tmp/perf-")).unwrap();
    assert_eq!(map.split(' ').next().unwrap().len(), 40, "{map}");
    let out = container.kymo(&[
        "report",
        "-i",
        data,
        "--comm",
        "busy_inside",
        "-s",
        "dso,sym",
        "-g",
        "none",
    ]);
    assert!(out.stdout.contains("burn_in_container"), "{out:?}");
    let callers = container.kymo(&["script", "-i", data, "-F", "comm,ip,sym"]).success().stdout;
    // Unwound by the call frame information of the container's own files.
    let stacks = callers.split("\n\n").filter(|stack| stack.contains("burn_in_container"));
    let (mut whole, mut all) = (0, 0);
    for stack in stacks {
        all += 1;
        whole += usize::from(stack.contains(" main") && stack.contains("_start"));
    }
    assert!(all > 10 && whole * 10 >= all * 9, "{whole} of {all}\n{callers}");
}

#[test]
fn code_of_a_container_has_names_while_it_lives() {
    let Some(container) = begin() else { return };
    let command = container.command();
    let mut child = std::process::Command::new(&command[0]).args(&command[1..]).spawn().unwrap();
    let done = container.root.join("tmp/done");
    // The program within the new namespace is a child of the child.
    let pid = (0..3000).find_map(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        let children = format!("/proc/{0}/task/{0}/children", child.id());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        let inside = children.split_whitespace().next()?.to_owned();
        let name = std::fs::read_to_string(format!("/proc/{inside}/comm")).ok()?;
        (name.trim() == "busy_inside").then_some(inside)
    });
    let recording = container.work.file("data");
    let data = recording.as_str();
    let pid = pid.unwrap();
    // What is read was recorded while it was busy; the limit is for a machine that is, too.
    let out = container.kymo(&[
        "record",
        "-N",
        "-F",
        "999",
        "-p",
        &pid,
        "-o",
        data,
        "--",
        "sh",
        "-c",
        &format!("while ! [ -e {} ]; do sleep 0.05; done", done.display()),
    ]);
    let report = container.kymo(&["report", "-i", data, "-s", "dso,sym"]);
    let all = container.kymo(&["report", "-i", data, "-s", "sym", "-t", ","]);
    std::fs::write(container.root.join("tmp/end"), "").unwrap();
    child.wait().unwrap();
    assert!(report.stdout.contains("burn_in_container"), "{out:?} {report:?}");
    assert!(all.stdout.contains("made_in_container"), "{all:?}");
}
