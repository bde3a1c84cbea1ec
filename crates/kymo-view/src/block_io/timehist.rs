//! `kymo io timehist`: a line for each request that is done.

use std::io::{self, Write};

use kymo_analysis::block_io::{BlockLine, BlockNames, BlockRequest};

use super::device_text;
use super::files::owner_text;
use crate::units::{Millis, Seconds, TimeUnits, shown};

/// Writes lines.
pub struct BlockLineWriter<'o> {
    /// Output.
    pub out: &'o mut dyn Write,
    /// JSON instead of text.
    pub json: bool,
    /// Units of times.
    pub units: TimeUnits,
    /// Names devices and files.
    pub names: BlockNames<'o>,
    /// Whether it is known what requests are for.
    pub has_owners: bool,
}

/// Writes the heading.
///
/// # Errors
/// If writing fails.
pub fn write_block_head(out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "{:>17}  {:<10}  {:<7}  {:>12}  {:>8}  {:>10}  {:>10}  task",
        "start", "device", "op", "sector", "bytes", "queue (ms)", "device (ms)"
    )
}

impl BlockLineWriter<'_> {
    /// Writes a request; `cpu`: where it was completed.
    ///
    /// # Errors
    /// If writing fails.
    pub fn write(&mut self, request: &BlockRequest, cpu: u32) -> io::Result<()> {
        let task = &request.task;
        if self.json {
            let line = BlockLine { request, cpu, has_owners: self.has_owners };
            return line.write_json(self.out, self.names);
        }
        let mut more = String::new();
        if self.has_owners {
            more += &format!(" {}", owner_text(request.owner, self.names));
        }
        if request.requeues > 0 {
            more += &format!(" requeued {}", request.requeues);
        }
        if request.error != 0 {
            more += &format!(" error {}", request.error);
        }
        if request.is_uncertain {
            more += " !lost";
        }
        writeln!(
            self.out,
            "{:>17}  {:<10}  {:<7}  {:>12}  {:>8}  {:>10}  {:>11}  {}:{}{more}",
            Seconds(request.start, self.units),
            device_text(request.device, self.names.devices),
            request.op.name(),
            request.sector,
            request.bytes,
            Millis(request.queue_time(), self.units),
            Millis(request.device_time(), self.units),
            shown(task.comm()),
            task.tid.unwrap_or(0),
        )
    }
}
