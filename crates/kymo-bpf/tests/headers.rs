//! Types of headers of the user's own, and probes that are chosen by name.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

mod common;
mod machine;

use common::TestFacts;
use kymo_bpf::{CompileOptions, CompiledProgram, SourceMessage, compile};
use machine::TestMachine;

fn compiled(header: &str, text: &str) -> Result<CompiledProgram, SourceMessage> {
    let headers = vec![("own.h", header.to_owned())];
    let facts = TestFacts { headers, ..TestFacts::default() };
    let text = format!("#include <own.h>\n{text}");
    compile(&text, &CompileOptions::default(), &facts).map_err(|mut messages| messages.remove(0))
}

/// A number that a program computes of a header's types.
#[track_caller]
fn check(header: &str, value: &str, expected: i64) {
    let program = compiled(header, &format!("BEGIN {{ @ = {value}; }}"));
    let program = program.unwrap_or_else(|e| panic!("{header}: {e:?}"));
    assert_eq!(program.warnings, [], "{header}");
    let mut machine = TestMachine::new(&program);
    machine.run(&program.probes[0], 0);
    assert_eq!(machine.scalar("@"), expected, "{header}: {value}");
}

/// A type of a header that may not be what it is in C, or is not known.
#[track_caller]
fn refused(header: &str, type_name: &str) -> Vec<SourceMessage> {
    let is_known = compiled(header, &format!("BEGIN {{ @ = sizeof({type_name}); }}"));
    assert!(is_known.is_err(), "{header}: {type_name}");
    // What does not need it compiles.
    compiled(header, "BEGIN { @ = 1; }").unwrap().warnings
}

#[test]
fn types_of_a_header_are_laid_out_as_in_c() {
    check("struct a { char c; int i; };", "sizeof(struct a)", 8);
    check("struct a { char c; int i; };", "offsetof(struct a, i)", 4);
    check("typedef struct { short s[3]; void *p; } a_t;", "sizeof(a_t)", 16);
    check("struct a { char c; int i; } __attribute__((packed));", "sizeof(struct a)", 5);
    check("struct __attribute__((packed)) a { char c; int i; };", "sizeof(struct a)", 5);
    check("enum e { ONE = 1, TWO };", "TWO", 2);
    check("#define N 5\nstruct a { char name[N]; };", "sizeof(struct a)", 5);
    check(
        "struct a { union { int i; char c[12]; }; int (*f)(int, char *); };",
        "sizeof(struct a)",
        24,
    );
    // Pointers to what is not known.
    check("struct a { struct none *p; float *f; };", "sizeof(struct a)", 16);
    check("typedef int a_t, b_t[2], *c_t;", "sizeof(b_t) + sizeof(c_t)", 16);
}

#[test]
fn what_is_no_type_is_passed_over() {
    let header = "#ifndef OWN_H\n#define OWN_H\n#include_next <limits.h>\n\
                  #define MAX(a, b) ((a) > (b) ? (a) : (b)) /* a macro */\n#pragma once\n\
                  extern int f(struct a *a, int n[3]);\n\
                  static inline int g(void) { struct { int i; } s = { 1 }; return s.i; }\n\
                  static const char *names[] = { \"}\", \"{\" };\n_Static_assert(1, \"no\");\n\
                  struct a { int i; } one = { 1 }, *two;\n#ifdef __cplusplus\n}\n#endif\n\
                  struct b { struct a a[2]; };\n#endif // OWN_H\n";
    check(header, "sizeof(struct b)", 8);
    check(
        "#if 0\nstruct a { int i; };\n#else\nstruct a { char c; };\n#endif",
        "sizeof(struct a)",
        1,
    );
    check(
        "#if defined(X)\nstruct a { int i; };\n#endif\nstruct b { char c; };",
        "sizeof(struct b)",
        1,
    );
    check("#define X\n#if !defined(X)\n#else\nstruct a { int i; };\n#endif", "sizeof(struct a)", 4);
}

#[test]
fn a_type_that_may_be_a_different_one_is_none() {
    let alone = [
        ("struct a { int n[UNKNOWN]; };", "struct a"),
        ("struct a { int n[UNKNOWN]; }; struct b { struct a a; };", "struct b"),
        ("struct a { int n[UNKNOWN]; }; typedef struct a a_t; struct b { a_t a[2]; };", "struct b"),
        ("struct a { int i __attribute__((mode(DI))); };", "struct a"),
        ("enum e { A = UNKNOWN }; struct a { enum e e; };", "struct a"),
        // The kernel has one of that name, which is not meant.
        ("struct path { int n[UNKNOWN]; };", "struct path"),
    ];
    for (header, name) in alone {
        assert_eq!(refused(header, name), [], "{header}");
    }
}

/// Values as gcc for x86-64 has them.
#[test]
fn sizes_and_alignments_are_computed() {
    check("struct a { char c; float f; double d; };", "sizeof(struct a)", 16);
    check("struct a { char c; long double d; };", "sizeof(struct a)", 32);
    check("struct a { int n[2 * 3]; };", "sizeof(struct a)", 24);
    check(
        "struct s { long l; }; struct a { char n[4 * sizeof(struct s)]; };",
        "sizeof(struct a)",
        32,
    );
    check(
        "typedef struct { unsigned long v[(1024 / (8 * sizeof (unsigned long int)))]; } a_t;",
        "sizeof(a_t)",
        128,
    );
    check("struct a { char c; int i __attribute__((aligned(16))); };", "offsetof(struct a, i)", 16);
    check("struct a { int i; } __attribute__((aligned(16)));", "sizeof(struct a)", 16);
    check(
        "struct a { int i; } __attribute__((__aligned__(16))); struct b { char c; struct a a; };",
        "offsetof(struct b, a)",
        16,
    );
    // A packed structure in another one is not aligned either.
    check(
        "struct a { char c; int i; } __attribute__((packed)); struct b { char c; struct a a; };",
        "sizeof(struct b)",
        6,
    );
    check("struct a { char c; int i __attribute__((packed)); };", "sizeof(struct a)", 5);
    check("#pragma pack(1)\nstruct a { char c; int i; };", "sizeof(struct a)", 5);
    let pushed = "#pragma pack(push, 2)\nstruct a { char c; int i; };\n#pragma pack(pop)\n\
                  struct b { char c; int i; };";
    check(pushed, "sizeof(struct a)", 6);
    check(pushed, "sizeof(struct b)", 8);
    check("enum e { A = 1 << 3, B, C = A | 1, D = -1 }; struct a { enum e e; };", "B", 9);
    check(
        "enum e { A = 1 << 3, B, C = A | 1, D = -1 }; struct a { enum e e; };",
        "sizeof(struct a)",
        4,
    );
    check("enum e { A = 0x100000000 }; struct a { enum e e; };", "sizeof(struct a)", 8);
    // A bit field without a name takes room, and one of no bits ends the unit.
    check("struct a { int a : 4; int : 0; int b : 4; };", "sizeof(struct a)", 8);
}

/// As a compiler of this machine reads them.
#[test]
fn conditions_and_macros_are_those_of_the_machine() {
    let word = "#if defined __x86_64__ && defined __LP64__ && __WORDSIZE == 64\n\
                #define N 64\n#elif defined __i386__\n#define N 32\n#else\n#define N 1\n#endif\n";
    check(word, "N", 1);
    check(&format!("#define __WORDSIZE 64\n{word}"), "N", 64);
    check("#ifdef __linux__\n#if __GNUC__ >= 4\n#define N 7\n#endif\n#endif", "N", 7);
    check("#if UNKNOWN > 3 || !defined(UNKNOWN) // a comment\n#define N 2\n#endif", "N", 2);
    check("#if 0\n#elif 1\n#define N 3\n#else\n#define N 4\n#endif", "N", 3);
    check("#define F(a, b) ((a) * 10 + b)\n#define N F(2, 3)", "N", 23);
    check("#define PASTE(a) N_##a\n#define N_X 5\n#define N PASTE(X)", "N", 5);
    check("#define G(x) x\n#define F G\n#define N F(9)", "N", 9);
    check(
        "#define V(a, ...) H(a, __VA_ARGS__)\n#define H(a, b, c) c\n#define N V(1, 2, 3)",
        "N",
        3,
    );
    check("#define A B\n#define B A\n#define N (1UL << 40 | 0x10 | 010)", "N", 1 << 40 | 0x18);
    check("#define N (-(5 % 3) + (3 > 2 ? 'a' : 0))", "N", 95);
    check("#define TYPE(n) struct n { char c[sizeof(int)]; }\nTYPE(a);", "sizeof(struct a)", 4);
    check(
        "#define TYPE(n, \\\n   m) struct n { m; }\nTYPE(a,\n char c[3]);",
        "sizeof(struct a)",
        3,
    );
    check("#define int_t long /* wide */\nstruct a { int_t a; };", "sizeof(struct a)", 8);
    // Two that include each other, each once.
    let (arm, of) = ("aarch64".to_owned(), "own.h");
    let header = "#ifdef __aarch64__\n#define N 1\n#else\n#define N 2\n#endif".to_owned();
    let facts = TestFacts { headers: vec![(of, header)], ..TestFacts::default() };
    let options = CompileOptions { arch: arm, ..CompileOptions::default() };
    let program = compile("#include <own.h>\nBEGIN { @ = N; }", &options, &facts).unwrap();
    let mut machine = TestMachine::new(&program);
    machine.run(&program.probes[0], 0);
    assert_eq!(machine.scalar("@"), 1);
}

#[test]
fn headers_that_do_not_end_are_cut() {
    for header in [
        "#include <own.h>\nstruct a { int i; };",
        "#define A A A A A A\n#define B A A A\nB B B\nstruct a { int i; };",
        "#if ((((((\n#endif\n#define F(\n#define G(a) a G(a)\nG(G(\nstruct a { int i; };",
    ] {
        assert!(compiled(header, "BEGIN { @ = 1; }").is_ok(), "{header}");
    }
}

#[test]
fn a_program_asks_for_what_the_compiler_defines() {
    let text = "#ifdef __x86_64__\nBEGIN { @ = 1; }\n#elif defined(OWN)\nBEGIN { @ = 2; }\n\
                #else\nBEGIN { @ = 3; }\n#endif";
    for (arch, expected) in [("x86_64", 1), ("aarch64", 2)] {
        let headers = vec![("own.h", "#define OWN".to_owned())];
        let facts = TestFacts { headers, ..TestFacts::default() };
        let options = CompileOptions { arch: arch.to_owned(), ..CompileOptions::default() };
        let program = compile(&format!("#include <own.h>\n{text}"), &options, &facts).unwrap();
        let mut machine = TestMachine::new(&program);
        machine.run(&program.probes[0], 0);
        assert_eq!(machine.scalar("@"), expected, "{arch}");
    }
}

#[test]
fn a_programs_own_types_stand_above_those_of_headers() {
    let header = "struct a { int i; };";
    let program =
        compiled(header, "struct a { char c; }; BEGIN { @ = sizeof(struct a); }").unwrap();
    let mut machine = TestMachine::new(&program);
    machine.run(&program.probes[0], 0);
    assert_eq!(machine.scalar("@"), 1);
    // A name that a header gives a type is one in casts.
    let text = "BEGIN { @ = ((a_t *)0x1000)->i; }";
    assert!(compiled("typedef struct { int i; } a_t;", text).is_ok());
}

#[test]
fn probes_are_chosen_by_name() {
    let facts = TestFacts { wanted: Some(":200"), ..TestFacts::default() };
    let run = |text: &str| compile(text, &CompileOptions::default(), &facts);
    let text =
        "BEGIN { @ = 1; } interval:ms:100 { @ = 2; } interval:ms:200 { @ = 3; } END { @ = 4; }";
    let program = run(text).unwrap();
    let points: Vec<&str> =
        program.probes.iter().flat_map(|p| &p.points).map(|p| p.name.as_str()).collect();
    assert_eq!(points, ["BEGIN", "interval:ms:200", "END"]);
    let messages = run("BEGIN { @ = 1; } interval:ms:100 { @ = 2; }").unwrap_err();
    assert!(messages[0].text.starts_with("No probes to attach"), "{messages:?}");
    assert!(run("BEGIN { @ = 1; }").is_ok());
}
