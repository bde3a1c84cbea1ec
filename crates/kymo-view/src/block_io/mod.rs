//! Text of `kymo io`: histograms of queue and device times, tables by process, lines of
//! requests.

mod files;
mod latency;
mod timehist;
mod top;

pub use latency::LatencyHistograms;
pub use timehist::{BlockLineWriter, write_block_head};
pub use top::BlockTop;

use std::io::{self, Write};

use files::owner_phrase;
use kymo_analysis::block_io::{BlockDevice, BlockNames, BlockStats, BlockTable, DeviceNames};
use kymo_model::by_number;
use kymo_table::{TableRow, TextColumn};

use crate::offcpu::waits;
use crate::units::{Grouped, Seconds, Size, Span, TimeUnits, shown};

fn device_text(device: BlockDevice, names: DeviceNames<'_>) -> String {
    names(device).map_or_else(|| device.to_string(), |name| shown(name.as_bytes()))
}

/// The sentence with the answer, and where to look next.
fn write_answer(
    out: &mut dyn Write,
    table: &BlockTable,
    names: BlockNames<'_>,
    recording: &str,
) -> io::Result<()> {
    let sum = |of: fn(&BlockStats) -> u64| table.rows.iter().map(|r| of(&r.stats)).sum::<u64>();
    let (count, queue, device) =
        (sum(|s| s.count), sum(|s| s.queue.total), sum(|s| s.device.total));
    if count == 0 {
        return Ok(());
    }
    writeln!(
        out,
        "\n {} {} of {}; {} in queues, {} with drivers and devices.",
        Grouped(count),
        by_number(count, "block request", "block requests"),
        Size(sum(|s| s.bytes)),
        Span(queue),
        Span(device)
    )?;
    if let Some(slow) = &table.slowest {
        writeln!(
            out,
            " The slowest: {} of {} to {} for {}:{}{}, {}: queue {}, device {}.",
            slow.op.name(),
            Size(slow.bytes),
            device_text(slow.device, names.devices),
            shown(slow.task.comm()),
            slow.task.tid.unwrap_or(0),
            owner_phrase(slow.owner, names),
            Span(slow.total_time()),
            Span(slow.queue_time()),
            Span(slow.device_time())
        )?;
    }
    if let Some(waiter) = table.waiters.first() {
        writeln!(
            out,
            " Longest waits for completions: {}:{}, {} in {}.",
            shown(&waiter.comm),
            waiter.tid.unwrap_or(0),
            Span(waiter.waits.total),
            waits(waiter.waits.count)
        )?;
    }
    if let Some(slow) = table.slowest.as_ref().filter(|_| !recording.is_empty()) {
        let nano = TimeUnits { nanos: true };
        let (from, to) = (Seconds(slow.start, nano), Seconds(slow.completed, nano));
        writeln!(out, " Its events: kymo script {recording} --time {from},{to}")?;
    }
    Ok(())
}

/// Name of a row's device, or its numbers.
fn device_name(row: TableRow<'_>) -> String {
    row.text(if row.has("name") { "name" } else { "device" })
}

/// Column of durations.
fn span<'a>(title: &'static str, name: &'a str) -> TextColumn<'a> {
    TextColumn::right(title, 10, move |row| Span(row.number(name)).to_string())
}
