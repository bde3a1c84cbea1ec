//! Programs in C and C++, and libraries that they load, with the header and the static library of
//! this crate: what they write is what babeltrace2 reads, and what is wrong in them does no harm.
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{Marker, Program, Shared, config, static_library};
use kymo_testkit::{Need, require};

const COMPILERS: &[Need] = &[Need::Gcc, Need::Tool("g++"), Need::Babeltrace, Need::Tool("readelf")];
const STRICT: &[&str] = &["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2"];

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A compiler with the header; its warnings are errors.
fn compiler(name: &str, args: &[&str]) -> Command {
    let mut command = Command::new(name);
    command.args(STRICT).arg("-I").arg(here("include")).args(args);
    command
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {} {errors}", output.status);
    output
}

/// Builds a program or a library of some sources; each is compiled as its name says.
fn build(args: &[&str], sources: &[&str], out: &Path, link: &[&Path]) {
    let dir = out.parent().unwrap();
    let mut objects = Vec::new();
    for (i, source) in sources.iter().enumerate() {
        let object = dir.join(format!("{i}.o"));
        let (name, standard) =
            if source.ends_with(".cpp") { ("g++", "-std=c++17") } else { ("gcc", "-std=gnu11") };
        run(compiler(name, &[standard, "-c"]).args(args).arg(here(source)).arg("-o").arg(&object));
        objects.push(object);
    }
    let linker = if sources.iter().any(|s| s.ends_with(".cpp")) { "g++" } else { "gcc" };
    let mut command = Command::new(linker);
    command.args(args).arg("-o").arg(out).args(&objects).args(link);
    run(command.args(["-lpthread", "-ldl", "-lm"]));
}

/// Events as printed by babeltrace2, without time and context: `name {payload`.
fn payloads(lines: &[String]) -> Vec<String> {
    let name =
        |line: &str| line.split(": {").next().unwrap().rsplit(':').next().unwrap().to_owned();
    let payload = |line: &str| line.rsplit_once("}, {").unwrap().1.to_owned();
    lines.iter().map(|line| format!("{} {{{}", name(line), payload(line))).collect()
}

fn run_in(shared: &Shared, program: &Path, args: &[&str]) -> String {
    let mut command = Command::new(program);
    command.args(args).env("KYMO_UST_DIR", shared.user().parent().unwrap());
    String::from_utf8(run(&mut command).stdout).unwrap()
}

/// Number of events in slot `slot`.
fn count(program: &Program, slot: usize) -> u64 {
    program.ring(slot, 1).counts().0
}

#[test]
fn a_program_in_c_and_a_library_it_loads_twice() {
    if !require(COMPILERS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (program, library) = (dir.path().join("shop"), dir.path().join("libshop.so"));
    build(&["-rdynamic"], &["examples/shop.c"], &program, &[&static_library()]);
    build(&["-shared", "-fPIC", "-DLIBRARY"], &["examples/shop.c"], &library, &[]);
    let shared = Shared::new();
    shared.want("s", &config("shop:*", "number != 7"));
    shared.want("t", &config("shop:*", ""));
    let output = run_in(&shared, &program, &["3", library.to_str().unwrap()]);
    // The callback was called where the condition holds: 1001 + 2002.
    assert_eq!(output, "3003 cents\n");
    let programs = shared.programs();
    let lines = payloads(&programs[0].babeltrace(1, 1));
    let door = |name: &str, who: u32| format!("door_{name} {{ who = {who} }}");
    let code = "code = [ [0] = 97, [1] = 98, [2] = 99, [3] = 100 ]";
    let sale = |line: &String, start: &str, end: &str| {
        let (rest, seller) = line.split_once(", seller = 0x").unwrap();
        assert_eq!(rest, format!("sale {{ {start}, {code}, {end}"));
        assert!(u64::from_str_radix(seller.trim_end_matches(" }"), 16).unwrap() > 0, "{line}");
    };
    assert_eq!(lines[..3], [door("opened", 0), door("closed", 0), door("opened", 1)]);
    sale(
        &lines[3],
        "id = 1, customer = \"Alice\", euros = 10.01, change = -1, large = 0, \
         payment = ( \"Card\" : container = 2 )",
        "_articles_length = 1, articles = [ [0] = 1 ]",
    );
    assert_eq!(lines[4..6], [door("closed", 1), door("opened", 2)]);
    sale(
        &lines[6],
        "id = 2, customer = \"(null)\", euros = 20.02, change = -2, large = 0, \
         payment = ( \"Card\" : container = 2 )",
        "_articles_length = 2, articles = [ [0] = 1, [1] = 2 ]",
    );
    let parcel = |i: u32| format!("parcel {{ number = {i}, where = \"nowhere\" }}");
    assert_eq!(lines[7..], [door("closed", 2), parcel(0), parcel(1)]);
    let levels = ["sale", "door_opened", "door_closed", "parcel"].map(|name| {
        let event = programs[0].event(name);
        (event.level, event.doc.as_str())
    });
    assert_eq!(
        levels,
        [(6, "Something has been sold."), (5, "Customer entered."), (14, ""), (5, "")]
    );
    assert_eq!(programs[0].events.len(), 4);
    // Only the library's event has what this order's filter asks for.
    assert_eq!(count(&programs[0], 0), 2);
}

/// The program with every type, of two source files in two languages.
fn every(dir: &Path) -> PathBuf {
    let program = dir.join("every");
    let sources = ["tests/programs/every.c", "tests/programs/every_more.cpp"];
    build(&[], &sources, &program, &[&static_library()]);
    program
}

#[test]
fn every_type_and_two_source_files() {
    if !require(COMPILERS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = every(dir.path());
    let shared = Shared::new();
    shared.want("s", &config("every:*", ""));
    assert_eq!(run_in(&shared, &program, &[]), "3\n");
    let programs = shared.programs();
    let every = |i: i64, payment: &str, day: &str, text: &str, arrays: &str| {
        format!(
            "type {{ u8_ = {i}, u16_ = {i}, u32_ = 0xFF0{i}, u64_ = {i}, i8_ = -{i}, i16_ = -{i}, \
             i32_ = -{i}, i64_ = -{i}, f32_ = {i}.5, f64_ = {}.75, yes = {}, {text}, \
             payment = ( {payment} ), day = ( {day} ), {arrays}, at = 0xABCD, errno = {i}, \
             event = {i}, last = {i}, known = {i}, unknown = {i} }}",
            i - 1,
            i % 2,
        )
    };
    let text = "text = \"text\", part = \"te\"";
    let arrays = |sequence: &str| {
        format!(
            "array = [ [0] = 1, [1] = -2, [2] = 3 ], {sequence}, floats = [ [0] = 0.5, [1] = -1 ], \
             _bytes_length = 3, bytes = [ [0] = 116, [1] = 101, [2] = 120 ]"
        )
    };
    let nothing = "array = [ [0] = 0, [1] = 0, [2] = 0 ], _sequence_length = 0, sequence = [ ], \
                   floats = [ [0] = 0.5, [1] = -1 ], _bytes_length = 0, bytes = [ ]";
    let card = "\"Card \\\"2\\\" \\\\ ü\" : container = 2";
    let number = |name: &str, number: u32| format!("{name} {{ number = {number} }}");
    let one = "_sequence_length = 1, sequence = [ [0] = 9 ]";
    let two = "_sequence_length = 2, sequence = [ [0] = 9, [1] = 8 ]";
    let cash = "\"Cash\" : container = -1";
    let due = [
        every(1, cash, "<unknown> : container = 5", text, &arrays(one)),
        number("one", 1),
        number("two", 1),
        number("two", 11),
        every(2, card, "\"weekend\" : container = 6", text, &arrays(two)),
        number("one", 2),
        number("two", 2),
        number("two", 12),
        // Null pointers; and the condition of the class does not hold.
        every(3, card, "\"weekend\" : container = 7", "text = \"(null)\", part = \"\"", nothing),
        number("two", 13),
        "cpp { shade = ( \"green\" : container = 1 ), yes = 1 }".into(),
        "nothing { }".into(),
    ];
    let (lines, warning) = programs[0].babeltrace_with_warning(0, 1);
    assert!(warning.contains("discarded events"), "of the one that is too large: {warning}");
    let lines = payloads(&lines);
    assert_eq!(lines[..12], due);
    // As long as they are; what no sub-buffer holds is counted as discarded.
    let (large, last) = lines[12..].split_at(4);
    for (line, len) in large.iter().zip([5, 481, 20_000]) {
        assert!(line.ends_with(&format!(", len = {len} }}")), "{len}");
        // One more is in the name.
        assert_eq!(line.matches('x').count(), len + 1);
        assert_eq!(line.matches("= 120").count(), len);
    }
    assert!(large[3].contains("text = \"\", _bytes_length = 0"), "{}", large[3]);
    assert_eq!(last, ["a_b { x = 7 }"]);
    assert_eq!(programs[0].ring(0, 1).counts(), (17, 1));
    // One of each, though both files declare them.
    let mut names: Vec<_> = programs[0].events.iter().map(|e| (e.name.as_str(), e.level)).collect();
    names.sort_unstable();
    let due = [("a_b", 14), ("cpp", 14), ("large", 14), ("nothing", 14), ("one", 5), ("two", 3)];
    assert_eq!(names[..6], due);
    assert_eq!(names[6..], [("type", 4)]);
    assert_eq!(programs[0].event("one").doc, "One.");
    // Without listeners no argument is evaluated.
    let mut alone = Command::new(&program);
    assert_eq!(run(alone.env("KYMO_UST", "off")).stdout, b"0\n");
    let marker = Marker::find(&program, "every", "type");
    let sizes: Vec<_> = marker.arguments.split(' ').map(|a| a.split('@').next().unwrap()).collect();
    let due = "1 2 4 8 -1 -2 -4 -8 4 8 1 8 8 -2 1 8 8 8 8 8 -4 -4 -4 -4";
    assert_eq!(sizes.join(" ").trim_end(), due);
}

#[test]
fn filters_on_each_type() {
    if !require(COMPILERS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = every(dir.path());
    // Three events have numbers 1, 2 and 3.
    let filters = [
        ("u8_ >= 2", 2),
        ("u16_ == 3", 1),
        ("u32_ == 0xff02", 1),
        ("u64_ < 3", 2),
        ("i8_ == -1", 1),
        ("i16_ < -1", 2),
        ("i32_ != -2", 2),
        ("i64_ > -2", 1),
        ("f32_ > 1.5", 2),
        ("f64_ <= 1.75", 2),
        ("yes", 2),
        ("text == \"text\"", 2),
        ("text == \"(nu*\"", 1),
        ("part == \"te\" && payment == -1", 1),
        ("payment == 2", 2),
        ("day >= 6", 2),
        ("bytes == \"tex\"", 2),
        ("at == 0xabcd", 3),
        ("unknown == 3 || errno == 1", 2),
    ];
    for filters in filters.chunks(8) {
        let shared = Shared::new();
        for (i, (filter, _)) in filters.iter().enumerate() {
            shared.want(&format!("{i}"), &config("every:type", filter));
        }
        run_in(&shared, &program, &[]);
        let programs = shared.programs();
        let counts: Vec<_> = (0..filters.len()).map(|slot| count(&programs[0], slot)).collect();
        let due: Vec<u64> = filters.iter().map(|(_, count)| *count).collect();
        assert_eq!(counts, due, "{filters:?}");
    }
}

#[test]
fn strict_compilers_have_nothing_to_say() {
    if !require(COMPILERS) {
        return;
    }
    let mut tried = 0;
    for (compilers, standards, source) in [
        (["gcc", "clang"], &["c11", "gnu11", "c17"][..], "every.c"),
        (["g++", "clang++"], &["c++17", "gnu++17", "c++20"], "every_more.cpp"),
    ] {
        for compiler_name in compilers {
            let there = Command::new(compiler_name).arg("--version").output();
            if !there.is_ok_and(|output| output.status.success()) {
                continue;
            }
            for standard in standards {
                let mut command = compiler(compiler_name, &["-fsyntax-only"]);
                command.arg(format!("-std={standard}"));
                run(command.arg(here("tests/programs").join(source)));
                tried += 1;
            }
        }
    }
    assert!(tried >= 6, "gcc and g++ at least");
}

#[test]
fn callbacks_of_programs_and_libraries() {
    if !require(COMPILERS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (program, library) = (dir.path().join("callbacks"), dir.path().join("libcalls.so"));
    build(&["-rdynamic"], &["tests/programs/callbacks.c"], &program, &[&static_library()]);
    let flags = ["-shared", "-fPIC", "-DLIBRARY"];
    build(&flags, &["tests/programs/callbacks.c"], &library, &[]);
    let library = library.to_str().unwrap();
    // While a session listens as well, and without one.
    let shared = Shared::new();
    let mut wanted = config("calls:own", "");
    // An order is for programs that have one of its events when they start.
    wanted.rules.extend(config("calls:started", "").rules);
    shared.want("s", &wanted);
    assert_eq!(run_in(&shared, &program, &[library]), "fine\n");
    let programs = shared.programs();
    let with_ring = |program: &&Program| program.path.join("ring-0-1").exists();
    let lines = programs.iter().filter(with_ring).flat_map(|p| p.babeltrace(0, 1));
    let own = lines.filter(|line| line.contains("calls:own")).count();
    assert_eq!(own, 3, "once for each time that the library was loaded");
    let output = run(Command::new(&program).arg(library).env("KYMO_UST", "off"));
    assert_eq!(output.stdout, b"fine\n");
    let throwing = dir.path().join("throwing");
    build(&[], &["tests/programs/throwing.cpp"], &throwing, &[&static_library()]);
    assert_eq!(run(&mut Command::new(&throwing)).stdout, b"0\n1\n2\n0 0\n");
}

#[test]
fn wrong_descriptions_stay_off() {
    if !require(COMPILERS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let other = dir.path().join("other.o");
    let mut command = compiler("gcc", &["-std=gnu11", "-DOTHER", "-c"]);
    run(command.arg(here("tests/programs/wrong.c")).arg("-o").arg(&other));
    let program = dir.path().join("wrong");
    let library = static_library();
    build(&[], &["tests/programs/wrong.c"], &program, &[&other, &library]);
    let shared = Shared::new();
    shared.want("s", &config("wrong*", ""));
    run_in(&shared, &program, &[]);
    let programs = shared.programs();
    let lines = payloads(&programs[0].babeltrace(0, 1));
    let due = ["good { x = 1 }", "a_b { x = 1 }", "good { x = 2 }", "b { y = 3 }"];
    assert_eq!(lines[..4], due);
    assert_eq!(lines[4..], ["o d\"d{}\u{fffd} { }"]);
    assert_eq!(programs[0].events.len(), 4, "{:?}", programs[0].events);
    // Eleven that were made by hand, and the one of which two files say different things.
    assert!(programs[0].control.refused >= 12, "{}", programs[0].control.refused);
}

#[test]
fn nobody_need_be_there() {
    if !require(COMPILERS) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("every");
    let sources = ["tests/programs/every.c", "tests/programs/every_more.cpp"];
    build(&["-DKYMO_TRACEPOINT_OPTIONAL"], &sources, &program, &[]);
    assert_eq!(run(&mut Command::new(&program)).stdout, b"0\n");
}
