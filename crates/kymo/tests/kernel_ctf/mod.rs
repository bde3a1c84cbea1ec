//! Writes CTF traces as LTTng's kernel tracer does, of numbers: a stream for each CPU.
#![allow(clippy::unwrap_used, reason = "a failed test is a panic")]

use std::collections::BTreeSet;
use std::path::Path;

/// An event class: LTTng's name, and types and names of its fields.
pub(crate) struct CtfClass {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [(&'static str, &'static str)],
}

/// An event; `text[16]` fields hold the bytes of a number as text.
pub(crate) struct CtfEvent {
    pub(crate) time: u64,
    pub(crate) cpu: u32,
    /// Place of its class.
    pub(crate) class: usize,
    pub(crate) values: Vec<u64>,
}

/// A trace to be written.
pub(crate) struct CtfWriter<'a> {
    pub(crate) classes: &'a [CtfClass],
    pub(crate) events: &'a [CtfEvent],
    /// Events of a packet.
    pub(crate) packet: usize,
    /// Packets that are lost, by CPU and number.
    pub(crate) without: &'a dyn Fn(u32, usize) -> bool,
}

const METADATA: &str = "/* CTF 1.8 */
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 32; align = 8; signed = true; } := int32_t;
trace { major = 1; minor = 8; byte_order = le;
    packet.header := struct { uint32_t magic; uint32_t stream_id; }; };
env { domain = \"kernel\"; tracer_name = \"lttng-modules\"; tracer_major = 2; tracer_minor = 13; };
clock { name = \"monotonic\"; freq = 1000000000; offset = 0; };
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := clock_t;
stream { id = 0;
    packet.context := struct { clock_t timestamp_begin; clock_t timestamp_end;
        uint64_t content_size; uint64_t packet_size; uint64_t events_discarded; uint32_t cpu_id; };
    event.header := struct { uint32_t id; clock_t timestamp; }; };
";

impl CtfWriter<'_> {
    /// Writes it into a directory.
    pub(crate) fn write(&self, directory: &Path) {
        std::fs::create_dir_all(directory).unwrap();
        let mut metadata = METADATA.to_owned();
        for (id, class) in self.classes.iter().enumerate() {
            let field = |(kind, name): &(&str, &str)| match *kind {
                "text" => format!("integer {{ size = 8; encoding = UTF8; }} _{name}[16]; "),
                _ => format!("{kind} _{name}; "),
            };
            let fields: String = class.fields.iter().map(field).collect();
            metadata += &format!(
                "event {{ name = \"{}\"; id = {id}; stream_id = 0; fields := struct {{ {fields}}}; }};\n",
                class.name
            );
        }
        std::fs::write(directory.join("metadata"), metadata).unwrap();
        let cpus: BTreeSet<u32> = self.events.iter().map(|e| e.cpu).collect();
        for cpu in cpus {
            std::fs::write(directory.join(format!("stream_{cpu}")), self.stream(cpu)).unwrap();
        }
    }

    fn stream(&self, cpu: u32) -> Vec<u8> {
        let of_cpu: Vec<&CtfEvent> = self.events.iter().filter(|e| e.cpu == cpu).collect();
        let (mut stream, mut discarded) = (Vec::new(), 0u64);
        for (n, packet) in of_cpu.chunks(self.packet).enumerate() {
            if (self.without)(cpu, n) {
                discarded += packet.len() as u64;
                continue;
            }
            let events: Vec<u8> = packet.iter().flat_map(|e| self.bytes(e)).collect();
            let bits = (8 + 5 * 8 + 4 + events.len() as u64) * 8;
            stream.extend(0xc1fc_1fc1_u32.to_le_bytes());
            stream.extend(0u32.to_le_bytes());
            let numbers = [packet[0].time, packet[packet.len() - 1].time, bits, bits, discarded];
            numbers.iter().for_each(|n| stream.extend(n.to_le_bytes()));
            stream.extend(cpu.to_le_bytes());
            stream.extend(events);
        }
        stream
    }

    fn bytes(&self, event: &CtfEvent) -> Vec<u8> {
        let mut out = (event.class as u32).to_le_bytes().to_vec();
        out.extend(event.time.to_le_bytes());
        let fields = self.classes[event.class].fields;
        assert_eq!(fields.len(), event.values.len());
        for ((kind, _), value) in fields.iter().zip(&event.values) {
            match *kind {
                "text" => {
                    let mut text = format!("t{value}").into_bytes();
                    text.resize(16, 0);
                    out.extend(text);
                }
                "uint64_t" => out.extend(value.to_le_bytes()),
                _ => out.extend((*value as u32).to_le_bytes()),
            }
        }
        out
    }
}
