//! Results of programs: compiled, then run by a test interpreter.

mod common;
mod machine;

use common::TestFacts;
use kymo_bpf::{
    ActionKind, ClockOffsets, CompileOptions, CompiledProgram, ErrorKind, MapPurpose, ProgramEvent,
    ProgramInterpreter, ProgramRecords, compile, histogram_bucket_range,
};
use machine::{NOW, PID, TID, TestMachine};

fn compiled(text: &str) -> CompiledProgram {
    let options = CompileOptions { cpus: 2, ..CompileOptions::default() };
    compiled_with(text, &options)
}

fn compiled_with(text: &str, options: &CompileOptions) -> CompiledProgram {
    compile(text, options, &TestFacts::default()).unwrap_or_else(|e| panic!("{text}: {e:?}"))
}

/// Runs the body of a BEGIN probe; `@` must then hold `expected`.
fn check(body: &str, expected: i64) {
    let text = format!("BEGIN {{ {body} }}");
    let program = compiled(&text);
    let mut machine = TestMachine::new(&program);
    machine.run(&program.probes[0], 0);
    assert_eq!(machine.scalar("@"), expected, "{body}");
    // The same of what runs programs in user space.
    let mut interpreter = ProgramInterpreter::new(&program, ClockOffsets::default());
    interpreter.run(0, &event(&[]));
    assert_eq!(interpreter.runs(), (1, 0), "{body}");
    let map = program.maps.iter().position(|m| m.name == "@");
    let value = map.and_then(|map| interpreter.lookup(map, &[0; 4]));
    let value = value.as_deref().and_then(<[u8]>::first_chunk).copied();
    assert_eq!(value.map(i64::from_ne_bytes), Some(expected), "{body}");
}

/// The task and time that the machine of the tests has.
fn event(record: &[u8]) -> ProgramEvent<'_> {
    ProgramEvent {
        record,
        time: NOW,
        pid: PID as u32,
        tid: TID as u32,
        comm: b"machine",
        ..ProgramEvent::default()
    }
}

/// Compiles a program that is wrong; its message must contain `expected`.
fn refused(text: &str, line_column: (u32, u32), expected: &str) {
    let messages = compile(text, &CompileOptions::default(), &TestFacts::default())
        .err()
        .unwrap_or_else(|| panic!("{text}: compiles"));
    let message = &messages[0];
    assert!(message.text.contains(expected), "{text}: {message:?}");
    assert_eq!(
        (message.position.line, message.position.column),
        line_column,
        "{text}: {message:?}"
    );
}

#[test]
fn arithmetic() {
    check("@ = 1 + 2 * 3;", 7);
    check("$a = 7; $b = 2; @ = $a / $b + $a % $b;", 4);
    check("$a = -7; @ = $a / 2;", -3);
    check("$a = -7; @ = $a % 4;", -3);
    check("$a = 7; $b = -2; @ = $a / $b;", -3);
    check("$a = 1; @ = $a << 40;", 1 << 40);
    check("$a = -8; @ = $a >> 1;", -4);
    check("$a = 5; @ = ~$a;", -6);
    check("$a = 5; @ = -$a;", -5);
    check("$a = 0x1_0000_0000; @ = $a + 1;", 0x1_0000_0001);
    check("@ = 1e3 + 10ms;", 10_001_000);
    check("$a = 0; @ = 5 / $a;", 1);
    check("$t = (a = 2, b = (c = 7, d = 3)); @ = $t.b.c * 10 + $t.a;", 72);
    check("$t = (a = 1, b = 2); $t = (b = 3, a = 4); @ = $t.a * 10 + $t.b;", 43);
    check("@ = 0xff & 0x3c ^ 1 | 0x100;", (0xff & 0x3c) ^ 1 | 0x100);
    check("@ = 10; @ += 5; @ -= 3; @ *= 2;", 24);
    check("@++; @++; @--;", 1);
    check("$i = 5; $j = $i++; $k = ++$i; @ = $j * 100 + $k;", 507);
    check("$x = 10; $y = $x; $x = 3; @ = $y;", 10);
}

#[test]
fn casts() {
    check("$a = 300; @ = (uint8)$a;", 44);
    check("$a = 200; @ = (int8)$a;", -56);
    check("$a = -1; @ = (uint32)$a;", 0xffff_ffff);
    check("$a = 0x12345; @ = (uint16)$a;", 0x2345);
    check("@ = (int32)0xffffffff;", -1);
    check("$a = 0x1234; @ = bswap((uint16)$a);", 0x3412);
    // The type of a variable that is made of itself.
    check("$a = (uint16)0x1234; $a = bswap($a); @ = $a;", 0x3412);
    check("@ = sizeof(uint32) + sizeof(struct task_struct);", 4 + 56);
}

#[test]
fn conditions() {
    check("$a = 5; @ = $a > 3 && $a < 10;", 1);
    check("$a = 5; @ = $a > 3 && $a < 4;", 0);
    check("$a = 5; @ = $a == 1 || $a == 5 || $a == 7;", 1);
    check("$a = 5; @ = !($a == 5);", 0);
    check("$a = -1; if ($a < 0) { @ = 1 } else { @ = 2 }", 1);
    check("$a = 4; if ($a == 1) { @ = 1 } else if ($a == 4) { @ = 4 } else { @ = 9 }", 4);
    check("$a = 4; @ = $a == 4 ? 10 : 20;", 10);
    check("$a = 4; $b = $a == 4 ? ($a == 3 ? 1 : 2) : 3; @ = $b;", 2);
    check("$s = pid == 42 ? \"yes\" : \"no\"; if ($s == \"yes\") { @ = 7 }", 7);
    check("$a = 4; @ = 1 + if $a == 1 { 5 } else if $a == 4 { $b = 2; $b * 3 } else { 7 };", 7);
    check("if (pid) { @ = pid * 1000 + tid; }", (PID * 1000 + TID) as i64);
    check("if (false) { @ = 1 } else { @ = 2 }", 2);
}

#[test]
fn what_is_wrong_is_said_where_it_stands() {
    refused("BEGIN { fail(\"no %d of %s\", 3, \"x\"); }", (1, 9), "no 3 of x");
    refused("BEGIN { assert_str(5); }", (1, 9), "expected a string");
    refused("BEGIN { write_user(0, \"abc\", 5); }", (1, 9), "writes 1 to 4 bytes");
    refused("BEGIN { print(dw_ustack()); }", (1, 15), "dw_ustack() is not supported");
    refused(
        "config = { license = \"MIT\" } BEGIN { }",
        (1, 12),
        "Invalid value for license. Found: MIT. Valid values: Dual",
    );
    refused("config = { unstable_tseries = error } BEGIN { @ = tseries(1, 1s, 2); }", (1, 51), "");
    refused("BEGIN { print(if true { 1 }); }", (1, 28), "`else`");
}

#[test]
fn the_ring_is_as_large_as_what_it_is_for() {
    let ring = |text: &str| {
        let program = compiled(text);
        let ring = program.maps.iter().find(|map| map.purpose == MapPurpose::Ring);
        ring.map(|ring| ring.max_entries)
    };
    assert_eq!(ring("BEGIN { @ = count(); }"), None);
    assert_eq!(ring("BEGIN { @ = count(); print(@); clear(@); exit(); }"), Some(256 << 10));
    assert_eq!(ring("BEGIN { printf(\"x\"); exit(); }"), Some(4 << 20));
    assert_eq!(ring("config = { perf_rb_pages = 2 } BEGIN { exit(); }"), Some(8192));
}

/// Later events of any probe are not counted, and nothing of the event that ends the run is; END runs.
/// A program that does not call it checks nothing.
#[test]
fn exit_ends_the_run_in_the_kernel() {
    let event = "rawtracepoint:sched:sched_process_fork";
    let text = format!(
        "{event} {{ @ += 1; if (@ == 3) {{ exit(7); }} }} {event} {{ @b += 1; }} END {{ @c += 1; }}"
    );
    let program = compiled(&text);
    let mut machine = TestMachine::new(&program);
    for _ in 0..5 {
        machine.run(&program.probes[0], 0);
        machine.run(&program.probes[1], 0);
    }
    machine.run(&program.probes[2], 0);
    let counts = ["@", "@b", "@c"].map(|map| machine.scalar(map));
    assert_eq!(counts, [3, 2, 1]);
    assert_eq!(machine.entries("exit")[0].1, [1, 0, 0, 0, 7, 0, 0, 0]);

    let flags = |text: &str| {
        let program = compiled(text);
        program.maps.iter().filter(|map| map.purpose == MapPurpose::ExitFlag).count()
    };
    assert_eq!(flags(&format!("{event} {{ @ += 1; }}")), 0);
    assert_eq!(flags(&format!("{event} {{ @ += 1; }} END {{ exit(); }}")), 0);
    assert_eq!(flags(&format!("{event} {{ @ += 1; assert(@ < 9); }}")), 1);
    let in_user_space = CompileOptions { in_user_space: true, ..CompileOptions::default() };
    let program = compiled_with("BEGIN { exit(); }", &in_user_space);
    assert!(program.maps.iter().all(|map| map.purpose != MapPurpose::ExitFlag));
}

#[test]
fn loops() {
    check(
        "$i = 0; while ($i < 10) { $i++; if ($i == 3) { continue; } if ($i == 6) { break; } @ += $i; }",
        12,
    );
    check("for ($i : 1..5) { @ += $i; }", 10);
    check("for $i : 0..3 { for $j : 0..3 { @ += $i * $j; } }", 9);
    check("unroll(4) { @ += 2; }", 8);
    check("@m[1] = 10; @m[2] = 20; for ($kv : @m) { @ += $kv.0 * $kv.1; }", 50);
    check("$n = 3; @m[1] = 1; @m[2] = 2; for ($kv : @m) { $n += $kv.1; } @ = $n;", 6);
    check("@m[1, 5] = 1; for ($kv : @m) { @ = $kv.0.1; }", 5);
    check("@m[1] = 1; @m[2] = 2; for ($kv : @m) { @ += 1; break; }", 1);
    check("@m[1] = count(); @m[1] = count(); for ($kv : @m) { @ = $kv.1; }", 2);
    check("@m[1] = 1; @m[7] = 1; @ = len(@m);", 2);
    check("@ = 1; return; @ = 2;", 1);
}

/// A variable is one of its block; each pass of its declaration makes it 0 again.
#[test]
fn variables_end_with_their_block() {
    check("if (1) { $x = 5; } if (1) { let $x; if ($x) { $x = 6; } @ = $x + 1; }", 1);
    check("for $i : 0..4 { let $z; if ($i == 2) { $z = 42; } @ = $z + 1; }", 1);
    check("if (1) { $x = 5; } else { $x = \"text\"; } $x = 7; @ = $x;", 7);
    check("$x = 5; if (1) { $x = 6; } @ = $x;", 6);
    check("let $x = 5; { $y = $x; $x = $y + 1; } @ = $x;", 6);
    check("$x = { let $a = 2; $a * 3 }; let $a = 1; @ = $x + $a;", 7);
    check("@m[1] = 2; for ($kv : @m) { $a = $kv.0; $b = $kv.1; @m2[$a] = $b; @ = $a + $b; }", 3);
    refused("BEGIN { let $a = 1; let $a = 2; }", (1, 21), "already declared");
    refused("BEGIN { let $a = 1; if (1) { let $a = 2; } }", (1, 30), "already declared");
    refused("BEGIN { $i = 7; for $i : 0..2 { } }", (1, 17), "shadows existing variable: $i");
    refused("BEGIN { print($x); $x = 1; }", (1, 15), "Undefined or undeclared variable: $x");
    // Older programs do that; it is said.
    let text = "BEGIN { if (1) { $x = 5; } else { $x = 6; } @ = $x; }";
    let program = compiled(text);
    assert_eq!(program.warnings.len(), 1);
    assert!(program.warnings[0].text.starts_with("$x is used outside the block"));
    check("if (1) { $x = 5; } else { $x = 6; } @ = $x;", 5);
    let old = format!("config = {{ release = \"0.17\" }} {text}");
    assert!(compiled(&old).warnings.is_empty());
}

#[test]
fn a_return_in_a_loop_over_a_map_ends_the_probe() {
    check("@ = 1; @m[1] = 1; for ($kv : @m) { return; } @ = 2;", 1);
    check("@ = 1; @m[1] = 1; for ($kv : @m) { for ($kw : @m) { return; } @ = 2; } @ = 3;", 1);
    check("@m[1] = 1; for ($kv : @m) { for ($kw : @m) { break; } @ = 2; } @++;", 3);
    check("@m[1] = 1; for ($kv : @m) { if ($kv.0 == 9) { return; } } @ = 3;", 3);
    check("@ = 1; @m[1] = 1; for ($kv : @m) { exit(); } @ = 2;", 1);
}

/// Values that are equal to what the compiler might look for are not touched.
#[test]
fn no_value_is_taken_for_a_number_of_the_compilers() {
    for value in [0x5107_5107, 0x5107_5108, 0x5107_510a] {
        check(
            &format!(
                "$s = comm; @m[$s, \"{0}\"] = {value}; @ = @m[comm, \"{0}\"];",
                "x".repeat(200)
            ),
            value,
        );
        check(&format!("@m[(int32){value}] = 1; for ($kv : @m) {{ @ = $kv.0; }}"), value);
    }
}

#[test]
fn averages_of_negatives_are_negative() {
    check("@a = avg(-1); @a = avg(-10); @ = @a;", -5);
    check("@a = avg(-1); @a = avg(-10); if (@a < 0) { @ = 7; }", 7);
    check("@a[1] = avg(-9); @a[1] = avg(3); for ($kv : @a) { @ = $kv.1; }", -3);
    check("@a = avg(9); @a = avg(4); @ = @a;", 6);
}

#[test]
fn texts_that_are_not_known_are_searched_for() {
    check("$n = comm; @ = strcontains(\"the machine\", $n);", 1);
    check("$p = str_concat(\"/\", comm); $p = str_concat($p, \"x\"); @ = $p == \"/machinex\";", 1);
    check("@ = (bool)comm ? 5 : 7;", 5);
    check("$e = comm; if (1) { $e = \"\"; } @ = (bool)$e ? 5 : 7;", 7);
    check("$n = comm; @ = strstr(\"the machine\", $n);", 4);
    check("$n = comm; @ = strstr(\"the machin\", $n);", -1);
    check("$n = \"aab\"; $h = \"aaab\"; @ = strstr($h, $n);", 1);
    check("$n = \"\"; @ = strstr(comm, $n);", 0);
    check("@ = strcontains(probe, \"egi\");", 1);
    // What follows the NUL is no part of a text.
    check("$h = \"ab\\0cd\"; @ = strcontains($h, \"cd\") * 10 + strcontains($h, \"ab\");", 1);
    check("$h = \"ab\\0cd\"; $n = \"cd\"; @ = strcontains($h, $n);", 0);
}

#[test]
fn types_values_and_addresses() {
    check("$x = 0; $n = 5; @ = $x ?: ($n ?: 3);", 5);
    check("$n = 1; $x = $n++ ?: 9; @ = $n * 10 + $x;", 21);
    check("$t = (1, 7, 3); @ = $t[2 - 1];", 7);
    check("$a = 3; $p = &$a; $a = 4; @ = *$p;", 4);
    check("@m = 6; $p = &@m; @ = *$p;", 6);
    check("@ = sizeof(uint32*[10]) + sizeof(size_t) + sizeof(typeof(uint16));", 90);
    check("let $x = 1; let $y = 2; @ = if ($x) { if ($y == 3) { 5 } else { 6 } } else { 7 };", 6);
    check("@a = { let $b = 8; avg($b) }; @ = @a;", 8);
    check("@ = config().max_strlen + __builtin_config.max_strlen;", 2048);
    refused("BEGIN { $t = (1, 2); print($t[2]); }", (1, 28), "has no element 2");
    let text = "macro s(a, b) { sizeof(a[2]) + sizeof(b*) + sizeof(b) } \
                macro m(t) { sizeof(t) } macro n(z) { m(typeof(z)) } macro cpu(x) { x } \
                BEGIN { @ = s(typeof(uint64*), typeof(uint16)) * 100 + n(typeof(uint32)) + cpu(3); }";
    let program = compiled(text);
    let mut machine = TestMachine::new(&program);
    machine.run(&program.probes[0], 0);
    assert_eq!(machine.scalar("@"), (16 + 8 + 2) * 100 + 4 + 3);
}

#[test]
fn texts() {
    check("if (comm == \"machine\") { @ = 1 }", 1);
    check("if (comm == \"mach\") { @ = 1 } else { @ = 2 }", 2);
    check("if (comm != \"machines\") { @ = 1 }", 1);
    check("$a = \"abc\"; $a = \"abcdefghij\"; @ = strlen($a);", 10);
    check("$c = comm; @ = strcontains($c, \"chin\") * 10 + strcontains($c, \"chim\");", 10);
    check("$c = comm; @ = strstr($c, \"hine\");", 3);
    check("@ = strncmp(comm, \"mac\", 3) == 0 ? 1 : 2;", 1);
    check("@ = strncmp(comm, \"max\", 3) == 0 ? 1 : 2;", 2);
    check("@m[comm] = 5; @ = @m[\"machine\"];", 5);
    check("@m[\"a\", 1] = 5; @ = @m[\"a\", 1] + @m[\"b\", 1];", 5);
    check(
        "@m[1] = \"longer text than one word\"; if (@m[1] == \"longer text than one word\") { @ = 1 }",
        1,
    );
    check("$a = \"x\"; @ = $a[0];", 120);
    check("$b = buf(\"a\\nb\", 3); @m[$b] = 4; @ = @m[buf(\"a\\nb\", 3)];", 4);
    check("$t = (1, \"abc\", 3); if ($t.1 == \"abc\") { @ = $t.0 + $t.2; }", 4);
    check("@t[1] = (5, 6); $t = @t[1]; @ = $t.1;", 6);
    check("$k = (3, \"x\"); @m[$k] = 9; @ = @m[3, \"x\"] + has_key(@m, $k);", 10);
}

#[test]
fn maps() {
    check("@m[5] = 6; delete(@m, 5); @ = has_key(@m, 5) + @m[5];", 0);
    check("@m[5] = 6; $d = delete(@m, 5); $e = delete(@m, 5); @ = $d * 10 + $e;", 10);
    check("@m[5]++; @m[5]++; @ = @m[5];", 2);
    check("@m[5] += 3; @m[5] -= 1; @ = @m[5];", 2);
    check("@c = count(); @c = count(); @ = @c > 1 ? 5 : 6;", 5);
    check("@s = sum(5); @s = sum(-2); @ = (int64)@s;", 3);
    check("@a[1] = avg(10); @a[1] = avg(20); @ = (int64)@a[1];", 15);
    check(
        "@a = min(10); @a = min(20); @b = max(10); @b = max(20); @ = (int64)@a * 100 + (int64)@b;",
        1020,
    );
    check("@a = max(-5); @a = max(-9); @ = (int64)@a;", -5);
}

#[test]
fn macros_and_options() {
    let text = "macro twice(x) { x + x } macro grow($v, by) { $v += by; } macro put(@m) { @m = 3; }
        BEGIN { $a = 4; grow($a, 2); put(@b); @ = twice($a) + @b; }";
    let program = compiled(text);
    let mut machine = TestMachine::new(&program);
    machine.run(&program.probes[0], 0);
    assert_eq!(machine.scalar("@"), 15);
    let program = compiled("import \"lib.bt\"; import stdlib; BEGIN { @ = seven; }");
    let mut machine = TestMachine::new(&program);
    machine.run(&program.probes[0], 0);
    assert_eq!(machine.scalar("@"), 7);
    let text = "macro deep() { getopt(\"deep\", false, \"how\") }
        BEGIN { @ = getopt(\"size\", 3) + $1 * 10; if deep { @d = 1; } @n = $#; }";
    let parameters = ["7", "--size=5", "--deep"].map(String::from).to_vec();
    let options = CompileOptions { parameters, ..CompileOptions::default() };
    let program = compiled_with(text, &options);
    let mut machine = TestMachine::new(&program);
    machine.run(&program.probes[0], 0);
    assert_eq!([machine.scalar("@"), machine.scalar("@d"), machine.scalar("@n")], [75, 1, 1]);
    assert_eq!(program.options.len(), 2);
    assert_eq!(program.options[1].default, "false");
}

#[test]
fn histograms() {
    let program = compiled(
        "BEGIN { for ($i : 0..1000) { @h = hist($i * $i); @k[1] = hist($i * 3, 2); @l = lhist($i, 10, 100, 7); } @n = hist(-3); }",
    );
    let mut machine = TestMachine::new(&program);
    machine.run(&program.probes[0], 0);
    let counts = |name: &str| {
        let value = machine.entries(name)[0].1.clone();
        let words = value.chunks_exact(8).map(|w| u64::from_le_bytes(*w.first_chunk().expect("8")));
        words.collect::<Vec<u64>>()
    };
    let expected = |bits: u8, values: &mut dyn Iterator<Item = u64>, buckets: usize| {
        let mut counts = vec![0; buckets];
        for value in values {
            let inside = |b: &usize| {
                let (from, to) = histogram_bucket_range(bits, *b as u32);
                from.is_some_and(|f| f <= value) && to.is_none_or(|t| value < t)
            };
            counts[(0..buckets).find(inside).expect("a bucket")] += 1;
        }
        counts
    };
    let found = counts("@h");
    assert_eq!(found, expected(0, &mut (0..1000).map(|i| i * i), found.len()));
    let found = counts("@k");
    assert_eq!(found, expected(2, &mut (0..1000).map(|i| i * 3), found.len()));
    assert_eq!(counts("@n")[0], 1);
    let mut linear = vec![0; 14];
    for i in 0..1000i64 {
        let bucket = if i < 10 {
            0
        } else if i >= 100 {
            13
        } else {
            1 + (i - 10) / 7
        };
        linear[bucket as usize] += 1;
    }
    assert_eq!(counts("@l"), linear);
}

#[test]
fn records_of_the_ring() {
    let program = compiled(
        "BEGIN { $x = -2; printf(\"%d %s %s\\n\", $x, comm, \"lit\"); print((1, \"a\")); clear(@m); @m[1] = 1; exit(3); @after = 1; }",
    );
    let mut machine = TestMachine::new(&program);
    machine.run(&program.probes[0], 0);
    assert_eq!(machine.records.len(), 4);
    for (n, record) in machine.records.iter().enumerate() {
        let action = u64::from_le_bytes(*record.first_chunk().expect("8")) as usize;
        assert_eq!(action, n);
        assert_eq!(record.len() as u32, program.actions[n].size);
    }
    let record = &machine.records[0];
    let fields = &program.actions[0].fields;
    let bytes = |n: usize| {
        let (at, size) = (fields[n].offset as usize, fields[n].size as usize);
        record[at..at + size].to_vec()
    };
    assert_eq!(bytes(0), (-2i64).to_le_bytes());
    assert_eq!(bytes(1), b"machine\0\0\0\0\0\0\0\0\0");
    assert_eq!(bytes(2), b"lit\0\0\0\0\0");
    assert!(matches!(program.actions[3].kind, ActionKind::Exit));
    assert_eq!(machine.scalar("@after"), 0);
}

#[test]
fn a_text_ends_the_record_where_its_nul_is() {
    let program = compiled("uprobe:/bin/x:f { printf(\"%s %d %s\\n\", str(arg0), 7, comm); }");
    let mut machine = TestMachine::new(&program);
    let text = machine.place(b"some/path\0garbage");
    let mut registers = vec![0u8; 168];
    registers[112..120].copy_from_slice(&text.to_le_bytes());
    let context = machine.place(&registers);
    machine.run(&program.probes[0], context);
    let (record, action) = (&machine.records[0], &program.actions[0]);
    assert_eq!(action.fields[0].offset, 8 + 8 + 16);
    assert_eq!(record[32..], *b"some/path\0");
    assert_eq!(record[8..16], 7u64.to_le_bytes());
    assert_eq!(&record[16..23], b"machine");
    // Memory that cannot be read: an empty text, counted.
    let nothing = machine.place(&[0; 168]);
    machine.run(&program.probes[0], nothing);
    assert_eq!(machine.records[1][32..], [0]);
}

#[test]
fn losses_are_counted_by_site() {
    let text = "config = { max_map_keys = 2 }\nBEGIN {\n @c[1] = count();\n for ($i : 0..5) {\n  @m[$i] = 1;\n  @c[$i] = count();\n }\n print(1);\n @t = str(5);\n}";
    let program = compiled(text);
    let mut machine = TestMachine::new(&program);
    machine.ring_full = true;
    machine.run(&program.probes[0], 0);
    let errors = program.maps.iter().find(|m| m.purpose == MapPurpose::ErrorCounters);
    let counters = machine.entries(&errors.expect("counters").name);
    let counted = |kind: &dyn Fn(&ErrorKind) -> bool, line: u32| {
        let site = |s: &kymo_bpf::ErrorSite| kind(&s.kind) && s.position.line == line;
        let at = program.error_sites.iter().position(site).expect("a site");
        u64::from_le_bytes(*counters[at].1.first_chunk().expect("8"))
    };
    assert_eq!(counted(&|k| matches!(k, ErrorKind::MapFull { .. }), 5), 3);
    assert_eq!(counted(&|k| matches!(k, ErrorKind::MapFull { .. }), 6), 3);
    assert_eq!(counted(&|k| matches!(k, ErrorKind::RingFull), 8), 1);
    assert_eq!(counted(&|k| matches!(k, ErrorKind::ReadFailed), 9), 1);
}

#[test]
fn members_of_structures() {
    let text = "struct inner { short a; unsigned b:3; unsigned c:5; };
        struct outer { int x; struct inner i; struct outer *next; char name[8]; int list[4]; };
        uprobe:/bin/x:f {
          $o = (struct outer *)arg0;
          @ = $o->x * 1000 + $o->i.a * 100 + $o->i.b * 10 + $o->i.c;
          @next = $o->next->list[2];
          if ($o->name == \"ab\") { @name = 1; }
          @n[$o->name] = 1;
          $i = 1; @dyn = $o->list[$i + 1];
          @copy = $o->i;
        }";
    let program = compiled(text);
    let mut machine = TestMachine::new(&program);
    let record = |next: u64, list2: i32| {
        let mut bytes = Vec::new();
        bytes.extend(5i32.to_le_bytes());
        bytes.extend((-2i16).to_le_bytes());
        // The bit fields share the unit of 4 bytes that the short begins.
        bytes.extend([3 | 9 << 3, 0]);
        bytes.extend(next.to_le_bytes());
        bytes.extend(b"ab\0\0\0\0\0\0");
        for n in [1, 2, list2, 4] {
            bytes.extend(n.to_le_bytes());
        }
        bytes
    };
    let second = machine.place(&record(0, 77));
    let first = machine.place(&record(second, 33));
    let mut registers = vec![0u8; 168];
    registers[112..120].copy_from_slice(&first.to_le_bytes());
    let context = machine.place(&registers);
    machine.run(&program.probes[0], context);
    assert_eq!(machine.scalar("@"), 5000 - 200 + 30 + 9);
    assert_eq!(machine.scalar("@next"), 77);
    assert_eq!(machine.scalar("@name"), 1);
    assert_eq!(machine.scalar("@dyn"), 33);
    assert_eq!(machine.entries("@n")[0].0, b"ab\0\0\0\0\0\0");
    assert_eq!(machine.entries("@copy")[0].1[..2], (-2i16).to_le_bytes());
}

#[test]
fn mistakes_are_reported_with_their_place() {
    refused("BEGIN { @ = 1 + ; }", (1, 17), "expected an expression, found `;`");
    refused("BEGIN { @ = \"a\" }\nEND { @ = 1; }", (2, 7), "@ holds string[2]");
    refused("BEGIN { printf(\"%d %d\", 1); }", (1, 9), "format needs 2 arguments, got 1");
    refused("BEGIN { printf(\"%d\", \"a\"); }", (1, 9), "%d cannot show string");
    refused("BEGIN { foo(); }", (1, 9), "unknown function foo()");
    refused("BEGIN { @ = foo; }", (1, 13), "unknown name \"foo\"");
    refused(
        "kprobe:f { $s = (struct sock *)arg0; @ = $s->skc; }",
        (1, 42),
        "has no member \"skc\"",
    );
    refused("BEGIN { @ = arg0; }", (1, 13), "arg0 is not available in BEGIN");
    refused("kprob:f { }", (1, 1), "no such probe type \"kprob\"");
    refused("BEGIN { @ = lhist(1, 0, 100000, 1); }", (1, 13), "buckets");
    refused("BEGIN { break; }", (1, 9), "break outside of a loop");
    refused("BEGIN { $x = $y; }", (1, 14), "Undefined or undeclared variable: $y");
    refused("BEGIN { @a[1] = 1; @a = 2; }", (1, 20), "@a has keys elsewhere");
    refused("BEGIN { } import \"x.bt\"", (1, 11), "cannot import \"x.bt\": no such file");
    refused("", (1, 1), "program has no probe");
    refused("BEGIN {", (1, 8), "found the end of the program");
    let deep = format!("BEGIN {{ @ = {}1{}; }}", "(".repeat(5000), ")".repeat(5000));
    let messages = compile(&deep, &CompileOptions::default(), &TestFacts::default());
    assert!(messages.expect_err("too deep")[0].text.contains("nested deeper"));
    let long = format!("BEGIN {{ @ = 1{}; }}", " + 1".repeat(5000));
    let messages = compile(&long, &CompileOptions::default(), &TestFacts::default());
    assert!(messages.expect_err("too deep")[0].text.contains("deeper"));
}

fn in_user_space(text: &str) -> CompiledProgram {
    let options =
        CompileOptions { in_user_space: true, raw_tracepoints: false, ..CompileOptions::default() };
    compiled_with(text, &options)
}

/// Entries of a map by name.
fn entries(
    program: &CompiledProgram,
    interpreter: &ProgramInterpreter,
    name: &str,
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let map = program.maps.iter().position(|m| m.name == name).expect("a map");
    interpreter.entries(map)
}

#[test]
fn records_are_evaluated_in_user_space() {
    if !kymo_testkit::require(&[kymo_testkit::Need::Tracefs]) {
        return;
    }
    let program = in_user_space(
        "tracepoint:sched:sched_switch /args.prev_pid > 10 && args.next_comm == \"task\"/
         { @n[args.prev_comm, args.next_pid] = count(); @h = hist(args.prev_pid);
           @s[kstack] = count(); printf(\"%d\", args.prev_pid); }",
    );
    assert_eq!(program.probes[0].condition.as_deref(), Some("prev_pid > 10"));
    let text = common::format_text("sched", "sched_switch").unwrap();
    let format = kymo_format::EventFormat::parse(&text).unwrap();
    let place = |name| format.field(name).unwrap().offset as usize;
    let record = |prev_pid: u32, next: &[u8]| {
        let mut record = vec![0u8; 64];
        let mut set = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
        set(place("prev_comm"), b"before");
        set(place("prev_pid"), &prev_pid.to_ne_bytes());
        set(place("next_comm"), next);
        set(place("next_pid"), &77u32.to_ne_bytes());
        record
    };
    let mut interpreter = ProgramInterpreter::new(&program, ClockOffsets::default());
    assert!(interpreter.needs().stacks && !interpreter.needs().owner);
    let (kernel, user) = (-128i64 as u64, -512i64 as u64);
    let chain = [kernel, 0xffff_ffff_8100_0001, 0xffff_ffff_8100_0002, user, 0x40_0000];
    for (pid, next) in [(11, &b"task"[..]), (10, b"task"), (12, b"task"), (13, b"tasks")] {
        let record = record(pid, next);
        interpreter.run(0, &ProgramEvent { chain: &chain, ..event(&record) });
    }
    assert_eq!(interpreter.runs(), (4, 0));
    let counted = entries(&program, &interpreter, "@n");
    assert_eq!(counted.len(), 1);
    assert!(counted[0].0.starts_with(b"before\0"));
    assert_eq!(counted[0].1, 2u64.to_ne_bytes());
    let stacks = entries(&program, &interpreter, "stacks");
    assert_eq!(stacks.len(), 1);
    let frames: Vec<u64> =
        stacks[0].1.chunks(8).take(3).map(|f| u64::from_ne_bytes(f.try_into().unwrap())).collect();
    assert_eq!(frames, [chain[1], chain[2], 0]);
    let mut records = ProgramRecords::default();
    interpreter.swap_records(&mut records);
    let printed: Vec<&[u8]> = records.iter().collect();
    assert_eq!(printed.len(), 2);
    assert_eq!(printed[1][8..12], 12u32.to_ne_bytes());
    // A record that is cut ends the run, which is counted.
    interpreter.run(0, &event(&[0; 12]));
    assert_eq!(interpreter.runs(), (5, 1));
}

#[test]
fn endless_runs_and_full_maps_end_in_user_space() {
    let options = CompileOptions { kernel: (6, 18), in_user_space: true, ..Default::default() };
    let program = compiled_with("BEGIN { while (1) { @ += 1; } }", &options);
    let mut interpreter = ProgramInterpreter::new(&program, ClockOffsets::default());
    interpreter.run(0, &event(&[]));
    assert_eq!(interpreter.runs(), (1, 1));
    let program = in_user_space(
        "config = { max_map_keys = 3 } BEGIN { for ($i : 0..5) { @m[$i] = $i; } delete(@m, 1);
         @m[9] = 1; }",
    );
    let mut interpreter = ProgramInterpreter::new(&program, ClockOffsets::default());
    interpreter.run(0, &event(&[]));
    let mut keys: Vec<u64> = entries(&program, &interpreter, "@m")
        .iter()
        .map(|(key, _)| u64::from_ne_bytes(key[..8].try_into().unwrap()))
        .collect();
    keys.sort_unstable();
    assert_eq!(keys, [0, 2, 9]);
    let program = in_user_space(
        "let @m = lruhash(8); BEGIN { for ($i : 0..1000) { @m[$i] = $i; @m[3] = 4; } }",
    );
    let mut interpreter = ProgramInterpreter::new(&program, ClockOffsets::default());
    interpreter.run(0, &event(&[]));
    let kept = entries(&program, &interpreter, "@m");
    assert_eq!(kept.len(), 8);
    assert!(kept.iter().any(|(key, _)| key[..8] == 3u64.to_ne_bytes()));
}

#[test]
fn what_only_the_kernel_has_is_refused_in_user_space() {
    let options =
        CompileOptions { in_user_space: true, raw_tracepoints: false, ..CompileOptions::default() };
    let check = |text: &str, (line, column), expected: &str| {
        let messages = compile(text, &options, &TestFacts::default())
            .err()
            .unwrap_or_else(|| panic!("{text}: compiles"));
        let message = &messages[0];
        assert!(message.text.contains(expected), "{text}: {message:?}");
        let at = (message.position.line, message.position.column);
        assert_eq!(at, (line, column), "{text}: {message:?}");
    };
    check("BEGIN { }\nkprobe:vfs_read { @ = count(); }", (2, 1), "kprobe probes");
    check("BEGIN { } watchpoint:0x1000:8:w { @ = count(); }", (1, 11), "watchpoint probes");
    check("BEGIN { @ = 1; signal(\"KILL\"); }", (1, 16), "signal()");
    check("BEGIN { @ = curtask->pid; }", (1, 13), "the task's structure");
    check("BEGIN { @ = str(5); }", (1, 13), "memory that a pointer points to");
    check("BEGIN { @ = *(uint64 *)5; }", (1, 13), "memory that a pointer points to");
    check("software:page-faults:1 { @ = reg(\"ip\"); }", (1, 30), "registers");
}
