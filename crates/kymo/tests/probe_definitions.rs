//! `kymo probe --definition` against `perf probe -D` on programs compiled here:
//! C at -O0 and -O2, C++, Rust. Where the two differ the table says why.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_testkit::{Need, Outcome, perf, require, run};

/// Expected result of one description.
enum Expect {
    /// Definitions equal to perf's.
    Same,
    /// Neither gives one; kymo says this.
    Refused(&'static str),
    /// Another result than perf's, for a reason: this is in kymo's.
    Ours(&'static str, &'static str),
    /// perf's definitions but for a part, for a reason: perf's, and what kymo has there.
    But(&'static str, &'static str, &'static str),
}
use Expect::{But, Ours, Refused, Same};

const PERF_NO_PATHS: &str = "perf's grammar has no paths";
const PERF_NO_GENERICS: &str = "perf knows no instances of generic functions";
const PERF_SYMBOL: &str = "the kernel refuses @SYMBOL in programs; @+OFFSET is what it takes";
const PERF_BITS: &str = "perf does not know bit fields as DWARF 5 states them";
const PERF_SHARED: &str = "perf refuses a line whose first instruction another line has, too";
const PERF_RETURN: &str = "perf looks for return probes in the symbol table alone";
const PERF_RETVAL: &str = "perf gives what a function returns no type: all are 64-bit numbers";
const PERF_TWICE: &str = "perf gives two arguments one name, which the kernel refuses";
const PERF_OVERLOAD: &str = "perf takes the first function of a name in each unit";
const PERF_CONSTANT: &str = "perf does not know values that are constants";
const PERF_ALIAS: &str = "perf knows other names of a function in its symbol table alone";
const PERF_RUST: &str =
    "perf treats what Rust adds to C (strings, enums, tuples, references) as numbers";

struct Program {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

/// Compiles a program; `None` without its compiler.
fn compile(compiler: &str, source: &str, text: &str, flags: &[&str]) -> Program {
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join(source);
    std::fs::write(&source, text).unwrap();
    let path = directory.path().join("prog");
    let made =
        Command::new(compiler).args(flags).arg("-o").arg(&path).arg(&source).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Program { _directory: directory, path }
}

const C: &str = include_str!("probe_programs/plain.c");
const CPP: &str = include_str!("probe_programs/shapes.cpp");
const RUST: &str = include_str!("probe_programs/rusty.rs");

fn kymo(program: &Path, description: &str) -> Outcome {
    let path = program.to_str().unwrap();
    run(env!("CARGO_BIN_EXE_kymo"), ["probe", "-q", "-x", path, "-D", description])
}

fn sorted(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

/// Compares a table; all mistakes are shown together.
fn check(program: &Program, table: &[(&str, Expect)]) {
    let path = program.path.to_str().unwrap();
    let mut wrong = Vec::new();
    for (description, expect) in table {
        let theirs = perf(["probe", "-q", "-x", path, "-D", description]);
        let theirs = sorted(&theirs.stdout);
        let outcome = kymo(&program.path, description);
        let ours = sorted(&outcome.stdout);
        let text = ours.join("\n");
        let ok = match expect {
            Same => !ours.is_empty() && ours == theirs,
            Refused(why) => theirs.is_empty() && ours.is_empty() && outcome.stderr.contains(why),
            Ours(_, part) if part.starts_with('!') => {
                ours.is_empty() && outcome.stderr.contains(&part[1..])
            }
            Ours(_, part) => ours != theirs && text.contains(part),
            But(_, their_part, our_part) => {
                let theirs = theirs.join("\n");
                theirs.matches(their_part).count() == 1
                    && text == theirs.replace(their_part, our_part)
            }
        };
        if !ok {
            let why = if let Ours(why, part) | But(why, _, part) = expect {
                format!(" ({why}: {part})")
            } else {
                String::new()
            };
            wrong.push(format!(
                "{description}{why}\n  perf: {theirs:#?}\n  kymo: {text}\n  {}",
                outcome.stderr
            ));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), table.len(), wrong.join("\n"));
}

fn ready() -> bool {
    require(&[Need::Root, Need::Tracefs, Need::Perf, Need::Gcc])
}

const C_COMMON: &[(&str, Expect)] = &[
    ("work", Same),
    ("main", Same),
    ("work o n msg", Same),
    ("work o", Same),
    ("work n:u8", Same),
    ("work n:x", Same),
    ("work n:u", Same),
    ("work o:x64", Same),
    ("work msg:string", Same),
    ("work first=n second=msg:string", Same),
    ("work o->name:string", Same),
    ("work o->name", Same),
    ("work o->in.x", Same),
    ("work o->in.s", Same),
    ("work o->in.c", Same),
    ("work o->ptr->x", Same),
    ("work o->ptr->s", Same),
    ("work o->arr[2]", Same),
    ("work o->arr[0] o->arr[3]:x", But(PERF_TWICE, " arr=+36(", " arr_2=+36(")),
    ("work o->next->next->in.x", Same),
    ("work o->text:string", Same),
    ("work o->next->name:string o->ptr->c", Same),
    ("work o->in.bits", Ours(PERF_BITS, ":b5@16/32")),
    ("work o->in.more", Ours(PERF_BITS, ":b7@21/32")),
    ("work counter", Ours(PERF_SYMBOL, "counter=@+0x")),
    ("work global:x", Ours(PERF_SYMBOL, "global_x=@+0x")),
    ("work+4", Same),
    ("work%return", Same),
    ("work%return $retval", But(PERF_RETVAL, " $retval", " $retval:s32")),
    ("work%return ret=$retval:s32", Same),
    ("ev=work n", Same),
    ("grp:ev=work n", Same),
    ("work %di +8(%di):s32 $stack0 $stack", Same),
    ("work@plain.c n", Same),
    ("work@other.c n", Refused("nothing found")),
    ("w*", Same),
    ("*or*", Same),
    ("work;sum*", Same),
    ("work:5", Same),
    ("main argc argv", Same),
    ("main argv[0]:string", Same),
    ("main o.text:string", Same),
    ("main o.next->name:string", Same),
    ("main:6", Same),
    ("0x1139", Same),
    ("nosuchfunction", Refused("no")),
    ("work nosuchvariable", Refused("there are")),
    ("work o->nosuch", Refused("has no field nosuch; it has name, in, ptr")),
    ("work o.name", Refused("write o->name")),
    ("work n->x", Refused("is not a pointer")),
    ("work n:string", Refused("not a string")),
    ("work%return n", Refused("no longer exist after a function has returned")),
    ("work+100000", Refused("outside of work")),
    ("plain.c:1", Refused("nothing found for plain.c:1; --line plain.c shows the lines")),
    ("nosuch.c:3", Refused("nothing found")),
];

#[test]
fn c_without_optimisation() {
    if !ready() {
        return;
    }
    let program = compile("gcc", "plain.c", C, &["-g", "-O0"]);
    check(&program, C_COMMON);
    check(
        &program,
        &[
            ("main o.in.x in.x", But(PERF_TWICE, " x=-12(", " x_2=-12(")),
            ("work:3", Same),
            ("work:5 sum i", Same),
            ("work:5 $vars", Same),
            ("work $params", Same),
            ("work $vars", Same),
            ("inl", Same),
            ("inl v w", Same),
            ("inl v o->in.x o->arr[1]", Same),
            ("inl+4", Same),
            ("other", Same),
            ("other a b c", Same),
            ("other b:s8 c:x", Same),
            ("other%return $retval", But(PERF_RETVAL, " $retval", " $retval:s64")),
            ("plain.c:31", Same),
            ("plain.c:31 r", Same),
            ("plain.c:21", Same),
            (
                "plain.c;counter++*",
                Ours("perf takes the + of a pattern for an offset", "p:probe_prog/work "),
            ),
            ("plain.c;sum*=*", Same),
            ("main:1 argc", Ours(PERF_SHARED, "main_L1 ")),
            ("work:4%next", Ours("perf has no %next", "work_L4 ")),
        ],
    );
}

#[test]
fn c_optimised() {
    if !ready() {
        return;
    }
    let program = compile("gcc", "plain.c", C, &["-g", "-O2"]);
    check(&program, C_COMMON);
    check(
        &program,
        &[
            ("main o.in.x in.x", But(PERF_TWICE, " x=-80(", " x_2=-80(")),
            ("work:3", Ours(PERF_SHARED, "work_L3 ")),
            ("work:4", Same),
            ("work:7", Same),
            ("work:9", Same),
            ("work:5 sum", Same),
            ("work:5 i", Refused("optimized out")),
            ("work:5 o n msg", Same),
            ("work $params", Same),
            ("work $vars", Ours(PERF_CONSTANT, "sum=\\0:s32")),
            ("inl", Same),
            ("inl o", Same),
            ("inl v", Refused("optimized out")),
            ("inl o->in.x", Same),
            ("other", Same),
            ("other%return $retval", Ours(PERF_RETURN, "r:probe_prog/other__return")),
            ("other a", Same),
            ("plain.c:31", Ours(PERF_SHARED, "p:probe_prog/other ")),
        ],
    );
}

/// C libraries have several names for one function, of which the debugging information
/// has one.
#[test]
fn other_names_of_a_function() {
    if !ready() {
        return;
    }
    const SOURCE: &str = "
__attribute__((noinline)) int work(int n, const char *msg)
{
	int sum = n;
	for (int i = 0; msg[i]; i++)
		sum += msg[i];
	return sum;
}
int toil(int n, const char *msg) __attribute__((alias(\"work\")));
int main(int argc, char **argv) { return toil(argc, argv[0]); }
";
    let program = compile("gcc", "names.c", SOURCE, &["-g", "-O2"]);
    check(
        &program,
        &[
            ("work n msg:string", Same),
            ("toil", Same),
            ("toil n msg:string", Ours(PERF_ALIAS, "n=%di:s32 msg_string=+0(%si):string")),
            ("toil:4", Same),
            ("toil nosuchvariable", Refused("there are")),
            ("toil:50 n", Refused("--line toil shows the lines")),
            ("nosuchname n", Refused("nothing found for nosuchname")),
        ],
    );
    let at = |name: &str| {
        let defined = kymo(&program.path, &format!("{name} n")).stdout;
        defined.split_once(' ').unwrap().1.to_owned()
    };
    assert_eq!(at("toil"), at("work"));
    let path = program.path.to_str().unwrap();
    let kymo = |args: [&str; 5]| run(env!("CARGO_BIN_EXE_kymo"), args).stdout;
    let shown = |name| kymo(["probe", "-x", path, "--line", name]);
    let (own, other) = (shown("work"), shown("toil"));
    assert!(own.contains("sum += msg[i];"), "{own}");
    assert_eq!(other.split_once('\n').unwrap().1, own.split_once('\n').unwrap().1);
    let shown = |name| kymo(["probe", "-x", path, "--vars", name]);
    assert_eq!(shown("toil").replace("toil", "work"), shown("work"));
}

#[test]
fn cpp() {
    if !ready() {
        return;
    }
    let table: &[(&str, Expect)] = &[
        ("main", Same),
        ("main argc argv", Same),
        ("bump", Same),
        ("bump p up", Same),
        ("bump p.x", Ours("perf does not look through references", "x=+12(")),
        ("shapes::deep::bump up", Ours(PERF_NO_PATHS, "p:probe_prog/bump ")),
        ("area", Same),
        ("area this scale", Same),
        ("area this->x this->y", Same),
        ("area this->id", Ours("perf does not look into base classes", "id=+8(")),
        ("shapes::Point::area scale", Ours(PERF_NO_PATHS, "scale=")),
        ("Point::area", Ours(PERF_NO_PATHS, "p:probe_prog/area ")),
        ("twice", Ours(PERF_NO_GENERICS, "p:probe_prog/twice ")),
        ("twice<int> v", Ours("perf cannot name the event", ":s32")),
        ("twice<double>", Ours("perf cannot name the event", "p:probe_prog/twice ")),
        ("shapes::twice", Ours(PERF_NO_PATHS, "p:probe_prog/twice ")),
        ("over", Ours(PERF_OVERLOAD, "p:probe_prog/over ")),
        ("shapes.cpp:8", Same),
        ("bump counter", Ours(PERF_SYMBOL, "counter=@+0x")),
        ("area%return $retval", Ours(PERF_RETURN, "r:probe_prog/area__return")),
        ("nosuch::area", Ours(PERF_NO_PATHS, "!no")),
    ];
    for level in ["-O0", "-O2"] {
        check(&compile("g++", "shapes.cpp", CPP, &["-g", level]), table);
    }
}

#[test]
fn rust() {
    if !ready() {
        return;
    }
    let table: &[(&str, Expect)] = &[
        ("label", Same),
        ("area", Same),
        ("paint", Same),
        ("who", Same),
        ("shapes::generic", Ours(PERF_NO_PATHS, "p:probe_prog/generic ")),
        ("generic", Ours(PERF_NO_GENERICS, "p:probe_prog/generic ")),
        ("generic v", Ours(PERF_NO_GENERICS, "p:probe_prog/generic_1 ")),
        ("generic<u32>", Ours("perf cannot name the event", "p:probe_prog/generic ")),
        ("rp::shapes::generic::<u8> v", Ours(PERF_NO_PATHS, "v=")),
        ("rp::shapes::Point::label", Ours(PERF_NO_PATHS, "p:probe_prog/label ")),
        ("label self", Ours("perf gives a reference no type", "self=")),
        ("label self.x", Ours(PERF_RUST, "x=+24(")),
        ("label self.name", Ours(PERF_RUST, ":string name_len=")),
        (
            "<rp::shapes::Point as rp::shapes::Area>::area",
            Ours(PERF_NO_PATHS, "p:probe_prog/area "),
        ),
        ("<Point as Area>::area self.y", Ours(PERF_NO_PATHS, "y=+28(")),
        ("<Point as Other>::area", Ours(PERF_NO_PATHS, "!no")),
        ("paint depth", Ours(PERF_RUST, "depth_variant=")),
        ("paint depth.Some.0", Ours(PERF_RUST, "Some_0=")),
        ("paint depth.Other.0", Ours(PERF_RUST, "!has no field Other; it has None, Some")),
        ("rp::main::{closure#0}", Ours(PERF_NO_PATHS, "p:probe_prog/main_closure_0 ")),
        ("paint%return $retval", Ours(PERF_RETURN, "r:probe_prog/paint__return")),
    ];
    let plain: &[(&str, Expect)] = &[
        ("paint c", Ours("perf reads it before the function has stored it", "c=")),
        ("label prefix", Ours(PERF_RUST, ":string prefix_len=")),
        ("who owned", Ours(PERF_RUST, ":string owned_len=")),
        ("paint pair.1 pair.0", Ours(PERF_RUST, "pair_1=")),
        ("paint data[1]", Ours(PERF_RUST, "data=+4(")),
        ("paint data.length", Ours(PERF_RUST, "length=")),
        ("r.rs", Refused("no")),
        ("area self.x scale", Ours(PERF_RUST, "scale=")),
    ];
    let program = compile(
        "rustc",
        "rusty.rs",
        RUST,
        &["-g", "-Copt-level=0", "--crate-name", "rp", "--edition", "2024"],
    );
    check(&program, table);
    check(&program, plain);
    let program = compile(
        "rustc",
        "rusty.rs",
        RUST,
        &["-g", "-Copt-level=2", "--crate-name", "rp", "--edition", "2024"],
    );
    check(&program, table);
    check(&program, &[("paint c", Same)]);
}

#[test]
fn other_ways_to_compile_c() {
    if !ready() {
        return;
    }
    let common: &[(&str, Expect)] = &[
        ("work", Same),
        ("work o->name:string o->in.x o->arr[2] o->ptr->s", Same),
        ("main argc", Same),
    ];
    for flags in [
        &["-gdwarf-4", "-O2"][..],
        &["-gdwarf-4", "-O0"],
        &["-gdwarf-3", "-O1"],
        &["-g", "-O2", "-no-pie"],
        &["-g3", "-O3", "-fno-omit-frame-pointer"],
        &["-g", "-Og"],
        &["-g", "-O2", "-flto"],
        &["-gdwarf-5", "-Os", "-flto"],
    ] {
        let program = compile("gcc", "plain.c", C, flags);
        check(&program, common);
        let lto = flags.contains(&"-flto");
        if !lto {
            check(
                &program,
                &[("work o n msg:string", Same), ("work:7 msg", Same), ("work $params", Same)],
            );
        }
    }
    let program = compile("gcc", "plain.c", C, &["-g", "-Og"]);
    // At one of two places the value is an address that has to be computed.
    let why = "perf takes a sum for a place in memory";
    check(&program, &[("inl o", Ours(why, "o=\\0xdeade12d:x64"))]);
}

#[test]
fn debugging_information_in_a_file_of_its_own() {
    if !ready() {
        return;
    }
    let whole = compile("gcc", "plain.c", C, &["-g", "-O2"]);
    let expected = kymo(&whole.path, "work o->name:string n").success().stdout;
    let directory = whole.path.parent().unwrap();
    let tool = |program: &str, args: &[&str]| {
        let done = Command::new(program).args(args).current_dir(directory).status().unwrap();
        assert!(done.success(), "{program} {args:?}");
    };
    for compress in ["none", "zlib"] {
        tool("cp", &["prog", "bare"]);
        let compress = format!("--compress-debug-sections={compress}");
        tool("objcopy", &["--only-keep-debug", &compress, "prog", "bare.debug"]);
        tool("strip", &["bare"]);
        tool("objcopy", &["--add-gnu-debuglink=bare.debug", "bare"]);
        let ours = kymo(&directory.join("bare"), "work o->name:string n").success().stdout;
        assert_eq!(
            ours.replace("/bare:", "/prog:").replace("probe_bare/", "probe_prog/"),
            expected,
            "{compress}"
        );
        // The debug file of another build is not taken.
        tool("gcc", &["-g", "-O1", "-DOTHER", "-o", "other", "plain.c"]);
        tool("objcopy", &["--only-keep-debug", "other", "bare.debug"]);
        let refused = kymo(&directory.join("bare"), "work o->name:string n").failure().stderr;
        assert!(refused.contains("no debugging information"), "{refused}");
        std::fs::remove_file(directory.join("bare.debug")).unwrap();
    }
}

/// Functions that are inlined everywhere have no symbol, but places that can be probed.
#[test]
fn functions_that_are_only_inlined_are_listed() {
    if !require(&[Need::Gcc, Need::Tool("g++")]) {
        return;
    }
    let c = "static inline __attribute__((always_inline)) int twice(int n) { return 2 * n; }\n\
             static __attribute__((unused)) int unused(int n) { return n; }\n\
             int main(int argc, char **argv) { return twice(argc); }\n";
    let cpp = "namespace shop { struct Cart {\n\
               __attribute__((always_inline)) int sum(int n) { return n + 1; } }; }\n\
               int main(int argc, char **argv) { return shop::Cart().sum(argc); }\n";
    for (compiler, source, text, inlined) in
        [("gcc", "a.c", c, "twice"), ("g++", "a.cpp", cpp, "shop::Cart::sum")]
    {
        let program = compile(compiler, source, text, &["-O2", "-g"]);
        let list = |more: &[&str]| {
            let path = program.path.to_str().unwrap();
            let args = [&["probe", "-x", path, "--funcs"], more].concat();
            let out = run(env!("CARGO_BIN_EXE_kymo"), args).success().stdout;
            out.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let listed = list(&[]);
        assert!(listed.iter().any(|n| n == inlined), "{listed:?}");
        assert!(listed.iter().any(|n| n == "main"), "{listed:?}");
        assert!(!listed.iter().any(|n| n == "unused"), "{listed:?}");
        assert_eq!(list(&[inlined]), [inlined]);
        let symbols = list(&["--no-inlines"]);
        assert!(!symbols.iter().any(|n| n == inlined), "{symbols:?}");
        let definition = kymo(&program.path, inlined).success().stdout;
        assert!(definition.starts_with("p:"), "{definition}");
    }
}

/// The message about a value that probes cannot read names its register.
#[test]
fn a_number_in_a_vector_register_is_refused_by_its_name() {
    if !ready() {
        return;
    }
    let source = "#include <stdlib.h>\n\
                  __attribute__((noinline)) double scaled(double factor, int n) { return factor * n; }\n\
                  int main(int n, char **words) { return scaled(atof(words[0]), n) > 1; }\n";
    let program = compile("gcc", "scaled.c", source, &["-g", "-O2"]);
    check(
        &program,
        &[
            ("scaled n", Same),
            (
                "scaled factor",
                Refused("do not support; factor is in xmm0, which a probe cannot read"),
            ),
            ("scaled factor:x64", Refused("factor is in xmm0, which a probe cannot read")),
        ],
    );
}

/// The argument is known at the start of the function, and lost after the call of another.
const LOST: &str = "
#include <unistd.h>
struct item { int price; struct item *next; };
__attribute__((noinline)) int sell(const char *customer, struct item *it, double factor) {
    int total = 0;
    for (struct item *i = it; i; i = i->next)
        total += i->price;
    if (total > 50)
        usleep(100);
    return total * factor;
}
int main(int argc, char **argv) {
    struct item it = { argc, 0 };
    return sell(argv[0], &it, 1.5);
}
";

/// Lines at which a variable is said to be alive are lines at which it can be read.
#[test]
fn lines_that_are_proposed_can_be_probed() {
    if !ready() {
        return;
    }
    let program = compile("gcc", "lost.c", LOST, &["-O2", "-g"]);
    let refused = kymo(&program.path, "sell:5 customer:string").failure().stderr;
    let lines = refused.split("it is live at line").nth(1).unwrap();
    let lines = lines.trim_start_matches('s').split(" of the function").next().unwrap();
    for line in lines.split(',').map(str::trim) {
        assert_ne!(line, "5", "{refused}");
        let _ = kymo(&program.path, &format!("sell:{line} customer:string")).success();
    }
}

/// Messages about mistakes list the existing names.
#[test]
fn mistakes_are_answered_with_what_there_is() {
    if !ready() {
        return;
    }
    let program = compile("gcc", "plain.c", C, &["-O2", "-g"]);
    let refused = kymo(&program.path, "wrok").failure().stderr;
    assert!(refused.contains("work"), "{refused}");
    let plain = compile("gcc", "plain.c", C, &["-O2"]);
    let refused = kymo(&plain.path, "wrok").failure().stderr;
    assert!(refused.contains("no function wrok") && refused.contains("work"), "{refused}");
    let stripped = compile("gcc", "plain.c", C, &["-O2", "-s"]);
    let refused = kymo(&stripped.path, "work").failure().stderr;
    assert!(refused.contains("it has no function symbols"), "{refused}");
    let path = stripped.path.to_str().unwrap();
    let none = run(env!("CARGO_BIN_EXE_kymo"), ["probe", "-x", path, "--funcs"]);
    assert!(none.stderr.contains("it is stripped"), "{}", none.stderr);
}

/// A stripped program here, and the one with debugging information at its path below another root.
#[test]
fn debugging_information_below_a_different_root() {
    if !require(&[Need::Gcc, Need::Tool("strip"), Need::NewestPeers]) {
        return;
    }
    let program = compile("gcc", "plain.c", C, &["-g", "-O1"]);
    let root = tempfile::tempdir().unwrap();
    let path = program.path.to_str().unwrap();
    let there = root.path().join(program.path.strip_prefix("/").unwrap());
    std::fs::create_dir_all(there.parent().unwrap()).unwrap();
    std::fs::copy(&program.path, &there).unwrap();
    let whole = kymo(&program.path, "main").success().stdout;
    let _ = run("strip", [path]).success();
    let without = kymo(&program.path, "main:1").failure();
    assert!(without.stderr.contains("has no debugging information"), "{}", without.stderr);
    let below = root.path().to_str().unwrap();
    let args = ["probe", "-q", "--symfs", below, "-x", path, "-D", "main"];
    let ours = run(env!("CARGO_BIN_EXE_kymo"), args).success().stdout;
    assert_eq!(ours, whole);
    assert_eq!(ours, kymo_testkit::peer("perf").run(args).success().stdout);
    // perf takes whatever is there.
    std::fs::copy("/bin/true", &there).unwrap();
    let other = run(env!("CARGO_BIN_EXE_kymo"), args).failure();
    assert!(other.stderr.contains("is of another build"), "{}", other.stderr);
}

/// perf names the key `probe`, which no kernel reads (trace_boot.c: `probes`), and leaves out that
/// a probe is of a return.
#[test]
fn boot_configurations_are_those_of_perf_but_for_its_mistakes() {
    if !require(&[Need::Perf, Need::Root]) {
        return;
    }
    let shown = |description: &str| {
        let args = ["probe", "-q", "--bootconfig", "-D", description];
        let ours = run(env!("CARGO_BIN_EXE_kymo"), args).success().stdout;
        (ours, perf(args).success().stdout)
    };
    let of = |text: &str| -> (String, String) {
        let (key, value) = text.trim().split_once(" = ").unwrap();
        let (place, rest) = value.trim_matches(['"', '\'']).split_once(' ').unwrap();
        // perf writes the place by the address of `_text`.
        assert!(!place.is_empty());
        (key.to_owned(), rest.to_owned())
    };
    let (ours, theirs) = shown("named=vfs_read count=%dx:u64");
    assert_eq!(of(&ours).0, format!("{}s", of(&theirs).0));
    assert_eq!(of(&ours), ("ftrace.event.kprobes.named.probes".into(), of(&theirs).1));
    let (ours, theirs) = shown("vfs_write%return $retval");
    assert_eq!(
        ours.trim(),
        "ftrace.event.kprobes.vfs_write__return.probes = \"vfs_write+0%return $retval\""
    );
    assert_eq!(of(&theirs).1, of(&ours).1, "{theirs}");
    let user = ["probe", "--bootconfig", "-x", "/bin/true", "-D", "main"];
    let _ = run(env!("CARGO_BIN_EXE_kymo"), user).failure();
}
