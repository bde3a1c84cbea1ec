//! The tracing data of a recording: the format of each tracepoint it uses, and
//! the tables needed to render them on another machine. The blob states its
//! own byte order and word size.

use std::ops::Range;

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
    /// Symbols and printk() formats of the kernel in the blob, with their sizes.
    address_tables: Option<Range<usize>>,
}

impl Default for TracingData {
    fn default() -> Self {
        TracingData {
            version: String::new(),
            endian: Endian::NATIVE,
            long_size: 8,
            page_size: 4096,
            machine: Machine::default(),
            address_tables: None,
        }
    }
}

impl TracingData {
    /// The blob without the tables that state addresses of the kernel. `None` where it is damaged.
    pub fn without_addresses(bytes: &[u8]) -> Option<Vec<u8>> {
        let (data, error) = TracingData::parse(bytes);
        let tables = data.address_tables.filter(|_| error.is_none())?;
        let no_tables = [0; 2 * size_of::<u32>()];
        Some([bytes.get(..tables.start)?, &no_tables, bytes.get(tables.end..)?].concat())
    }

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
        self.sections(&mut c).map_err(cut)?;
        let base = MAGIC.len() + at;
        self.address_tables = self.address_tables.take().map(|t| t.start + base..t.end + base);
        Ok(())
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
        let tables = c.position();
        let n = c.u32()? as usize;
        machine.kallsyms = text(c.bytes(n)?).into();
        let n = c.u32()? as usize;
        machine.printk_formats = text(c.bytes(n)?);
        self.address_tables = Some(tables..c.position());
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
    fn tables_of_addresses_can_be_left_out() {
        let mut whole = blob();
        let commands = whole.split_off(whole.len() - 8);
        whole.truncate(whole.len() - 8);
        let without = [&whole[..], &[0; 8], &commands].concat();
        let tables = [&b"ffff t"[..], b"0xff : \"text\""];
        for table in tables {
            whole.extend((table.len() as u32).to_be_bytes());
            whole.extend(table);
        }
        whole.extend(&commands);
        assert_eq!(TracingData::parse(&whole).0.machine.printk_formats, "0xff : \"text\"");
        assert_eq!(TracingData::without_addresses(&whole), Some(without));
        assert_eq!(TracingData::without_addresses(&whole[..whole.len() - 20]), None);
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
