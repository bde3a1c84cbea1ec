//! Events as `babeltrace2` prints them, so that its text and ours can be compared
//! value by value.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;

use kymo_files::ctf::Ctf;
use kymo_files::ctf::read::{CtfReadStats, CtfSelect, FieldInfo, Group, Part, Visit};

/// Writes the parts of an event.
#[derive(Default)]
pub(crate) struct ShownText {
    pub(crate) out: String,
    /// For each group that is open how many of it were written.
    open: Vec<(Group, u64)>,
    part: bool,
}

impl ShownText {
    fn item(&mut self, field: &FieldInfo) {
        let Some((group, n)) = self.open.last_mut() else { return };
        if *n > 0 {
            self.out.push_str(", ");
        }
        match group {
            Group::Row => self.out.push_str(&format!("[{n}] = ")),
            Group::Struct => self.out.push_str(&format!("{} = ", field.name)),
            // It does not say which option it is.
            Group::Option => {}
        }
        *n += 1;
    }

    fn end(&mut self) {
        if self.part {
            let (_, n) = self.open.pop().unwrap();
            self.out.push_str(if n > 0 { " }" } else { "}" });
            self.part = false;
        }
    }

    pub(crate) fn finish(mut self) -> String {
        self.end();
        self.out
    }
}

fn number(field: &FieldInfo, value: u64) -> String {
    // Signs reach up to a whole digit.
    let size = match field.base {
        8 => field.size.next_multiple_of(3),
        16 => field.size.next_multiple_of(4),
        _ => field.size,
    };
    let bits = if size >= 64 { value } else { value & ((1 << size) - 1) };
    match field.base {
        8 => format!("0{bits:o}"),
        16 => format!("0x{bits:X}"),
        2 => format!("0b{bits:0w$b}", w = field.size as usize),
        _ if field.signed => format!("{}", value as i64),
        _ => format!("{value}"),
    }
}

/// `%g` of C.
pub(crate) fn shortest(value: f64) -> String {
    if !value.is_finite() {
        return match (value.is_nan(), value.is_sign_negative()) {
            (true, true) => "-nan",
            (true, false) => "nan",
            (false, true) => "-inf",
            (false, false) => "inf",
        }
        .to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let e = format!("{value:.5e}");
    let (mantissa, exponent) = e.split_once('e').unwrap();
    let exponent: i32 = exponent.parse().unwrap();
    let trim = |s: &str| {
        if s.contains('.') {
            s.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            s.to_owned()
        }
    };
    if (-4..6).contains(&exponent) {
        return trim(&format!("{value:.*}", (5 - exponent).max(0) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trim(mantissa), exponent.abs())
}

impl Visit for ShownText {
    fn part(&mut self, _: Part) {
        self.end();
        if !self.out.is_empty() {
            self.out.push_str(", ");
        }
        self.out.push_str("{ ");
        self.open.push((Group::Struct, 0));
        self.part = true;
    }

    fn int(&mut self, field: &FieldInfo, value: u64) {
        self.item(field);
        if field.labels.is_none() {
            self.out.push_str(&number(field, value));
            return;
        }
        if field.boolean && field.labels(u64::MAX).next().is_some() {
            // A truth value of CTF 2.
            self.out.push_str(field.first_label(value).unwrap());
            return;
        }
        let labels: Vec<String> =
            field.labels(value).map(|l| format!("\"{}\"", escaped(l.as_bytes()))).collect();
        if field.bit_names {
            let names = labels.join(", ");
            self.out.push_str(&format!("{} {{ {names} }}", number(field, value)));
            return;
        }
        let labels = match labels.as_slice() {
            [] => "<unknown>".to_owned(),
            many => many.join(", "),
        };
        self.out.push_str(&format!("( {labels} : container = {} )", number(field, value)));
    }

    fn float(&mut self, field: &FieldInfo, value: f64, _: bool) {
        self.item(field);
        self.out.push_str(&shortest(value));
    }

    fn text(&mut self, field: &FieldInfo, text: &[u8]) {
        self.item(field);
        self.out.push_str(&format!("\"{}\"", escaped(text)));
    }

    fn open(&mut self, field: &FieldInfo, group: Group, _: u64) {
        self.item(field);
        self.out.push_str(match group {
            Group::Struct => "{ ",
            Group::Row => "[ ",
            Group::Option => "{ ",
        });
        self.open.push((group, 0));
    }

    fn close(&mut self, group: Group) {
        let (_, n) = self.open.pop().unwrap();
        let end = if group == Group::Row { "]" } else { "}" };
        self.out.push_str(if n > 0 { " " } else { "" });
        self.out.push_str(end);
    }
}

fn escaped(text: &[u8]) -> String {
    let mut out = Vec::new();
    for b in text {
        match b {
            b'"' | b'\\' => out.extend([b'\\', *b]),
            b'\n' => out.extend(b"\\n"),
            b'\t' => out.extend(b"\\t"),
            b'\r' => out.extend(b"\\r"),
            7 => out.extend(b"\\a"),
            8 => out.extend(b"\\b"),
            11 => out.extend(b"\\v"),
            12 => out.extend(b"\\f"),
            b if b.is_ascii_control() => out.extend(format!("\\x{b:02x}").bytes()),
            b => out.push(*b),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// An event: its time, and the rest of the line as babeltrace2 has it.
pub(crate) type Line = (u64, String);

/// Reads with kymo. Times are values of the clock.
pub(crate) fn ours(path: &Path) -> (Vec<Line>, CtfReadStats) {
    let ctf = Ctf::open(path).unwrap();
    let mut reader = ctf.reader();
    let mut lines = Vec::new();
    let stats = ctf
        .for_each(&CtfSelect::default(), &mut |e| {
            let mut text = ShownText::default();
            reader.see(e.class, &e.body, &mut text).unwrap();
            let cpu = e.cpu.map_or(String::new(), |c| format!("{{ cpu_id = {c} }}"));
            let rest = text.finish();
            let comma = if cpu.is_empty() || rest.is_empty() { "" } else { ", " };
            let name = &ctf.class(e.class).unwrap().event.name;
            lines.push((e.time, format!("{name}: {cpu}{comma}{rest}")));
            ControlFlow::Continue(())
        })
        .unwrap();
    (lines, stats)
}

/// Reads with the installed babeltrace2: its lines, and what it says on the standard error.
pub(crate) fn theirs(path: &Path) -> (Vec<Line>, String) {
    lines_of(kymo_testkit::run("babeltrace2", args(path)))
}

/// Reads with the newest babeltrace2, which reads CTF 2. Of 1.8 the installed one is the
/// judge: the newest gives up (abort) on traces without times of packets.
pub(crate) fn theirs_newest(path: &Path) -> (Vec<Line>, String) {
    let (lines, said) = lines_of(kymo_testkit::peer("babeltrace2").run(args(path)));
    // Several names of a value stand in braces of their own.
    let plain = |l: String| match l.contains("( { ") {
        true => l.replace("( { ", "( ").replace(" } : container", " : container"),
        false => l,
    };
    (lines.into_iter().map(|(t, l)| (t, plain(l))).collect(), said)
}

fn args(path: &Path) -> [&str; 3] {
    ["--clock-cycles", "--no-delta", path.to_str().unwrap()]
}

fn lines_of(out: kymo_testkit::Outcome) -> (Vec<Line>, String) {
    let out = out.success();
    let lines = out.stdout.lines().map(|l| {
        // Without a clock there is no time.
        let timed = l.strip_prefix('[').map(|l| l.split_once("] ").unwrap());
        let (time, rest) = timed.unwrap_or(("0", l));
        // Host, program and process stand before the event's name.
        let at = rest.find(": {").unwrap_or(rest.len());
        let (before, values) = rest.split_at(at);
        let name = before.rsplit(' ').next().unwrap();
        (time.parse().unwrap(), format!("{name}{values}"))
    });
    (lines.collect(), out.stderr)
}

/// Lines by what they say, for events of one time may come in any order.
pub(crate) fn by_time(lines: &[Line]) -> BTreeMap<u64, Vec<&str>> {
    let mut by_time: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    lines.iter().for_each(|(t, l)| by_time.entry(*t).or_default().push(l));
    by_time.values_mut().for_each(|v| v.sort_unstable());
    by_time
}

/// Both read the same; each in the order of time.
#[track_caller]
pub(crate) fn agree(path: &Path) -> (Vec<Line>, CtfReadStats, String) {
    agree_with(path, theirs(path))
}

/// Both read the same, as [`agree`].
#[track_caller]
pub(crate) fn agree_with(
    path: &Path,
    (b, said): (Vec<Line>, String),
) -> (Vec<Line>, CtfReadStats, String) {
    let (a, stats) = ours(path);
    assert!(a.is_sorted_by_key(|l| l.0));
    for (a, b) in by_time(&a).iter().zip(by_time(&b)) {
        assert_eq!(a.1, &b.1, "at {} and {}", a.0, b.0);
        assert_eq!(*a.0, b.0);
    }
    assert_eq!(a.len(), b.len(), "{said}");
    (a, stats, said)
}
