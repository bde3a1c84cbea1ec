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
}

#[test]
fn what_is_no_type_is_passed_over() {
    let header = "#ifndef OWN_H\n#define OWN_H\n#include_next <x.h>\n\
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
    // One type alone.
    let alone = [
        ("struct a { float f; };", "struct a"),
        ("struct a { float f; }; struct b { struct a a; };", "struct b"),
        ("struct a { float f; }; typedef struct a a_t; struct b { a_t a[2]; };", "struct b"),
        ("struct a { int n[2 * 3]; };", "struct a"),
        ("struct a { int n[UNKNOWN]; };", "struct a"),
        ("struct a { int i __attribute__((aligned(16))); };", "struct a"),
        ("struct a { int i; } __attribute__((aligned(16)));", "struct a"),
        ("enum e { A = 1 << 3 }; struct a { enum e e; };", "struct a"),
        // The kernel has one of that name, which is not meant.
        ("struct path { float f; };", "struct path"),
    ];
    for (header, name) in alone {
        assert_eq!(refused(header, name), [], "{header}");
    }
    // The whole header, as it is said at the line that includes it.
    let whole = [
        ("#pragma pack(1)\nstruct a { char c; int i; };", "line 1: #pragma pack"),
        ("#if VERSION > 3\n#endif\nstruct a { int i; };", "line 1: #if VERSION > 3 is not"),
        ("\n#ifdef __s390__\n#endif\nstruct a { int i; };", "line 2: whether __s390__ is"),
        ("#if 0\n#elif 1\n#endif\nstruct a { int i; };", "line 2: #elif"),
    ];
    for (header, why) in whole {
        let warnings = refused(header, "struct a");
        assert_eq!(warnings.len(), 1, "{header}");
        let text = &warnings[0].text;
        assert!(
            text.starts_with("types of 'own.h' are not taken: ") && text.contains(why),
            "{text}"
        );
        assert_eq!(warnings[0].position.line, 1);
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
