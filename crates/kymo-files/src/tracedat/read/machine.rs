//! The tables of the recording machine. Version 6 has them one after the other
//! behind the header, version 7 each in a section.

use super::Damage;
use super::section_reader::SectionReader;
use crate::Machine;
use crate::tracedat::SectionId;

/// The most formats; kernels have some 2,500.
const MAX_FORMATS: usize = 1 << 17;

/// The order of version 6.
pub(super) const ALL: [SectionId; 6] = [
    SectionId::HEADER_INFO,
    SectionId::FTRACE_EVENTS,
    SectionId::EVENT_FORMATS,
    SectionId::KALLSYMS,
    SectionId::PRINTK,
    SectionId::CMDLINES,
];

impl Machine {
    /// Reads one table. What was readable of it before an error is kept.
    pub(super) fn read(
        &mut self,
        table: SectionId,
        s: &mut SectionReader<'_>,
    ) -> Result<(), Damage> {
        match table {
            SectionId::HEADER_INFO => {
                s.expect("header_page")?;
                self.header_page = s.sized("header_page")?;
                s.expect("header_event")?;
                self.header_event = s.sized("header_event")?;
            }
            SectionId::FTRACE_EVENTS => {
                for _ in 0..s.u32()? {
                    room(&self.ftrace_formats, s)?;
                    self.ftrace_formats.push(s.sized("ftrace format")?);
                }
            }
            SectionId::EVENT_FORMATS => {
                for _ in 0..s.u32()? {
                    let system = s.cstr("system name")?;
                    for _ in 0..s.u32()? {
                        room(&self.formats, s)?;
                        self.formats.push((system.clone(), s.sized("event format")?));
                    }
                }
            }
            SectionId::KALLSYMS => {
                let n = s.u32()?;
                self.kallsyms = s.text(n.into(), "kallsyms")?.into();
            }
            SectionId::PRINTK => {
                let n = s.u32()?;
                self.printk_formats = s.text(n.into(), "printk_formats")?;
            }
            SectionId::CMDLINES => {
                let n = s.u64()?;
                self.saved_cmdlines = s.text(n, "saved_cmdlines")?;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Checks that the file has room for the formats: those of length 0 would be limited by its size
/// only.
fn room<T>(formats: &[T], s: &SectionReader<'_>) -> Result<(), Damage> {
    if formats.len() < MAX_FORMATS {
        Ok(())
    } else {
        Err(s.damage(format!("more than {MAX_FORMATS} formats")))
    }
}
