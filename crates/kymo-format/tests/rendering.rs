//! Fields, bytes and the line they make, beside each other. Expectations are
//! what the kernel's `vsnprintf` and trace helpers write for these values.
#![allow(clippy::unwrap_used, reason = "tests")]

use kymo_format::{
    EventFormat, FieldKind, KernelSymbol, ParseOptions, PointerStyle, RenderContext, Symbols, Value,
};
use kymo_model::Endian;

/// Own fields as (declaration, size, signed, bytes); laid out from offset 8.
fn event(fields: &[(&str, u32, u8, &[u8])], print: &str) -> (EventFormat, Vec<u8>) {
    let mut text = String::from(
        "name: x\nID: 300\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n",
    );
    let mut payload = vec![0x2c, 1, 0, 0, 0, 0, 0, 0];
    for (decl, size, signed, bytes) in fields {
        let offset = payload.len();
        text += &format!("\tfield:{decl};\toffset:{offset};\tsize:{size};\tsigned:{signed};\n");
        payload.extend_from_slice(bytes);
    }
    text += &format!("\nprint fmt: {print}\n");
    let f = EventFormat::parse(&text).unwrap();
    (f, payload)
}

struct OneSymbol;

impl Symbols for OneSymbol {
    fn printk_string(&self, address: u64) -> Option<&str> {
        match address {
            0x5000 => Some("n=%d %s c=%c l=%lld %hd %ps %pI4 at %p\n"),
            0x6000 => Some("a=%lu b=%llu c=%ld d=%zu e=%d\n"),
            _ => None,
        }
    }

    fn kernel(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let offset = address.checked_sub(0x1000).filter(|o| *o < 0x40)?;
        Some(KernelSymbol { name: "vfs_read", offset, size: 0x40, module: None })
    }
}

#[track_caller]
fn check(fields: &[(&str, u32, u8, &[u8])], print: &str, want: &str) {
    let (f, payload) = event(fields, print);
    let ctx =
        RenderContext { endian: Endian::Little, symbols: &OneSymbol, ..RenderContext::default() };
    let mut out = Vec::new();
    f.render(&mut out, &payload, &ctx);
    assert_eq!(String::from_utf8_lossy(&out), want, "{print} {:?}", f.fallbacks());
    // Behind the text of many other events it is the same.
    let mut behind = vec![b'-'; 100_000];
    f.render(&mut behind, &payload, &ctx);
    assert_eq!(behind[..100_000].iter().position(|b| *b != b'-'), None, "{print}");
    assert_eq!(String::from_utf8_lossy(&behind[100_000..]), want, "{print}, behind others");
}

#[test]
fn integers() {
    let f: &[(&str, u32, u8, &[u8])] = &[("int x", 4, 1, &(-5i32).to_le_bytes())];
    check(f, "\"%d %u\", REC->x", "-5 (missing)");
    let x = "REC->x";
    check(
        f,
        &format!(r#""%d %u %x %lx", {x}, {x}, {x}, {x}"#),
        "-5 4294967291 fffffffb fffffffffffffffb",
    );
    check(
        f,
        &format!(r#""%hhu|%hd|%5d|%-5d|%05d|%+d", {x}, {x}, {x}, {x}, {x}, 7"#),
        "251|-5|   -5|-5   |-0005|+7",
    );
    // The kernel prefixes zero too, and precision 0 keeps the digit.
    check(
        f,
        r##""%#x %#x %#o %#010x %.0d %.3d %X", 0, 255, 8, 255, 0, 7, 0xabc"##,
        "0x0 0xff 010 0x000000ff 0 007 ABC",
    );
    check(f, r#""%016llx %-8x| %zu %i %%", 0x1fULL, 31, 9, 3"#, "000000000000001f 1f      | 9 3 %");
    check(f, r#""%c%c %*d %-*d|", 'a', 98, 4, 1, 4, 2"#, "ab    1 2   |");
}

#[test]
fn arithmetic_is_that_of_c() {
    let f: &[(&str, u32, u8, &[u8])] = &[("u32 x", 4, 0, &7u32.to_le_bytes())];
    check(f, r#""%d %d %d", REC->x + 2 * 3, (REC->x + 2) * 3, REC->x % 4 << 1"#, "13 27 6");
    check(f, r#""%d %d", REC->x == 7 && !(REC->x & 8) || 0, REC->x > -1"#, "1 0");
    check(f, r#""%d %lld", -7 / 2, (s64)REC->x - 9"#, "-3 -2");
    check(f, r#""%u", REC->x - 9"#, "4294967294");
    check(f, r#""%llx %x", 1ULL << 40, ~0x0f & 0xff"#, "10000000000 f0");
    check(f, r#""%s", REC->x ? REC->x > 6 ? "big" : "small" : "none""#, "big");
    check(f, r#""%d", ({ int a = (REC->x); int b = (3); ((a) < (b) ? (a) : (b)); })"#, "3");
    check(f, r#""%d %d", REC->x / 0, REC->x % 0"#, "0 0");
    check(f, r#""%d", (u8)(REC->x + 250)"#, "1");
    check(f, r#""%ld %ld", sizeof(u64), sizeof(REC->x)"#, "8 4");
}

#[test]
fn text_fields() {
    let f: &[(&str, u32, u8, &[u8])] = &[
        ("char comm[16]", 16, 0, b"bash\0rubbish....".as_slice()),
        ("__data_loc char[] name", 4, 0, &(32u32 | 6 << 16).to_le_bytes()),
        ("int pad", 4, 1, &[0; 4]),
        ("char text[6]", 6, 0, b"hello\0"),
    ];
    check(
        f,
        r#""%s|%8s|%-8s|%.2s|", REC->comm, REC->comm, REC->comm, REC->comm"#,
        "bash|    bash|bash    |ba|",
    );
    check(
        f,
        r#""%s %.*s" "+" "\t%s", __get_str(name), 3, __get_str(name), "end""#,
        "hello hel+\tend",
    );
    check(
        f,
        r#""%d %c %s", __get_dynamic_array_len(name), __get_str(name)[1], __get_str(name)[0] ? "y" : "n""#,
        "6 e y",
    );
    check(f, r#""%s %.*s|", ((void *)0), 0, ((void *)0)"#, "(null) |");
}

#[test]
fn helpers() {
    let f: &[(&str, u32, u8, &[u8])] = &[
        ("u32 x", 4, 0, &0x45u32.to_le_bytes()),
        ("u16 list[3]", 6, 0, &[1, 0, 2, 0, 255, 255]),
        ("u8 raw[4]", 4, 0, &[0xde, 0xad, 0, 1]),
    ];
    let flags = r#"__print_flags(REC->x, "|", { 1, "A" }, { 4, "C" }, { 8, "D" })"#;
    check(f, &format!(r#""%s", {flags}"#), "A|C|0x40");
    check(f, r#""[%s]", __print_flags(REC->x & 0, "|", { 0, "none" })"#, "[]");
    check(f, r#""%-6s|", __print_symbolic(REC->x, { 0x45, "hit" })"#, "hit   |");
    check(f, r#""%s", __print_symbolic(REC->x, { 1, "one" })"#, "0x45");
    check(
        f,
        r#""%s %s", __print_hex(REC->raw, 4), __print_hex_str(REC->raw, 4)"#,
        "de ad 00 01 dead0001",
    );
    check(f, r#""%s", __print_array(REC->list, 3, 2)"#, "{0x1,0x2,0xffff}");
    check(f, r#""%d %d", REC->list[2], REC->raw[REC->list[0]]"#, "65535 173");
    check(f, r#""%s", scsi_thing(p, REC->raw, REC->x)"#, "scsi_thing(de ad 00 01, 0x45)");
}

#[test]
fn pointers() {
    let v6 = [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut sock = [0u8; 28];
    sock[..8].copy_from_slice(&[2, 0, 0x1f, 0x90, 127, 0, 0, 1]);
    let f: &[(&str, u32, u8, &[u8])] = &[
        ("void * ip", 8, 0, &0x1010u64.to_le_bytes()),
        ("u8 v6[16]", 16, 0, &v6),
        ("u8 sock[28]", 28, 0, &sock),
    ];
    check(
        f,
        r#""%pS %ps %pB %p", REC->ip, REC->ip, REC->ip, REC->ip"#,
        "vfs_read+0x10/0x40 vfs_read vfs_read+0x10/0x40 0000000000001010",
    );
    check(f, r#""%pS %ps", (void *)0x99, 0"#, "0x99 0x0");
    check(
        f,
        r#""%pI6c %pI6 %pI4 %pi4", REC->v6, REC->v6, REC->v6, REC->v6"#,
        "2001:db8::1 2001:0db8:0000:0000:0000:0000:0000:0001 32.1.13.184 032.001.013.184",
    );
    check(f, r#""%pISpc", REC->sock"#, "127.0.0.1:8080");
    check(
        f,
        r#""%pM %pU", REC->v6, REC->v6"#,
        "20:01:0d:b8:00:00 20010db8-0000-0000-0000-000000000001",
    );
    check(f, r#""%4phC %*pbl %*pb", REC->v6, 16, REC->v6, 12, REC->v6"#, "20:01:0d:b8 5,8 120");
    check(f, r#""%pe %pe", (void *)-2, REC->ip"#, "-ENOENT 0000000000001010");
    let (e, payload) = event(f, r#""%p", REC->ip"#);
    let mut out = Vec::new();
    let ctx = RenderContext { pointers: PointerStyle::Short, ..RenderContext::default() };
    e.render(&mut out, &payload, &ctx);
    assert_eq!(out, b"0x1010");
}

#[test]
fn endianness_and_typed_values() {
    let f: &[(&str, u32, u8, &[u8])] = &[
        ("int x", 4, 1, &(-2i32).to_be_bytes()),
        ("__data_loc u16[] list", 4, 0, &(16u32 | 4 << 16).to_be_bytes()),
        ("u16 data[2]", 4, 0, &[0, 1, 0, 2]),
    ];
    let (e, payload) = event(f, r#""%d", REC->x"#);
    let ctx = RenderContext { endian: Endian::Big, ..RenderContext::default() };
    let mut out = Vec::new();
    e.render(&mut out, &payload, &ctx);
    assert_eq!(out, b"-2");
    let x = e.field("x").unwrap();
    assert_eq!(x.value(&payload, Endian::Big), Value::Signed(-2));
    let list = e.field("list").unwrap();
    assert_eq!(list.kind, FieldKind::DynArray { relative: false, elem: 2, signed: false });
    out.clear();
    list.value(&payload, Endian::Big).write_json(&mut out, Endian::Big);
    assert_eq!(out, b"[1,2]");
}

/// `%p` of nothing, as perf script and trace-cmd report print it; the kernel
/// prints sixteen zeros for it (`ptr_to_id` in lib/vsprintf.c leaves NULL alone).
#[test]
fn pointers_to_nothing() {
    let f: &[(&str, u32, u8, &[u8])] = &[("void * at", 8, 0, &[0; 8])];
    check(f, r#""[%p]", REC->at"#, "[0000000000000000]");
    let (e, payload) = event(f, r#""[%p] [%8p]", REC->at, REC->at"#);
    let ctx = RenderContext {
        endian: Endian::Little,
        pointers: PointerStyle::Short,
        ..RenderContext::default()
    };
    let mut out = Vec::new();
    e.render(&mut out, &payload, &ctx);
    assert_eq!(String::from_utf8_lossy(&out), "[(nil)] [   (nil)]");
}

/// `__rel_loc` (include/trace/stages/stage1_struct_define.h): the offset counts
/// from the end of the word itself, unlike that of `__data_loc`.
#[test]
fn what_lies_behind_a_relative_word() {
    let f: &[(&str, u32, u8, &[u8])] = &[
        // The word is at 8 and ends at 12; the text is at 20, the numbers at 26.
        ("__rel_loc char[] name", 4, 0, &(8u32 | 6 << 16).to_le_bytes()),
        ("__rel_loc u16[] list", 4, 0, &(10u32 | 4 << 16).to_le_bytes()),
        ("int pad", 4, 1, &[0; 4]),
        ("char text[10]", 10, 0, b"hello\0\x01\0\xff\0"),
    ];
    check(
        f,
        r#""%s %d %s", __get_rel_str(name), __get_rel_dynamic_array_len(list), __print_array(__get_rel_dynamic_array(list), 2, 2)"#,
        "hello 4 {0x1,0xff}",
    );
}

/// `__sockaddr` is an array of bytes behind a `__data_loc` word, for `%pIS`
/// (Documentation/core-api/printk-formats.rst: `p` port, `c` compressed, brackets
/// around IPv6 with a port).
#[test]
fn socket_addresses() {
    let v4 = [2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut v6 = [0u8; 28];
    v6[..4].copy_from_slice(&[10, 0, 0, 80]);
    v6[23] = 1;
    for (bytes, full, plain) in [(&v4[..], "127.0.0.1:8080", "127.0.0.1"), (&v6, "[::1]:80", "::1")]
    {
        let word = (12u32 | (bytes.len() as u32) << 16).to_le_bytes();
        let f: &[(&str, u32, u8, &[u8])] = &[
            ("__data_loc __u8[] addr", 4, 0, &word),
            ("u8 bytes[28]", bytes.len() as u32, 0, bytes),
        ];
        let (print, want) = (r#""%pISpc %pISc", __get_sockaddr(addr), __get_sockaddr(addr)"#, full);
        check(f, print, &format!("{want} {plain}"));
    }
}

/// `__print_ns_to_secs` and `__print_ns_without_secs` divide by 10^9 without a
/// sign (include/trace/stages/stage3_trace_output.h); the rest has 32 bits.
#[test]
fn nanoseconds_in_two_parts() {
    let f: &[(&str, u32, u8, &[u8])] = &[("u64 ns", 8, 0, &3_000_000_042u64.to_le_bytes())];
    let print = r#""%llu.%09u", __print_ns_to_secs(REC->ns), __print_ns_without_secs(REC->ns)"#;
    check(f, print, "3.000000042");
    let f: &[(&str, u32, u8, &[u8])] = &[("u64 ns", 8, 0, &u64::MAX.to_le_bytes())];
    check(f, print, "18446744073.709551615");
}

/// lib/hexdump.c and `seq_buf_hex_dump` of lib/seq_buf.c: rows of 16 or 32; groups
/// of 2, 4 or 8 bytes are numbers, where they fill the row; characters in their column.
#[test]
fn dumps_in_rows() {
    let bytes: Vec<u8> = (0..18).map(|b| b + b'@' - 2).collect();
    let f: &[(&str, u32, u8, &[u8])] = &[("u8 raw[18]", 18, 0, &bytes)];
    check(
        f,
        r#""%s", __print_hex_dump("> ", DUMP_PREFIX_OFFSET, 16, 1, REC->raw, 18, false)"#,
        "\n> 00000000: 3e 3f 40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d\n> 00000010: 4e 4f\n",
    );
    // The second row has half a group.
    check(
        f,
        r#""%s", __print_hex_dump("", DUMP_PREFIX_NONE, 16, 4, REC->raw, 18, 0)"#,
        "\n41403f3e 45444342 49484746 4d4c4b4a\n4e 4f\n",
    );
    check(
        f,
        r#""%s", __print_hex_dump("", DUMP_PREFIX_NONE, 16, 1, REC->raw, 18, 1)"#,
        "\n3e 3f 40 41 42 43 44 45 46 47 48 49 4a 4b 4c 4d  >?@ABCDEFGHIJKLM\n\
         4e 4f                                            NO\n",
    );
}

/// `trace_printk` leaves its arguments in binary: numbers aligned to their size but
/// to 4 at most, text in line, and what `%p` would look up behind the address as
/// text, except symbols (`vbin_printf` of lib/vsprintf.c).
#[test]
fn binary_printk() {
    let mut text = String::from("name: bprint\nID: 6\nformat:\n");
    for (decl, offset, size) in [
        ("unsigned short common_type", 0, 2),
        ("unsigned long ip", 8, 8),
        ("const char * fmt", 16, 8),
        ("u32 buf[]", 24, 0),
    ] {
        text += &format!("\tfield:{decl};\toffset:{offset};\tsize:{size};\tsigned:0;\n");
    }
    text += "\nprint fmt: \"%ps: %s\", (void *)REC->ip, REC->fmt\n";
    let mut payload = vec![6, 0, 0, 0, 0, 0, 0, 0];
    payload.extend(0x1010u64.to_le_bytes());
    payload.extend(0x5000u64.to_le_bytes());
    payload.extend((-3i32).to_le_bytes());
    payload.extend(b"two\0z");
    // Behind five bytes: the next multiple of 4.
    payload.extend([0; 3]);
    payload.extend((1i64 << 40).to_le_bytes());
    payload.extend(7i16.to_le_bytes());
    payload.extend([0; 2]);
    payload.extend(0x1000u64.to_le_bytes());
    payload.extend(b"127.0.0.1\0");
    payload.extend([0; 2]);
    payload.extend(0xabcdu64.to_le_bytes());
    let f = EventFormat::parse(&text).unwrap();
    let ctx =
        RenderContext { endian: Endian::Little, symbols: &OneSymbol, ..RenderContext::default() };
    let mut out = Vec::new();
    f.render(&mut out, &payload, &ctx);
    let want = "vfs_read: n=-3 two c=z l=1099511627776 7 vfs_read 127.0.0.1 at 000000000000abcd\n";
    assert_eq!(String::from_utf8_lossy(&out), want);
}

/// Machines whose `long` has 4 bytes, of either byte order: `%ll` and 64-bit fields keep theirs.
#[test]
fn numbers_of_32_bit_machines_have_their_own_widths() {
    let options = ParseOptions { long_size: 4, ..ParseOptions::default() };
    for endian in [Endian::Little, Endian::Big] {
        let word = |n: u32| match endian {
            Endian::Little => n.to_le_bytes(),
            Endian::Big => n.to_be_bytes(),
        };
        let long = |n: u64| match endian {
            Endian::Little => n.to_le_bytes(),
            Endian::Big => n.to_be_bytes(),
        };
        let render = |text: &str, payload: &[u8]| {
            let f = EventFormat::parse_with(text, &options).unwrap();
            let ctx = RenderContext { endian, symbols: &OneSymbol, ..RenderContext::default() };
            let mut out = Vec::new();
            f.render(&mut out, payload, &ctx);
            String::from_utf8_lossy(&out).into_owned()
        };
        let text = "name: x\nID: 300\nformat:\n\
            \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
            \tfield:s64 now;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield:long err;\toffset:16;\tsize:4;\tsigned:1;\n\
            \tfield:unsigned long list[2];\toffset:20;\tsize:8;\tsigned:0;\n\n\
            print fmt: \"now=%llu %lld err=%ld %zu %s\", REC->now, REC->now, REC->err, REC->err, \
            __print_array(REC->list, 2, sizeof(unsigned long))\n";
        let mut payload = vec![0; 8];
        payload.extend(long(62_171_916_542));
        payload.extend(word(-933i32 as u32));
        payload.extend([word(7), word(9)].concat());
        let want = "now=62171916542 62171916542 err=-933 4294966363 {0x7,0x9}";
        assert_eq!(render(text, &payload), want, "{endian:?}");

        let mut text = String::from("name: bprint\nID: 6\nformat:\n");
        for (decl, offset, size) in [
            ("unsigned short common_type", 0, 2),
            ("unsigned long ip", 8, 4),
            ("const char * fmt", 12, 4),
            ("u32 buf[]", 16, 0),
        ] {
            text += &format!("\tfield:{decl};\toffset:{offset};\tsize:{size};\tsigned:0;\n");
        }
        text += "\nprint fmt: \"%ps: %s\", (void *)REC->ip, REC->fmt\n";
        let mut payload = vec![0; 8];
        payload.extend([word(0x1010), word(0x6000), word(3)].concat());
        payload.extend(long(62_171_916_542));
        payload.extend([word(-5i32 as u32), word(1244), word(8)].concat());
        let want = "vfs_read: a=3 b=62171916542 c=-5 d=1244 e=8\n";
        assert_eq!(render(&text, &payload), want, "{endian:?}");
    }
}

#[test]
fn what_cannot_be_compiled_is_shown_by_fields() {
    let f: &[(&str, u32, u8, &[u8])] = &[("int x", 4, 1, &9i32.to_le_bytes())];
    check(f, r#""%d %s", REC->nothing, "x""#, "x=9");
    check(f, r#""%d", REC->x.."#, "x=9");
    check(f, r#""%lu", (jiffies - REC->x) / 1000"#, "?");
}

#[test]
fn texts_of_others_have_no_controls() {
    let comm: &[(&str, u32, u8, &[u8])] = &[("char comm[16]", 16, 0, b"x\n\x1b[2J: \xc2\x9b\0ab.")];
    check(comm, r#""comm=%s", REC->comm"#, "comm=x\\n\\u001b[2J: \\u009b");
    check(comm, r#""comm=%20s", REC->comm"#, "comm=x\\n\\u001b[2J: \\u009b");
    let text: &[(&str, u32, u8, &[u8])] = &[
        ("__data_loc char[] name", 4, 0, &(12u32 | 9 << 16).to_le_bytes()),
        ("char buf[9]", 9, 0, b"a\nb\t\x7f\xe2\x80\n\0"),
    ];
    check(text, r#""%s pid=1", __get_str(name)"#, "a\\nb\\t\\u007f\u{fffd}\\x80\\n pid=1");
    // The last field may end its line, as texts of trace_marker do.
    check(text, r#""ip: %s", __get_str(name)"#, "ip: a\\nb\\t\\u007f\u{fffd}\\x80\n");
    check(&[("char c", 1, 0, b"\x1b")], r#""%c", REC->c"#, "\\u001b");
}

#[test]
fn texts_of_probes_end_where_their_lengths_say() {
    let fields = |name: &'static str| -> [(&'static str, u32, u8, Vec<u8>); 4] {
        [
            ("unsigned long __probe_ip", 8, 0, vec![0; 8]),
            ("__data_loc char[] s", 4, 0, (28u32 | 9 << 16).to_le_bytes().to_vec()),
            (name, 8, 0, 5u64.to_le_bytes().to_vec()),
            ("char rest[9]", 9, 0, b"str1)V\0\0\0".to_vec()),
        ]
    };
    for (name, expected) in [("u64 s_len", "str1)"), ("u64 t_len", "str1)V")] {
        let fields = fields(name);
        let fields: Vec<(&str, u32, u8, &[u8])> = fields
            .iter()
            .map(|(decl, size, signed, bytes)| (*decl, *size, *signed, &**bytes))
            .collect();
        check(&fields, r#""s=\"%s\"", __get_str(s)"#, &format!("s=\"{expected}\""));
        let (format, payload) = event(&fields, r#""%s", __get_str(s)"#);
        let value = format.field("s").unwrap().value(&payload, Endian::Little);
        assert_eq!(value, Value::Text(expected.as_bytes()));
    }
}

/// A text without even its NUL could not be read: the kernel writes `(fault)` for it. One of
/// another event is empty, and so is a Rust text without bytes.
#[test]
fn texts_that_a_probe_could_not_read_are_not_empty_ones() {
    let text =
        |length: u32, mark: &'static str, bytes: u64| -> Vec<(&'static str, u32, u8, Vec<u8>)> {
            vec![
                (mark, 8, 0, vec![0; 8]),
                ("__data_loc char[] s", 4, 0, (28u32 | length << 16).to_le_bytes().to_vec()),
                ("u64 s_len", 8, 0, bytes.to_le_bytes().to_vec()),
                ("char rest[1]", 1, 0, vec![0]),
            ]
        };
    let probe = "unsigned long __probe_ip";
    for (fields, shown, json) in [
        (text(0, probe, 3), "(fault)", "null"),
        (text(0, probe, 0), "", "\"\""),
        (text(1, probe, 3), "", "\"\""),
        (text(0, "unsigned long other", 3), "", "\"\""),
    ] {
        let fields: Vec<(&str, u32, u8, &[u8])> = fields
            .iter()
            .map(|(decl, size, signed, bytes)| (*decl, *size, *signed, &**bytes))
            .collect();
        check(&fields, r#""s=%s", __get_str(s)"#, &format!("s={shown}"));
        let (format, payload) = event(&fields, "");
        let mut out = Vec::new();
        format
            .field("s")
            .unwrap()
            .value(&payload, Endian::Little)
            .write_json(&mut out, Endian::Little);
        assert_eq!(String::from_utf8_lossy(&out), json);
    }
}

/// Fields that the text shows as functions are known as such.
#[test]
fn addresses_of_functions_are_marked() {
    let fields: &[(&str, u32, u8, &[u8])] = &[
        ("unsigned long call_site", 8, 0, &[0; 8]),
        ("const void * ptr", 8, 0, &[0; 8]),
        ("void * function", 8, 0, &[0; 8]),
    ];
    let print = r#""at=%pS ptr=%p f=%ps", (void *)REC->call_site, REC->ptr, REC->function"#;
    let (format, _) = event(fields, print);
    let marked: Vec<&str> =
        format.own_fields().filter(|f| f.is_function).map(|f| &*f.name).collect();
    assert_eq!(marked, ["call_site", "function"]);
}
