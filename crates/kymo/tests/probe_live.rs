//! `kymo probe` on the running kernel with probes of programs: added, hit, the
//! values as the program makes them, listed, removed; and nothing left behind
//! when something is refused.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use kymo_testkit::{Need, Outcome, TracingState, perf, require, run};

const C: &str = include_str!("probe_programs/plain.c");
const RUST: &str = include_str!("probe_programs/rusty.rs");

struct Program {
    directory: tempfile::TempDir,
    path: PathBuf,
    group: String,
}

fn kymo(args: &[&str]) -> Outcome {
    let mut all = vec!["probe"];
    all.extend(args);
    run(env!("CARGO_BIN_EXE_kymo"), all)
}

impl Program {
    /// Compiled under a name of its own, so that tests do not meet in one group.
    fn compile(name: &str, compiler: &str, source: &str, text: &str, flags: &[&str]) -> Program {
        let directory = tempfile::tempdir().unwrap();
        let source = directory.path().join(source);
        std::fs::write(&source, text).unwrap();
        let path = directory.path().join(name);
        let made =
            Command::new(compiler).args(flags).arg("-o").arg(&path).arg(&source).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Program { directory, path, group: format!("probe_{name}") }
    }

    fn add(&self, probes: &[&str]) -> Outcome {
        let mut args = vec!["-q", "-x", self.path.to_str().unwrap()];
        for p in probes {
            args.extend(["--add", p]);
        }
        kymo(&args)
    }

    /// Runs it under perf and gives `event: fields` of each hit, as perf shows them.
    fn hits(&self) -> Vec<String> {
        self.hits_shown(|data| perf(["script", "-i", data, "-F", "event,trace"]))
    }

    /// As `hits`; `show` shows the recording.
    fn hits_shown(&self, show: impl Fn(&str) -> Outcome) -> Vec<String> {
        let data = self.directory.path().join("perf.data");
        let data = data.to_str().unwrap();
        let events = format!("{}:*", self.group);
        let _ = perf(["record", "-q", "-e", &events, "-o", data, self.path.to_str().unwrap()])
            .success();
        let shown = show(data).success().stdout;
        let strip = |line: &str| {
            let (event, rest) = line.trim().split_once(": (")?;
            let (_, fields) = rest.split_once(") ")?;
            Some(format!("{}: {fields}", event.trim_end_matches(':').rsplit(':').next()?))
        };
        shown.lines().filter_map(strip).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // What the test has removed already is no failure here.
        let _ = kymo(&["-q", "--del", &format!("{}:*", self.group)]);
    }
}

fn ready() -> bool {
    require(&[Need::Root, Need::Tracefs, Need::PerfEvents, Need::Perf, Need::Gcc])
}

#[test]
fn c_values_are_those_of_the_program() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    for level in ["-O0", "-O2"] {
        let p = Program::compile("livec", "gcc", "plain.c", C, &["-g", level]);
        let _ = p
            .add(&[
                "work o->name:string n msg:string o->in.x bits=o->in.bits more=o->in.more o->arr[2] deep=o->ptr->x global o->text:string",
                "work%return $retval:s32",
                "inl o->arr[3]",
            ])
            .success();
        let hits = p.hits();
        let work = r#"work: name="outer" n=3 msg_string="message" x=1 bits=3 more=4 arr=30 deep=5 global=7 text="hello""#;
        assert!(hits.iter().any(|h| h == work), "{level}: {hits:#?}");
        // work returns 0 + 60 + 9 (inlined copies) + 7 (length of the message).
        assert!(
            hits.iter().any(|h| h.starts_with("work__return") && h.ends_with("arg1=76")),
            "{hits:#?}"
        );
        let inlined = hits.iter().filter(|h| *h == "inl: arr=40").count();
        assert!(inlined >= 3, "{level}: {hits:#?}");
    }
}

#[test]
fn rust_values_are_those_of_the_program() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let flags = |level| ["-g", level, "--crate-name", "rp", "--edition", "2024"];
    let p = Program::compile("liverust", "rustc", "rusty.rs", RUST, &flags("-Copt-level=0"));
    let _ = p
        .add(&[
            "rp::shapes::Point::label self.x prefix self.name",
            "<Point as Area>::area self.y scale",
            "paint c depth depth.Some.0 pair.1 data[1] n=data.length",
            "who name owned",
            "shapes::generic v",
            "rp::main::{closure#0} n",
        ])
        .success();
    let hits = p.hits();
    for expected in [
        r#"label: x=0x3 prefix="point" prefix_len=5 name="origin" name_len=6"#,
        "area: y=0x4 scale=0x2",
        "generic: v=0x5",
        "generic_1: v=0x6",
        "paint: c=0x2 depth_variant=0x1 Some_0=0xb pair_1=0x2 data=0x8 n=0x3",
        r#"who: name="alice" name_len=6 owned="bob" owned_len=4"#,
        "main_closure_0: n=0x1",
    ] {
        assert!(hits.iter().any(|h| h == expected), "{expected}\n{hits:#?}");
    }
    drop(p);
    let p = Program::compile("liverust2", "rustc", "rusty.rs", RUST, &flags("-Copt-level=2"));
    let _ = p
        .add(&[
            "label self.x self.name",
            "area self.x self.y",
            "paint c depth",
            "shapes::generic v",
        ])
        .success();
    let hits = p.hits();
    for expected in [
        r#"label: x=0x3 name="origin" name_len=6"#,
        "area: x=0x3 y=0x4",
        "generic: v=0x5",
        "generic_1: v=0x6",
    ] {
        assert!(hits.iter().any(|h| h == expected), "{expected}\n{hits:#?}");
    }
    assert!(hits.iter().any(|h| h.starts_with("paint: c=0x2 depth_variant=1")), "{hits:#?}");
}

#[test]
fn probes_are_listed_with_lines_and_names() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let p = Program::compile("livelist", "gcc", "plain.c", C, &["-g", "-O2"]);
    let _ = p.add(&["work n msg:string", "work:7", "mine=work%return $retval"]).success();
    let list = kymo(&["--list=probe_livelist:*"]).success().stdout;
    let at = format!("@{}/plain.c in {}", p.directory.path().display(), p.path.display());
    for line in [
        format!("  probe_livelist:work  (on work{at} with n msg_string)"),
        format!("  probe_livelist:work_L7 (on work:7{at})"),
        format!("  probe_livelist:mine__return (on work%return{at} with arg1)"),
    ] {
        assert!(list.contains(&line), "{line}\n{list}");
    }
    // perf says the same of them.
    let theirs = perf(["probe", "-l", "probe_livelist:*"]).success().stdout;
    assert_eq!(list, theirs);
    let _ = p.hits();
    let verbose = kymo(&["-v", "--list=probe_livelist:work"]).success().stdout;
    assert!(verbose.contains("1 hits"), "{verbose}");
}

#[test]
fn names_that_are_taken_are_refused_or_numbered() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let p = Program::compile("livename", "gcc", "plain.c", C, &["-g", "-O2"]);
    let path = p.path.to_str().unwrap();
    let _ = kymo(&["-x", path, "work"]).success();
    let refused = kymo(&["-x", path, "work"]).failure();
    assert!(
        refused.stderr.contains("probe_livename:work exists") && refused.stderr.contains("--force"),
        "{}",
        refused.stderr
    );
    assert!(kymo(&["-x", path, "-f", "work"]).success().stdout.contains("probe_livename:work_1"));
    assert!(kymo(&["-n", "--del", "probe_livename:*"]).success().stdout.contains("Would remove"));
    assert_eq!(kymo(&["--list=probe_livename:*"]).success().stdout.lines().count(), 2);
    let removed = kymo(&["--del", "probe_livename:work*"]).success().stdout;
    assert_eq!(
        removed,
        "Removed event: probe_livename:work\nRemoved event: probe_livename:work_1\n"
    );
    let none = kymo(&["--del", "probe_livename:*"]).failure();
    assert!(none.stderr.contains("matches no probe"), "{}", none.stderr);
}

#[test]
fn nothing_is_left_of_an_addition_that_fails() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let p = Program::compile("livefail", "gcc", "plain.c", C, &["-g", "-O2"]);
    // The second is refused by the kernel: there is no such register.
    let failed = p.add(&["work n", "second=main %nosuch"]).failure();
    assert!(
        failed.stderr.contains("the kernel refused") && failed.stderr.contains('^'),
        "{}",
        failed.stderr
    );
    assert_eq!(kymo(&["--list=probe_livefail:*"]).success().stdout, "");
    // A register holds no text.
    let failed = p.add(&["text=main %di:string"]).failure();
    assert!(failed.stderr.contains("-> the text that a register points to is +0(%REG):string"));
    assert_eq!(kymo(&["--list=probe_livefail:*"]).success().stdout, "");
    let path = p.path.to_str().unwrap();
    let dry = kymo(&["-n", "-x", path, "work n"]).success().stdout;
    assert!(dry.contains("p:probe_livefail/work") && dry.contains("Would add"), "{dry}");
    assert_eq!(kymo(&["--list=probe_livefail:*"]).success().stdout, "");
    // The kernel's own syntax goes through as it is.
    let offset = kymo(&["-q", "-x", path, "-D", "work"]).success().stdout;
    let place = offset.trim().rsplit(' ').next().unwrap().to_owned();
    let _ = kymo(&["-q", &format!("p:probe_livefail/raw {place} n=%si:s32")]).success();
    assert_eq!(p.hits(), ["raw: n=3"]);
    let _ = kymo(&["-q", "--add", "-:probe_livefail/raw"]).success();
    assert_eq!(kymo(&["--list=probe_livefail:*"]).success().stdout, "");
}

/// perf shows spans of no bytes, too: `[0-7,7-7]` → `[0-7]`.
fn without_empty_spans(line: &str) -> String {
    let Some((head, spans)) = line.split_once("+[") else { return line.to_owned() };
    let spans = spans.trim_end_matches("]>");
    let full = |s: &&str| s.split_once('-').is_none_or(|(a, b)| a != b);
    let spans: Vec<&str> = spans.split(',').filter(full).collect();
    format!("{head}+[{}]>", spans.join(","))
}

#[test]
fn lines_and_variables_are_those_that_perf_shows() {
    if !ready() {
        return;
    }
    for level in ["-O0", "-O2"] {
        let p = Program::compile("liveshow", "gcc", "plain.c", C, &["-g", level]);
        let path = p.path.to_str().unwrap();
        let requests: &[&[&str]] = &[
            &["-L", "work"],
            &["-L", "work:2+3"],
            &["-L", "work:0-9"],
            &["-L", "plain.c:15-20"],
            &["-L", "plain.c"],
            &["-L", "inl"],
            &["-L", "other"],
            &["-L", "main"],
            &["-V", "work"],
            &["-V", "work:5"],
            &["-V", "work:5", "--range"],
            &["-V", "work", "--externs"],
            &["-V", "work", "--externs", "--filter", "!c* & *n*"],
            &["-V", "main", "--range", "--externs"],
            &["-F", "w*"],
            &["-F", "*in | wor?"],
        ];
        for request in requests {
            let with = |first: &[&str]| {
                let mut all: Vec<String> = first.iter().map(|s| (*s).to_owned()).collect();
                all.extend(request.iter().map(|s| (*s).to_owned()));
                all
            };
            let theirs = perf(with(&["probe", "-x", path])).success().stdout;
            let ours =
                run(env!("CARGO_BIN_EXE_kymo"), with(&["probe", "-x", path])).success().stdout;
            if level == "-O2" && request[0] == "-V" {
                // perf passes over variables whose value is a constant there.
                let shown =
                    |text: &str| text.lines().map(without_empty_spans).collect::<BTreeSet<_>>();
                let more: Vec<String> = shown(&ours).difference(&shown(&theirs)).cloned().collect();
                assert!(shown(&theirs).is_subset(&shown(&ours)), "{request:?}\n{ours}\n{theirs}");
                assert!(more.iter().all(|l| l.contains("int\t")), "{request:?}: {more:?}");
                continue;
            }
            assert_eq!(ours, theirs, "{level} {request:?}");
        }
    }
}

const LOOP: &str = r#"
#include <unistd.h>
__attribute__((noinline)) int step(int i) { __asm__ volatile(""); return i + 1; }
__attribute__((noinline)) long leaf(long a) { __asm__ volatile("nop; .byte 0x0f,0x1f,0x44,0,0"); return a * 3; }
int main(void) { int n = 0; for (int i = 0; i < 40000; i++) { n = step(n); usleep(10000); } return leaf(n) == 7; }
"#;

#[test]
fn places_are_judged_before_they_are_armed() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let p = Program::compile("livejudge", "gcc", "loop.c", LOOP, &["-g", "-O1"]);
    let path = p.path.to_str().unwrap();
    // nop, nop5, …: inside of an instruction, and on the nop5 of a leaf function.
    let inside = kymo(&["-x", path, "leaf+2"]).failure().stderr;
    assert!(
        inside.contains("middle of an instruction") && inside.contains("leaf+1 and leaf+6"),
        "{inside}"
    );
    let nop5 = kymo(&["-x", path, "leaf+1"]).failure().stderr;
    assert!(nop5.contains("a nop of 5 bytes") && nop5.contains("leaf+6"), "{nop5}");
    assert_eq!(kymo(&["--list=probe_livejudge:*"]).success().stdout, "");
    let forced = kymo(&["-n", "-f", "-x", path, "leaf+1"]).success().stderr;
    assert!(forced.contains("hazard"), "{forced}");
    let mut running = Command::new(&p.path).spawn().unwrap();
    let flight = kymo(&["-x", path, "--preflight", "1", "step i"]).success().stdout;
    running.kill().unwrap();
    running.wait().unwrap();
    let rate = flight
        .lines()
        .find_map(|l| l.strip_prefix("Preflight: probe_livejudge:step is hit "))
        .unwrap();
    let rate: f64 = rate.split(' ').next().unwrap().parse().unwrap();
    // It calls step at most a hundred times a second, less on a busy machine.
    assert!(rate > 0.0 && rate <= 105.0, "{flight}");
}

#[test]
fn mistakes_are_explained() {
    if !ready() {
        return;
    }
    let p = Program::compile("livewrong", "gcc", "plain.c", C, &["-O2"]);
    let path = p.path.to_str().unwrap();
    let caret = kymo(&["-x", path, "-D", "work:x3 n"]).failure().stderr;
    assert!(caret.contains("  work:x3 n\n       ^^"), "{caret}");
    let bare = kymo(&["-x", path, "-D", "work n"]).failure().stderr;
    assert!(bare.contains("no debugging information") && bare.contains("-g"), "{bare}");
    // Without debugging information the symbol table still knows functions.
    assert!(
        kymo(&["-x", path, "-D", "work %di"])
            .success()
            .stdout
            .starts_with("p:probe_livewrong/work ")
    );
    let missing = kymo(&["-x", path, "-D", "wrk"]).failure().stderr;
    assert!(missing.contains("no function wrk"), "{missing}");
    let file = kymo(&["-x", "/nonexistent/x", "-D", "main"]).failure().stderr;
    assert!(file.contains("/nonexistent/x"), "{file}");
    let text = kymo(&["-x", "/etc/passwd", "-D", "main"]).failure().stderr;
    assert!(text.contains("not a usable ELF file"), "{text}");
    let nothing = kymo(&[]).failure().stderr;
    assert!(nothing.contains("nothing to do"), "{nothing}");
}

#[test]
fn a_program_in_a_mount_namespace() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let p = Program::compile("livespace", "gcc", "loop.c", LOOP, &["-g", "-O1"]);
    let inner = p.directory.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    // Only the process and its children see what is mounted there.
    let script =
        "mount -t tmpfs none $1 && cp $2 $1/hidden && ln -s $1/hidden $1/link && exec $1/hidden";
    let mut running = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .args([&inner, &p.path])
        .spawn()
        .unwrap();
    let pid = running.id().to_string();
    let exe = format!("/proc/{pid}/exe");
    let is_up = || std::fs::read_link(&exe).is_ok_and(|e| e.ends_with("hidden"));
    for _ in 0..1000 {
        if is_up() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let link = inner.join("link");
    let link = link.to_str().unwrap();
    assert!(!inner.join("hidden").exists());
    let here = kymo(&["-x", link, "step i"]).failure().stderr;
    let added = kymo(&["--target-ns", &pid, "-x", link, "step i"]).success().stdout;
    let flight = kymo(&["--target-ns", &pid, "-x", link, "--preflight", "1", "again=step i"]);
    let list = kymo(&["--list=probe_hidden:*"]).success().stdout;
    let _ = kymo(&["-q", "--del", "probe_hidden:*"]).success();
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(here.contains("No such file"), "{here}");
    assert!(added.contains("probe_hidden:step "), "{added}");
    let place = format!("(on step@{}/loop.c in /proc/{pid}/root", p.directory.path().display());
    assert!(list.contains(&place) && list.contains("with i)"), "{list}");
    let rate = flight.success().stdout;
    assert!(rate.contains(" times a second") && !rate.contains("hit 0.0 times"), "{rate}");
}

#[test]
fn who_uses_a_probe_and_whether_its_file_is_still_there_is_said() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    let p = Program::compile("liveused", "gcc", "loop.c", LOOP, &["-g", "-O1"]);
    let _ = p.add(&["step i"]).success();
    let mut holder = Command::new("perf")
        .args(["record", "-q", "-e", "probe_liveused:step", "-o"])
        .arg(p.directory.path().join("perf.data"))
        .args(["--", "sleep", "60"])
        .spawn()
        .unwrap();
    let directory = format!("/proc/{}/fd", holder.id());
    let is_open = || {
        let files = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let mut links = files.filter_map(|f| std::fs::read_link(f.path()).ok());
        links.any(|l| l.as_os_str() == "anon_inode:[perf_event]")
    };
    for _ in 0..1000 {
        if is_open() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // It may have opened others first, to see what the kernel can do.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let busy = kymo(&["--del", "probe_liveused:*"]);
    let _ = run("kill", ["-INT", &holder.id().to_string()]);
    holder.wait().unwrap();
    let busy = busy.failure().stderr;
    assert!(
        busy.contains("probe_liveused:step: it is in use as a perf event")
            && busy.contains(&format!("perf (process {})", holder.id())),
        "{busy}"
    );
    let instance = std::path::Path::new("/sys/kernel/tracing/instances/liveused-test");
    std::fs::create_dir(instance).unwrap();
    let enable = instance.join("events/probe_liveused/step/enable");
    std::fs::write(&enable, "1").unwrap();
    let busy = kymo(&["--del", "probe_liveused:*"]);
    let used = kymo(&["-v", "--list=probe_liveused:*"]);
    std::fs::write(&enable, "0").unwrap();
    std::fs::remove_dir(instance).unwrap();
    let busy = busy.failure().stderr;
    assert!(busy.contains("it is in use by trace instance liveused-test"), "{busy}");
    let used = used.success().stdout;
    assert!(used.contains("in use by trace instance liveused-test"), "{used}");
    assert!(!used.contains("was replaced"), "{used}");
    // Another file takes the program's name.
    let other = p.directory.path().join("other");
    std::fs::copy(&p.path, &other).unwrap();
    std::fs::rename(&other, &p.path).unwrap();
    let list = kymo(&["--list=probe_liveused:*"]).success().stdout;
    assert!(list.contains("the file was replaced since"), "{list}");
    let many = kymo(&["-x", p.path.to_str().unwrap(), "-n", "--max-probes", "1", "*e*"]);
    assert!(many.failure().stderr.contains("more than 1 probe point"));
}

/// Values of types that fetch arguments have, and of some that they do not have.
const TYPES: &str = r#"
#include <string.h>
struct bits { unsigned a : 3; int b : 5; };
struct in { short s; char name[12]; int arr[4]; double dbl; };
enum color { RED = 1, BLUE = -3 };
struct node { struct bits bits; struct in in; int *ip; int mat[2][3]; long long big[2]; enum color col; };
static volatile int sink;
__attribute__((noinline)) int take(struct node *n, int m, struct node *o) {
    __asm__ volatile("" : : "r"(n), "r"(o) : "memory");
    sink += m + n->mat[1][2] + o->mat[0][0];
    return m - 3000;
}
__attribute__((noinline)) unsigned char narrow(int x) { sink += x; return x; }
__attribute__((noinline)) double real(int x) { sink += x; return x; }
int main(void) {
    static int behind = -7;
    struct node n;
    memset(&n, 0, sizeof n);
    n.bits.a = 5; n.bits.b = -2; n.in.s = -9; strcpy(n.in.name, "inner"); n.in.dbl = 1.5;
    for (int i = 0; i < 4; i++) n.in.arr[i] = i * 10 - 5;
    for (int i = 0; i < 6; i++) n.mat[i / 3][i % 3] = i - 3;
    n.ip = &behind; n.big[0] = -1; n.big[1] = 1LL << 40; n.col = BLUE;
    __asm__ volatile("" : : "r"(&n) : "memory");
    sink += take(&n, 1, &n) + narrow(-2) + (int)real(3);
    return 0;
}
"#;

#[test]
fn values_are_those_of_their_types_or_refused() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    for level in ["-O0", "-O2"] {
        let p = Program::compile("livetypes", "gcc", "types.c", TYPES, &["-g", level]);
        let _ = p
            .add(&[
                "take n->bits.a n->in.arr n->mat[1][2] row=n->mat[0] *n->ip n->big n->col n->in.s",
                "two=take m o->mat[0][0] n->mat[1][0]",
                "take%return r=$retval",
                "narrow%return r=$retval",
            ])
            .success();
        // perf 6.1 shows elements of arrays as 0 and numbers of 16 bits without their sign.
        let hits = p.hits_shown(|data| run(env!("CARGO_BIN_EXE_kymo"), ["script", "-i", data]));
        for expected in [
            "take: a=5 arr={-5,5,15,25} mat=2 row={-3,-2,-1} ip=-7 \
             big={-1,1099511627776} col=-3 s=-9",
            "two: m=1 mat=-3 mat_2=0",
            "take__return: r=-2999",
            "narrow__return: r=0xfe",
        ] {
            assert!(hits.iter().any(|h| h == expected), "{level}: {expected}\n{hits:#?}");
        }
        for (probe, why) in [
            ("take n->bits.b", "is a signed bit field of 5 bits"),
            ("take n->in.dbl", "is a floating-point number"),
            ("take n->in", "select a field (s, name, arr, dbl)"),
            ("take n->in.name", "n->in.name:string"),
            ("take n->mat", "select a row"),
            ("real%return $retval", "returns double"),
        ] {
            let refused = p.add(&[&format!("refused={probe}")]);
            assert!(refused.status != 0 && refused.stderr.contains(why), "{}", refused.stderr);
        }
    }
}

#[test]
fn texts_of_rust_end_where_they_do() {
    if !ready() {
        return;
    }
    let _state = TracingState::take();
    // No NUL is after a text: what follows in memory is of others.
    let source = r#"
        #[inline(never)] pub fn take(text: &str) { std::hint::black_box(text); }
        fn main() {
            let all = String::from("first)second\x07third");
            take(&all[..5]);
            take(&all[6..12]);
        }
    "#;
    let flags = ["-g", "-Copt-level=1", "--crate-name", "ends", "--edition", "2024"];
    let p = Program::compile("ends", "rustc", "ends.rs", source, &flags);
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("perf.data");
    let (data, path) = (data.to_str().unwrap(), p.path.to_str().unwrap());
    let probe = format!("{path} take text");
    let record = ["record", "-q", "-o", data, "--probe", &probe, "--", path];
    let _ = run(env!("CARGO_BIN_EXE_kymo"), record).success();
    let shown = run(env!("CARGO_BIN_EXE_kymo"), ["script", "-i", data]).success().stdout;
    for expected in [r#"text="first" text_len=5"#, r#"text="second" text_len=6"#] {
        assert!(shown.contains(expected), "{shown}");
    }
    let objects =
        run(env!("CARGO_BIN_EXE_kymo"), ["script", "-i", data, "--json"]).success().stdout;
    assert!(objects.contains(r#""text":"second","text_len":6"#), "{objects}");
}
