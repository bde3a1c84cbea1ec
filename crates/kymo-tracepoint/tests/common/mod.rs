//! Helpers for tests of traced programs: a shared directory of their own, channel configurations,
//! and a plain reader that turns the rings of a program into a CTF directory for babeltrace2.
#![allow(dead_code, unreachable_pub, reason = "not every test uses all of it")]

use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use kymo_ring::{AREA_HEADER, AreaState, Config, Context, Header, Mode};
use kymo_ust::{ChannelConfig, Control, EventRecord, EventRule, FieldTag, Shape, Slot, slot_at};

/// A shared directory for one test.
pub struct Shared {
    dir: tempfile::TempDir,
}

impl Shared {
    pub fn new() -> Self {
        let shared = Self { dir: tempfile::tempdir().unwrap() };
        for directory in [shared.user(), shared.user().join("wanted")] {
            fs::create_dir(&directory).unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
        }
        shared
    }

    pub fn user(&self) -> PathBuf {
        // SAFETY: no arguments.
        self.dir.path().join(format!("kymo-{}", unsafe { libc::geteuid() }))
    }

    /// Programs that start from now on follow this order.
    pub fn want(&self, name: &str, config: &ChannelConfig) {
        fs::write(self.user().join("wanted").join(name), config.encode().unwrap()).unwrap();
    }

    /// This test binary again, as a program: only the test called `role` runs in it, which
    /// acts as a program when it finds `KYMO_TEST_ROLE`.
    pub fn program(&self, role: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", role, "--nocapture"]).env("KYMO_UST_DIR", self.dir.path());
        command.env("KYMO_TEST_ROLE", role);
        command
    }

    pub fn programs(&self) -> Vec<Program> {
        let mut programs: Vec<_> = fs::read_dir(self.user())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.file_name() != Some("wanted".as_ref()))
            .filter_map(Program::open)
            .collect();
        programs.sort_by_key(|p| p.path.clone());
        programs
    }
}

/// The static library.
pub fn static_library() -> PathBuf {
    kymo_testkit::tracepoint_library(Path::new(env!("CARGO_TARGET_TMPDIR")))
}

/// An SDT marker of a program, as its notes say.
pub struct Marker {
    /// Addresses.
    pub at: u64,
    pub semaphore: u64,
    pub arguments: String,
}

impl Marker {
    pub fn find(program: &Path, provider: &str, name: &str) -> Self {
        let notes = readelf(program, "-n");
        let (provider, name) = (format!("Provider: {provider}\n"), format!("Name: {name}\n"));
        let note = notes.split("Provider: ").map(|n| format!("Provider: {n}"));
        let mut note = note.filter(|n| n.contains(&provider) && n.contains(&name));
        let note = note.next().expect(&notes);
        let value = |name: &str| note.split_once(name).unwrap().1.lines().next().unwrap().trim();
        let address = |name| hex(value(name).split(',').next().unwrap());
        Self {
            at: address("Location:"),
            semaphore: address("Semaphore:"),
            arguments: value("Arguments:").to_owned(),
        }
    }

    /// File offset in the form that uprobes accept.
    pub fn place(&self, program: &Path) -> String {
        let segments: Vec<[u64; 3]> = readelf(program, "-l")
            .lines()
            .filter(|line| line.trim_start().starts_with("LOAD"))
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .map(|words| [hex(words[1]), hex(words[2]), hex(words[4])])
            .collect();
        let in_file = |address: u64| {
            let of = |[_, from, size]: &&[u64; 3]| (*from..from + size).contains(&address);
            let [offset, from, _] = segments.iter().find(of).unwrap();
            address - from + offset
        };
        format!("{}:{:#x}({:#x})", program.display(), in_file(self.at), in_file(self.semaphore))
    }
}

fn readelf(program: &Path, option: &str) -> String {
    let output = Command::new("readelf").args(["-W", option]).arg(program).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

fn hex(word: &str) -> u64 {
    u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap()
}

/// Whether this process is a program of a test, and not the test.
pub fn is_role() -> bool {
    std::env::var_os("KYMO_TEST_ROLE").is_some()
}

pub fn config(pattern: &str, filter: &str) -> ChannelConfig {
    let filter = if filter.is_empty() { Vec::new() } else { kymo_ust::compile(filter).unwrap() };
    ChannelConfig {
        overwrite: false,
        sub_buffer: 64 << 10,
        sub_buffers: 8,
        uuid: [7; 16],
        pids: [0; 4],
        session: "test".into(),
        channel: "channel0".into(),
        rules: vec![EventRule { pattern: pattern.into(), max_level: 14, exclude: false, filter }],
    }
}

/// A program in the shared directory.
pub struct Program {
    pub path: PathBuf,
    pub control: Control,
    pub events: Vec<EventRecord>,
}

impl Program {
    /// `None` if it is still being made.
    pub fn open(path: PathBuf) -> Option<Self> {
        let bytes = fs::read(path.join("control")).ok()?;
        if !bytes.starts_with(&kymo_ust::CONTROL_MAGIC) {
            return None;
        }
        let control = Control::parse(&bytes, bytes.len() as u64).unwrap();
        let table = &bytes[control.table as usize..][..control.table_bytes as usize];
        let (events, error) = EventRecord::parse_table(table);
        assert_eq!(error, None);
        assert_eq!(events.len(), control.events as usize);
        Some(Self { path, control, events })
    }

    pub fn file(&self) -> File {
        File::options().read(true).write(true).open(self.path.join("control")).unwrap()
    }

    pub fn slot(&self, slot: usize) -> Slot {
        let mut bytes = [0; 256];
        self.file().read_exact_at(&mut bytes, slot_at(slot) as u64).unwrap();
        Slot::parse(&bytes).unwrap()
    }

    pub fn event(&self, name: &str) -> &EventRecord {
        self.events.iter().find(|e| e.name == name).unwrap()
    }

    pub fn enable(&self, name: &str, slot: usize, on: bool) {
        let at = kymo_ust::enable_at(&self.control, self.event(name).id, slot);
        self.file().write_all_at(&[on.into()], at).unwrap();
    }

    pub fn ring(&self, slot: usize, generation: u8) -> RingFile {
        let file = File::open(self.path.join(format!("ring-{slot}-{generation}"))).unwrap();
        let mut bytes = [0; 128];
        file.read_exact_at(&mut bytes, 0).unwrap();
        let header = Header::parse(&bytes, file.metadata().unwrap().len()).unwrap();
        RingFile { file, header }
    }

    /// Lines that babeltrace2 prints for a whole ring. Fails if it prints a warning.
    pub fn babeltrace(&self, slot: usize, generation: u8) -> Vec<String> {
        let (lines, warning) = self.babeltrace_with_warning(slot, generation);
        assert_eq!(warning, "");
        lines
    }

    pub fn babeltrace_with_warning(&self, slot: usize, generation: u8) -> (Vec<String>, String) {
        let out = tempfile::tempdir().unwrap();
        self.ring(slot, generation).write_ctf(out.path(), &self.events);
        babeltrace(out.path())
    }
}

/// The lines of babeltrace2, and what it complains of.
fn babeltrace(directory: &Path) -> (Vec<String>, String) {
    let output = Command::new("babeltrace2").arg(directory).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).unwrap();
    (text.lines().map(str::to_owned).collect(), errors)
}

/// A ring of a program, dead or alive.
pub struct RingFile {
    file: File,
    pub header: Header,
}

impl RingFile {
    pub fn state(&self, area: u32) -> AreaState {
        let mut bytes = [0; AREA_HEADER];
        self.file.read_exact_at(&mut bytes, self.header.area_header_offset(area)).unwrap();
        AreaState::parse(&bytes).unwrap()
    }

    /// Events written and events discarded.
    pub fn counts(&self) -> (u64, u64) {
        let states = (0..self.header.areas()).map(|area| self.state(area));
        states.fold((0, 0), |(c, d), s| (c + s.count, d + s.discarded))
    }

    /// Events that were overwritten.
    pub fn overwritten(&self) -> u64 {
        let size = self.header.config().sub_buffer as usize;
        let of_area = |area| {
            let packets = self.packets(area);
            let last = packets.chunks(size).last();
            last.map_or(0, |packet| Context::parse(packet).unwrap().overwritten)
        };
        (0..self.header.areas()).map(of_area).sum()
    }

    /// The whole packets of an area, the open one closed.
    pub fn packets(&self, area: u32) -> Vec<u8> {
        let (state, config) = (self.state(area), self.header.config());
        let size = u64::from(config.sub_buffer);
        let mut out = Vec::new();
        if state.pos == 0 {
            return out;
        }
        let open = state.pos / size;
        let oldest = match config.mode {
            Mode::Discard => 0,
            Mode::Overwrite => (open + 1).saturating_sub(config.sub_buffers.into()),
        };
        for packet in oldest..=open {
            let mut bytes = vec![0; size as usize];
            self.file.read_exact_at(&mut bytes, self.header.packet_offset(area, packet)).unwrap();
            let context = self.header.check_packet(&bytes, packet);
            if context.is_err() && packet == oldest && config.mode == Mode::Overwrite {
                // Killed while it was being overwritten.
                continue;
            }
            let mut context = context.unwrap();
            if packet == open {
                context.end = state.last;
                context.content_bits = state.pos % size * 8;
                context.packet_bits = size * 8;
                context.discarded = state.discarded;
            }
            bytes[..kymo_ring::CONTEXT_END].copy_from_slice(&context.encode(&config.uuid));
            out.extend_from_slice(&bytes);
        }
        out
    }

    pub fn write_ctf(&self, directory: &Path, events: &[EventRecord]) {
        for area in 0..self.header.areas() {
            let packets = self.packets(area);
            if !packets.is_empty() {
                fs::write(directory.join(format!("stream_{area}")), packets).unwrap();
            }
        }
        fs::write(directory.join("metadata"), metadata(self.header.config(), events)).unwrap();
    }
}

/// TSDL of a ring; `docs/formats/ust.md` section 5.
fn metadata(config: &Config, events: &[EventRecord]) -> String {
    let u = config.uuid.map(|b| format!("{b:02x}"));
    let uuid = [&u[..4], &u[4..6], &u[6..8], &u[8..10], &u[10..]].map(<[String]>::concat).join("-");
    let c = &config.clock;
    // The time of tick 0 in ticks since 1970, in seconds and a rest.
    let frequency = i128::from(c.frequency);
    let zero = i128::from(c.realtime) * frequency / 1_000_000_000 - i128::from(c.ticks);
    let mut out = format!(
        "/* CTF 1.8 */
typealias integer {{ size = 8; align = 8; signed = false; }} := uint8_t;
typealias integer {{ size = 16; align = 8; signed = false; }} := uint16_t;
typealias integer {{ size = 32; align = 8; signed = false; }} := uint32_t;
typealias integer {{ size = 64; align = 8; signed = false; }} := uint64_t;
typealias integer {{ size = 32; align = 8; signed = true; }} := int32_t;
clock {{ name = monotonic; freq = {frequency}; offset_s = {}; offset = {}; }};
typealias integer {{ size = 64; align = 8; signed = false; map = clock.monotonic.value; }} := uint64_clock_t;
typealias integer {{ size = 27; align = 1; signed = false; map = clock.monotonic.value; }} := uint27_clock_t;
trace {{ major = 1; minor = 8; uuid = \"{uuid}\"; byte_order = le;
  packet.header := struct {{ uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; }};
}};
stream {{ id = {};
  packet.context := struct {{
    uint64_t packet_seq_num; uint64_clock_t timestamp_begin; uint64_clock_t timestamp_end;
    uint64_t content_size; uint64_t packet_size; uint64_t events_discarded;
    uint64_t events_before; uint64_t events_overwritten; uint64_t anchor_monotonic;
    uint32_t anchor_error; int32_t cpu_id;
  }};
  event.header := struct {{
    enum : integer {{ size = 5; align = 8; signed = false; }} {{
      compact = 0 ... 28, wide = 29, extended = 30 ... 31
    }} id;
    variant <id> {{
      struct {{ uint27_clock_t timestamp; }} compact;
      struct {{ uint27_clock_t timestamp; integer {{ size = 16; align = 1; }} id; }} wide;
      struct {{ uint32_t id; uint64_clock_t timestamp; }} extended;
    }} v;
  }};
  event.context := struct {{ int32_t vtid; }};
}};
",
        zero.div_euclid(frequency),
        zero.rem_euclid(frequency),
        config.stream,
    );
    for event in events {
        let (provider, name) = (&event.provider, &event.name);
        let (id, stream) = (event.id, config.stream);
        let full_name = format!("{provider}:{name}");
        write!(out, "event {{ name = {full_name:?}; id = {id}; stream_id = {stream};").unwrap();
        write!(out, " fields := struct {{").unwrap();
        for field in &event.fields {
            let name = &field.name;
            let shape = field.shape;
            match shape.kind {
                FieldTag::String => write!(out, " string _{name};"),
                FieldTag::Array => write!(out, " {} _{name}[{}];", number(shape), shape.count),
                FieldTag::Sequence => write!(
                    out,
                    " uint32_t __{name}_length; {} _{name}[__{name}_length];",
                    number(shape)
                ),
                FieldTag::Enum => {
                    let names: Vec<_> = field
                        .entries
                        .iter()
                        .map(|(low, high, name)| format!("{name:?} = {low} ... {high}"))
                        .collect();
                    let names = names.join(", ");
                    write!(out, " enum : {} {{ {names} }} _{name};", number(shape))
                }
                _ => write!(out, " {} _{name};", number(shape)),
            }
            .unwrap();
        }
        out.push_str(" }; };\n");
    }
    out
}

fn number(shape: Shape) -> String {
    let bits = 8 * u32::from(shape.size);
    let is_float = shape.kind == FieldTag::Float || shape.flags & Shape::FLOATS != 0;
    if is_float {
        let mantissa = if bits == 32 { 24 } else { 53 };
        let exponent = bits - mantissa;
        return format!(
            "floating_point {{ exp_dig = {exponent}; mant_dig = {mantissa}; align = 8; }}"
        );
    }
    let signed = shape.flags & Shape::SIGNED != 0;
    let base = if shape.flags & Shape::HEX != 0 { 16 } else { 10 };
    format!("integer {{ size = {bits}; align = 8; signed = {signed}; base = {base}; }}")
}
