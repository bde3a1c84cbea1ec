//! `kymo run` on programs of Rust and C++: variables have the types of the debugging information.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::path::PathBuf;
use std::process::Command;

use kymo_testkit::{Need, Outcome, peer, require, run, run_command};

const KYMO: &str = env!("CARGO_BIN_EXE_kymo");

const RUST: &str = r#"use std::hint::black_box;
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Color { Red = 1, Green = 5 }
pub enum Shape { Circle { radius: u32 }, Square(u64, u16), Empty }
pub struct Order { id: u32, name: String, color: Color, sizes: Vec<u16> }
#[inline(never)]
pub fn take(order: &Order, label: &str, shape: Shape, maybe: Option<String>, n: i16) -> usize {
    black_box((order, label, &shape, &maybe));
    n as usize
}
#[inline(always)]
fn add(left: u64, right: u64) -> u64 {
    black_box(left * 3 + right)
}
fn main() {
    for i in 0..3u16 {
        let color = if i % 2 == 0 { Color::Red } else { Color::Green };
        let order = Order { id: i.into(), name: format!("order {i}"), color, sizes: vec![7, i] };
        let shape = match i {
            0 => Shape::Circle { radius: 40 },
            1 => Shape::Square(50, 3),
            _ => Shape::Empty,
        };
        let maybe = if i == 1 { Some(format!("maybe {i}")) } else { None };
        black_box(take(&order, "a label", shape, maybe, -(i as i16)));
        black_box(add(i.into(), 5));
        black_box(add(i.into(), 6));
        black_box((order.id, &order.sizes, order.color as u8));
    }
}
"#;

const CPP: &str = r#"#include <string>
#include <vector>
enum class Kind { Short = 3, Long = 9 };
struct Base { int number; };
struct Book : Base {
  std::string title;
  unsigned flags : 3;
  unsigned rest : 5;
  std::vector<int> pages;
  char code[8];
};
__attribute__((noinline)) long take(const Book &book, const std::string &by, Kind kind, long n) {
  asm volatile("" : "+r"(n) : "r"(&book), "r"(&by) : "memory");
  return n + (long)kind;
}
int main() {
  long sum = 0;
  for (int i = 0; i < 3; i++) {
    Book book{{i}, "title " + std::to_string(i), (unsigned)i, 9, {1, i}, "code"};
    sum += take(book, "someone", i % 2 ? Kind::Long : Kind::Short, i * 100);
  }
  return sum == 0;
}
"#;

struct TypedProgram {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl TypedProgram {
    fn compile(compiler: &str, file: &str, source: &str, flags: &[&str]) -> TypedProgram {
        let dir = tempfile::tempdir().unwrap();
        let (code, path) = (dir.path().join(file), dir.path().join("program"));
        std::fs::write(&code, source).unwrap();
        let mut command = Command::new(compiler);
        command.args(flags).arg("-o").args([&path, &code]);
        let _ = run_command(command).success();
        TypedProgram { _dir: dir, path }
    }

    fn run(&self, probe: &str, body: &str) -> Outcome {
        let path = self.path.to_str().unwrap();
        let text = format!("uprobe:{path}:{probe} {{ {body} }}");
        run(KYMO, ["run", "-q", "-e", &text, "-c", path])
    }
}

#[track_caller]
fn prints(o: Outcome, expected: &[&str]) {
    let o = o.success();
    let lines: Vec<&str> = o.stdout.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, expected, "{}", o.stderr);
}

#[test]
fn values_of_rust_have_their_types() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let p = TypedProgram::compile("rustc", "shapes.rs", RUST, &["-g"]);
    let body = "printf(\"%d [%s] %s [%s] %d\\n\", args.order.id, args.order.name, \
                args.order.color, args.label, args.n);";
    let lines = [
        "0 [order 0] Red [a label] 0",
        "1 [order 1] Green [a label] -1",
        "2 [order 2] Red [a label] -2",
    ];
    prints(p.run("shapes::take", body), &lines);
    let body = "print((args.shape, args.maybe, args.order.sizes.len, args.order.sizes.ptr[1]));";
    let lines = ["(Circle, None, 2, 0)", "(Square, Some, 2, 1)", "(Empty, None, 2, 2)"];
    prints(p.run("shapes::take", body), &lines);
    let body = "print((args.order.sizes[1], args.order.sizes[args.order.id * 100]));";
    let o = p.run("shapes::take", body);
    assert!(o.stderr.contains("2 reads"), "{}", o.stderr);
    let lines: Vec<String> =
        o.stdout.lines().map(str::to_owned).filter(|l| !l.is_empty()).collect();
    assert!(lines[1..] == ["(1, 0)", "(2, 0)"], "{lines:?}");
    let body =
        "if (args.order.color == Green) { print(args.shape.Square.0); print(args.maybe.Some.0); }";
    prints(p.run("shapes::take", body), &["50", "maybe 1"]);
}

#[test]
fn lines_inside_inlined_functions_have_variables() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let p = TypedProgram::compile("rustc", "shapes.rs", RUST, &["-g"]);
    let o =
        p.run("shapes.rs:14", "@[args.right] = hist(args.left); @sum = sum(args.left);").success();
    for expected in
        ["@[5]:\n[0]                    1 |", "@[6]:\n[0]                    1 |", "@sum: 6\n"]
    {
        assert!(o.stdout.contains(expected), "{expected}: {}\n{}", o.stdout, o.stderr);
    }
    // Each copy is a place of its own; there is no function to attach to.
    prints(p.run("shapes::add", "@ = count();"), &["@: 6"]);
    let o = p.run("shapes.rs:14", "print(args.rigth);").failure();
    assert!(o.stderr.contains("no variable rigth here; there are"), "{}", o.stderr);
    let o = p.run("shapes.rs:1000", "print(1);").failure();
    assert!(o.stderr.contains("nothing found for shapes.rs:1000"), "{}", o.stderr);
}

#[test]
fn values_of_cpp_have_their_types() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    for level in ["-O0", "-O2"] {
        let p = TypedProgram::compile("g++", "book.cpp", CPP, &["-g", level]);
        let body = "printf(\"%d [%s] [%s] %s %d %d %s %d\\n\", args.n, args.book.title, args.by, \
                    args.kind, args.book.number, args.book.rest, args.book.code, \
                    args.book.pages[1]);";
        let lines = [
            "0 [title 0] [someone] Short 0 9 code 0",
            "100 [title 1] [someone] Long 1 9 code 1",
            "200 [title 2] [someone] Short 2 9 code 2",
        ];
        prints(p.run("take", body), &lines);
        prints(p.run("take", "if (args.kind == Long) { print(args.book.flags); }"), &["1"]);
        prints(
            p.run("take", "$n = args.n / 100; print(args.book.pages[0] + $n);"),
            &["1", "2", "3"],
        );
        // Behind the last one is nothing.
        let o = p.run("take", "print(args.book.pages[2]);");
        assert!(o.stderr.contains("3 reads"), "{}", o.stderr);
        prints(o, &["0", "0", "0"]);
        if level == "-O0" {
            prints(
                p.run("book.cpp:15", "@[args.n] = count();"),
                &["@[0]: 1", "@[100]: 1", "@[200]: 1"],
            );
        }
    }
}

const C: &str = r#"enum color { RED = 2, GREEN = 3 };
struct pair { enum color first; enum color both[2]; int number; };
static struct pair pair = {GREEN, {RED, GREEN}, 41};
__attribute__((noinline)) int take(struct pair *pair, int k) { return pair->number + k; }
int main(void) { return take(&pair, 1) != 42; }
"#;

#[test]
fn structures_of_c_are_printed_with_the_names_of_their_values() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let p = TypedProgram::compile("gcc", "pair.c", C, &["-g", "-O0", "-no-pie"]);
    let whole = "{ .first = GREEN, .both = [RED,GREEN], .number = 41 }";
    prints(p.run("take", "print(*args.pair);"), &[whole]);
    // Types that only the program has; those of the kernel are not asked for them.
    prints(p.run("take", "print(*(struct pair *)arg0);"), &[whole]);
    prints(
        p.run("take", "$p = (struct pair *)arg0; print(($p->number, sizeof(*$p)));"),
        &["(41, 16)"],
    );
    prints(
        p.run("take", "$p = (struct pair *)arg0; print(buf($p->both));"),
        &[r"\x02\x00\x00\x00\x03\x00\x00\x00"],
    );
    let address = p.run("take", "printf(\"%p\\n\", args.pair);").success().stdout;
    let all = format!("{{ .pair = {}, .k = 1 }}", address.trim());
    prints(p.run("take", "print(args);"), &[&all]);
    prints(p.run("take", "@[args] = count();"), &[&format!("@[{all}]: 1")]);
    // bpftrace 0.27 has the same, but for the names, which it knows of declared types alone.
    let theirs = peer("bpftrace");
    if theirs.is_newest() {
        let path = p.path.to_str().unwrap();
        let text = format!("uprobe:{path}:take {{ print(args); print(*args.pair); }}");
        let o = theirs.run(["-q", "--no-warnings", "-e", &text, "-c", path]).success();
        let numbers = "{ .first = 3, .both = [2,3], .number = 41 }";
        assert_eq!(o.stdout.trim(), format!("{all}\n{numbers}"));
    }
    let o = p.run("take", "print((struct nowhere *)arg0->x);").failure();
    assert!(!o.stderr.contains("panicked"), "{}", o.stderr);
}

const WIDE_NUMBERS: &str = r#"
__attribute__((noinline)) int take(int a, __int128 q, double d, float f, long n) {
    return a + (int)q + (int)d + (int)f + (int)n;
}
int main(void) { return take(3, ((__int128)320 << 64) + 16, 2.5, 0.25, -4) != 17; }
"#;

#[test]
fn all_numbers_among_the_arguments_are_printed() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let p = TypedProgram::compile("gcc", "numbers.c", WIDE_NUMBERS, &["-g", "-O0"]);
    let all = "{ .a = 3, .q = 5902958103587056517136, .d = 2.5, .f = 0.25, .n = -4 }";
    prints(p.run("take", "print(args);"), &[all]);
    // In the registers of vectors, which probes do not see.
    let p = TypedProgram::compile("gcc", "numbers.c", WIDE_NUMBERS, &["-g", "-O1"]);
    let o = p.run("take", "print(args);");
    assert!(o.stderr.contains("left out of args: d: "), "{}", o.stderr);
    let args = o.success().stdout;
    assert!(args.contains(".a = 3") && args.contains(".n = -4") && !args.contains(".d"), "{args}");
}

#[test]
fn the_entry_and_what_is_behind_it_are_not_mixed() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let p = TypedProgram::compile("g++", "book.cpp", CPP, &["-g", "-O0"]);
    let o = p.run("take", "print((arg3, args.n));").failure();
    assert!(o.stderr.contains("argN is valid at a function's entry"), "{}", o.stderr);
    let bare = TypedProgram::compile("g++", "book.cpp", CPP, &["-O2", "-s"]);
    let o = bare.run("main", "print(args.n);").failure();
    assert!(!o.stderr.contains("panicked"), "{}", o.stderr);
}

const NUMBERS: &str = r#"#include <string>
struct Numbers {
  double d;
  float f;
  __int128 wide;
  unsigned __int128 natural;
  std::string text;
  union { long whole; short part; };
  struct { int left : 4; unsigned right : 5; };
};
extern "C" {
__attribute__((noinline)) void take(Numbers *n) { asm volatile("" ::"r"(n) : "memory"); }
__attribute__((noinline)) int pass(int n) { asm volatile("" : "+r"(n)); return n; }
__attribute__((noinline)) long pass_long(long n) { asm volatile("" : "+r"(n)); return n; }
static int plain(void) { return 1; }
int (*choose_chosen(void))(void) { return plain; }
__attribute__((ifunc("choose_chosen"))) int chosen(void);
int __chosen_plain(void) { return 2; }
}
int main() {
  Numbers a{1.5, 2.25f, (__int128)1 << 70, ~(unsigned __int128)0, std::string(44, 'x'), {7}, {-3, 17}};
  Numbers b{-1e300, 1e-10f, -5, 0, "short", {0x10002}, {7, 31}};
  take(&a);
  take(&b);
  long sum = 0;
  for (long n : {-11L, 120L, -1L, 32L}) sum += pass(n) + pass_long(n);
  return sum == 280 ? chosen() - 1 : 1;
}
"#;

#[test]
fn numbers_that_no_register_holds_are_printed() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let p = TypedProgram::compile("g++", "numbers.cpp", NUMBERS, &["-g", "-O1", "-no-pie"]);
    prints(p.run("take", "print(args.n->d);"), &["1.5", "-1e300"]);
    prints(p.run("take", "$f = args.n->f; print(($f, 1));"), &["(2.25, 1)", "(1e-10, 1)"]);
    prints(p.run("take", "print(args.n->wide);"), &["1180591620717411303424", "-5"]);
    prints(
        p.run("take", "printf(\"%s\\n\", args.n->natural);"),
        &["340282366920938463463374607431768211455", "0"],
    );
    prints(p.run("take", "@[args.n->d] = count();"), &["@[-1e300]: 1", "@[1.5]: 1"]);
    // Members of what has no name are the record's own; a text that was not read is not empty.
    let o = p.run("take", "print(*args.n);").success();
    let known = "{ .d = 1.5, .f = 2.25, .wide = 1180591620717411303424, \
                 .natural = 340282366920938463463374607431768211455, .text = <44 bytes at 0x";
    assert!(o.stdout.contains(known), "{}", o.stdout);
    let rest = ">, .whole = 7, .part = 7, .left = -3, .right = 17 }";
    assert!(o.stdout.contains(rest), "{}", o.stdout);
    assert!(o.stdout.contains(".text = <5 bytes at 0x"), "{}", o.stdout);
    let o = p.run("take", "print((int64)args.n->d);").failure();
    assert!(o.stderr.contains("expected a number, found floating-point number"), "{}", o.stderr);
}

#[test]
fn numbers_that_functions_return_have_their_sign() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let p = TypedProgram::compile("g++", "numbers.cpp", NUMBERS, &["-g", "-O1", "-no-pie"]);
    let path = p.path.to_str().unwrap();
    for function in ["pass", "pass_long"] {
        let text = format!("uretprobe:{path}:{function} /retval < 0/ {{ @[retval] = count(); }}");
        let o = run(KYMO, ["run", "-q", "-e", &text, "-c", path]);
        prints(o, &["@[-11]: 1", "@[-1]: 1"]);
    }
}

/// A probe on such a function counts no call.
#[test]
fn a_probe_on_a_resolver_says_so() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let p = TypedProgram::compile("g++", "numbers.cpp", NUMBERS, &["-g", "-O1", "-no-pie"]);
    let o = p.run("chosen", "@ = count();").success();
    assert!(o.stderr.contains("WARNING: chosen is an indirect function"), "{}", o.stderr);
    assert!(o.stderr.contains("calls reach __chosen_plain"), "{}", o.stderr);
    let o = p.run("take", "@ = count();").success();
    assert!(!o.stderr.contains("indirect"), "{}", o.stderr);
    // So do counts, latencies, and probes that are added.
    let path = p.path.to_str().unwrap();
    let noted = |function: &str, args: &[&str]| {
        let o = run(KYMO, args).success();
        let text = format!("{}{}", o.stdout, o.stderr);
        let caution = format!("{function} is an indirect function");
        assert_eq!(text.matches(&caution).count(), usize::from(function == "chosen"), "{text}");
    };
    for function in ["chosen", "take"] {
        let probe = format!("uprobe:{path}:{function}");
        let latency = format!("{probe} -> uretprobe:{path}:{function} by tid");
        noted(function, &["count", "-e", &probe, "--", path]);
        noted(function, &["count", "--json", "-e", &probe, "--", path]);
        noted(function, &["count", "--latency", &latency, "--", path]);
        noted(function, &["probe", "-x", path, "-n", function]);
    }
    let libc = format!("{path}-libc");
    let shared = run("ldd", [path]).success().stdout;
    let shared = shared.lines().find_map(|line| line.split("=> ").nth(1)?.split(' ').next());
    let shared = shared.filter(|path| path.contains("libc.so")).map(str::to_owned);
    // Names of versions, as the C library has them.
    if let Some(path) = shared {
        std::fs::copy(&path, &libc).unwrap();
        let o = run(KYMO, ["probe", "-x", &libc, "-n", "strlen"]).success();
        let text = format!("{}{}", o.stdout, o.stderr);
        assert!(text.contains("strlen is an indirect function"), "{text}");
    }
}

/// `work` runs 160 times, in goroutines whose stacks grow under it.
const GO: &str = r#"package main

import "fmt"

//go:noinline
func deep(a int) int {
	var buf [2000]byte
	for i := range buf {
		buf[i] = byte(a)
	}
	if a > 0 {
		return deep(a-1) + int(buf[a%2000])
	}
	return 1
}

//go:noinline
func work(a int) int {
	if a == 3 {
		return deep(50) * 2
	}
	return deep(a)
}

func main() {
	sum, done := 0, make(chan int)
	for g := 0; g < 8; g++ {
		go func(g int) {
			r := 0
			for i := 0; i < 20; i++ {
				r += work(g)
			}
			done <- r
		}(g)
	}
	for g := 0; g < 8; g++ {
		sum += <-done
	}
	fmt.Println(sum > 0)
}
"#;

/// Return probes end Go programs: they are refused, and what the refusal offers counts all calls.
#[test]
fn return_probes_of_go_functions_are_refused() {
    if !require(&[Need::Root, Need::Tracefs, Need::Tool("go")]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (source, path) = (dir.path().join("main.go"), dir.path().join("program"));
    std::fs::write(&source, GO).unwrap();
    let mut go = Command::new("go");
    go.args(["build", "-o"]).args([&path, &source]).current_dir(dir.path());
    let _ = run_command(go).success();
    let path = path.to_str().unwrap();
    let program = format!("uretprobe:{path}:main.work {{ @ = count(); }}");
    let o = run(KYMO, ["run", "-e", &program, "-c", path]).failure();
    assert!(o.stderr.contains("main.work is Go code"), "{}", o.stderr);
    let o = run(KYMO, ["run", "--unsafe", "--dry-run", "-e", &program]).success();
    assert!(o.stderr.contains("WARNING: main.work is Go code"), "{}", o.stderr);
    let by_pattern = format!("uretprobe:{path}:main.w* {{ @ = count(); }}");
    let refusal = run(KYMO, ["run", "-e", &by_pattern, "-c", path]).failure().stderr;
    assert!(refusal.contains("main.work is Go code"), "{refusal}");
    let (_, offered) = refusal.split_once("(main.work").expect(&refusal);
    let (offsets, _) = offered.split_once(')').unwrap();
    let probe = |offset: &str| format!("uprobe:{path}:main.work{offset}");
    let returns: Vec<String> = offsets.split(", ").map(probe).collect();
    for points in [probe(""), returns.join(", ")] {
        let o = run(KYMO, ["run", "-q", "-e", &format!("{points} {{ @ = count(); }}"), "-c", path]);
        prints(o, &["true", "@: 160"]);
    }
    let latency = format!("{} -> uretprobe:{path}:main.work by tid", probe(""));
    let o = run(KYMO, ["count", "--latency", &latency, "--", path]).failure();
    assert!(o.stderr.contains("main.work is Go code"), "{}", o.stderr);
    let added = |args: &[&str]| run(KYMO, [&["probe", "-x", path, "-n"], args].concat());
    let o = added(&["main.work%return"]).failure();
    assert!(o.stderr.contains("main.work is Go code"), "{}", o.stderr);
    assert!(o.stderr.contains("--force"), "{}", o.stderr);
    let _ = added(&["--force", "main.work%return"]).success();
    let _ = added(&["main.work"]).success();
    let traced = format!("{path} main.work%return");
    let o = run(KYMO, ["trace", "--probe", &traced, "--", path]).failure();
    assert!(o.stderr.contains("main.work is Go code"), "{}", o.stderr);
}

const PARTLY_INLINED: &str = r#"
int part(int n) { return n * 7 + 1; }
__attribute__((noinline)) int whole(int n) { return n * 3; }
int (*volatile by_address)(int) = part;
int main(int argc, char **argv) {
    int sum = 0;
    for (int n = 0; n < 10; n++)
        sum += part(argc + n) + whole(n);
    return by_address(sum) == 5;
}
"#;

/// A probe at a function's entry sees no inlined copy of it.
#[test]
fn a_probe_on_a_function_that_is_inlined_in_part_says_so() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let flags = ["-g", "-O2", "-no-pie"];
    let p = TypedProgram::compile("gcc", "inlined.c", PARTLY_INLINED, &flags);
    let o = p.run("part", "@ = count();").success();
    assert!(o.stdout.contains("@: 1\n"), "{}", o.stdout);
    assert!(o.stderr.contains("WARNING: part is also inlined at"), "{}", o.stderr);
    let o = p.run("whole", "@ = count();").success();
    assert!(o.stdout.contains("@: 10\n"), "{}", o.stdout);
    assert!(!o.stderr.contains("inlined"), "{}", o.stderr);
}

/// Structures with names of the kernel's, whose `struct path` has 16 bytes.
const NAMESAKES: &str = r#"
#include <sys/sdt.h>
struct path { int x; int y; long dentry; long mnt; } path = { 123, 7, 5555, 6666 };
struct file { long f_pos; int f_flags; } file = { 77, 3 };
struct request { int id; int len; } request = { 4, 42 };
struct task_struct { int pid; } task = { 1 };
__attribute__((noinline)) int take(struct path *p, struct file *f, struct request *r) {
    DTRACE_PROBE1(app, taken, p);
    return p->x + f->f_flags + r->len;
}
int main(void) { return take(&path, &file, &request) + task.pid == 0; }
"#;

#[test]
fn a_cast_at_a_probe_of_a_program_means_the_structure_of_the_program() {
    if !require(&[Need::Root, Need::Tracefs]) {
        return;
    }
    let flags = ["-g", "-O1"];
    let p = TypedProgram::compile("gcc", "namesakes.c", NAMESAKES, &flags);
    let body = "$p = (struct path *)arg0; print(($p->dentry, $p->mnt, sizeof(struct path)));";
    prints(p.run("take", body), &["(5555, 6666, 24)"]);
    let body = "$f = (struct file *)arg1; print(($f->f_pos, $f->f_flags));";
    prints(p.run("take", body), &["(77, 3)"]);
    prints(p.run("take", "print(((struct request *)arg2)->len);"), &["42"]);
    prints(p.run("take", "print(offsetof(struct path, mnt));"), &["16"]);
    prints(p.run("take", "print(sizeof(struct path[3]));"), &["72"]);
    let path = p.path.to_str().unwrap();
    let all = |text: &str| run(KYMO, ["run", "-q", "-e", text, "-c", path]);
    let text = format!("usdt:{path}:app:taken {{ print(((struct path *)arg0)->mnt); }}");
    prints(all(&text), &["6666"]);
    let text = format!("uretprobe:{path}:take {{ print(sizeof(struct path)); }}");
    prints(all(&text), &["24"]);
    // The kernel's own values and probes have its types.
    let body = "print(((struct task_struct *)curtask)->pid == tid);";
    prints(p.run("take", body), &["true"]);
    let text = format!(
        "BEGIN {{ print(sizeof(struct path)); }} uprobe:{path}:take {{ print(sizeof(struct path)); }}"
    );
    prints(all(&text), &["16", "24"]);
    // A definition in the program has priority.
    let text = format!(
        "struct path {{ int x; }} \
         uprobe:{path}:take {{ print((((struct path *)arg0)->x, sizeof(struct path))); }}"
    );
    prints(all(&text), &["(123, 4)"]);
    // Without debugging information the kernel's types are all there are.
    let bare = TypedProgram::compile("gcc", "namesakes.c", NAMESAKES, &["-O1"]);
    prints(bare.run("take", "print(sizeof(struct path));"), &["16"]);
    let other = bare.path.to_str().unwrap();
    let text = format!("uprobe:{other}:take, uprobe:{path}:take {{ print(sizeof(struct path)); }}");
    prints(all(&text), &["24"]);
}
