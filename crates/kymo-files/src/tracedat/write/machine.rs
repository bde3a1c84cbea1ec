//! The tables of the recording machine, as `read/machine.rs` reads them.

use super::sink::Bytes;
use crate::Machine;
use crate::tracedat::SectionId;

impl Machine {
    /// Writes one table.
    pub(super) fn write(&self, table: SectionId, out: &mut Bytes) {
        match table {
            SectionId::HEADER_INFO => {
                out.cstr("header_page").sized(&self.header_page);
                out.cstr("header_event").sized(&self.header_event);
            }
            SectionId::FTRACE_EVENTS => {
                out.u32(self.ftrace_formats.len() as u32);
                for text in &self.ftrace_formats {
                    out.sized(text);
                }
            }
            SectionId::EVENT_FORMATS => {
                // Systems in the order they come; a system that comes twice is written twice.
                let runs: Vec<_> = self.formats.chunk_by(|a, b| a.0 == b.0).collect();
                out.u32(runs.len() as u32);
                for run in runs {
                    out.cstr(run.first().map_or("", |f| &f.0)).u32(run.len() as u32);
                    for (_, text) in run {
                        out.sized(text);
                    }
                }
            }
            SectionId::KALLSYMS => {
                out.u32(self.kallsyms.len() as u32).raw(self.kallsyms.as_bytes());
            }
            SectionId::PRINTK => {
                out.u32(self.printk_formats.len() as u32).raw(self.printk_formats.as_bytes());
            }
            SectionId::CMDLINES => {
                out.sized(&self.saved_cmdlines);
            }
            _ => {}
        }
    }
}
