//! The tracing data of a recording: the format of each tracepoint it uses, and
//! the tables needed to render them on another machine. The blob states its
//! own byte order and word size.

use kymo_model::{Cursor, Endian, Truncated};

use crate::Machine;
use crate::text::text;

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Formats and tables from the machine that recorded.
#[derive(Clone, Debug)]
pub struct TracingData {
    /// Format version, `0.6` for all current perf.
    pub version: String,
    /// Byte order of payloads.
    pub endian: Endian,
    /// Bytes of a `long`.
    pub long_size: u8,
    /// Bytes of a page.
    pub page_size: u32,
    /// Its formats and tables; current perf leaves `kallsyms` empty.
    pub machine: Machine,
}

impl Default for TracingData {
    fn default() -> Self {
        TracingData {
            version: String::new(),
            endian: Endian::NATIVE,
            long_size: 8,
            page_size: 4096,
            machine: Machine::default(),
        }
    }
}

impl TracingData {
    /// Decodes the blob. What was readable before an error is kept.
    pub fn parse(bytes: &[u8]) -> (TracingData, Option<String>) {
        let mut data = TracingData::default();
        let error = data.decode(bytes).err();
        (data, error)
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<(), String> {
        let rest = bytes.strip_prefix(MAGIC).ok_or("does not begin with the tracing magic")?;
        let mut c = Cursor::new(rest, Endian::Little);
        self.version = text(c.cstr());
        let cut = |e: Truncated| format!("tracing data {e}");
        self.endian = if c.u8().map_err(cut)? == 0 { Endian::Little } else { Endian::Big };
        self.long_size = c.u8().map_err(cut)?;
        if self.long_size != 4 && self.long_size != 8 {
            return Err(format!("states a long of {} bytes", self.long_size));
        }
        let at = c.position();
        let mut c = Cursor::new(&rest[at..], self.endian);
        self.sections(&mut c).map_err(cut)
    }

    fn sections(&mut self, c: &mut Cursor<'_>) -> Result<(), Truncated> {
        self.page_size = c.u32()?;
        let machine = &mut self.machine;
        c.cstr();
        machine.header_page = sized64(c)?;
        c.cstr();
        machine.header_event = sized64(c)?;
        for _ in 0..c.u32()? {
            machine.ftrace_formats.push(sized64(c)?);
        }
        for _ in 0..c.u32()? {
            let system = text(c.cstr());
            for _ in 0..c.u32()? {
                machine.formats.push((system.clone(), sized64(c)?));
            }
        }
        let n = c.u32()? as usize;
        machine.kallsyms = text(c.bytes(n)?).into();
        let n = c.u32()? as usize;
        machine.printk_formats = text(c.bytes(n)?);
        if self.version.as_str() >= "0.6" && c.remaining() >= 8 {
            machine.saved_cmdlines = sized64(c)?;
        }
        Ok(())
    }

    /// The system and format text of the tracepoint with this id.
    pub fn format(&self, id: u64) -> Option<(&str, &str)> {
        self.machine
            .formats
            .iter()
            .find(|(_, f)| format_id(f) == Some(id))
            .map(|(s, f)| (&**s, &**f))
    }

    /// `system:name` of the tracepoint with this id.
    pub fn event_name(&self, id: u64) -> Option<String> {
        let (system, text) = self.format(id)?;
        let name = text.lines().find_map(|l| l.strip_prefix("name: "))?;
        Some(format!("{system}:{}", name.trim()))
    }
}

fn format_id(text: &str) -> Option<u64> {
    text.lines().take(4).find_map(|l| l.strip_prefix("ID: "))?.trim().parse().ok()
}

fn sized64(c: &mut Cursor<'_>) -> Result<String, Truncated> {
    let n = usize::try_from(c.u64()?).unwrap_or(usize::MAX);
    c.bytes(n).map(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob() -> Vec<u8> {
        let mut b = MAGIC.to_vec();
        b.extend(b"0.6\0\x01\x04");
        b.extend(4096u32.to_be_bytes());
        for (name, body) in [("header_page", "page"), ("header_event", "event")] {
            b.extend(name.as_bytes());
            b.push(0);
            b.extend((body.len() as u64).to_be_bytes());
            b.extend(body.as_bytes());
        }
        b.extend(0u32.to_be_bytes());
        b.extend(1u32.to_be_bytes());
        b.extend(b"sched\0");
        b.extend(1u32.to_be_bytes());
        let format = b"name: sched_switch\nID: 314\nformat:\n";
        b.extend((format.len() as u64).to_be_bytes());
        b.extend(format);
        b.extend([0; 16]);
        b
    }

    #[test]
    fn the_blob_states_its_own_byte_order() {
        let (t, error) = TracingData::parse(&blob());
        assert_eq!(error, None);
        assert_eq!((t.endian, t.long_size, t.page_size), (Endian::Big, 4, 4096));
        assert_eq!(t.event_name(314).as_deref(), Some("sched:sched_switch"));
        assert_eq!(t.event_name(315), None);
    }

    #[test]
    fn cut_anywhere_it_keeps_what_came_before() {
        let whole = blob();
        for n in 0..whole.len() - 16 {
            let (t, error) = TracingData::parse(&whole[..n]);
            assert!(error.is_some(), "no error at {n}");
            assert!(t.machine.formats.len() <= 1);
        }
    }
}
