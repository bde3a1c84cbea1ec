//! Output of `kymo io`: histograms of queue and device times, tables by process, lines of
//! requests, and JSON (docs/json.md).

mod files;
mod latency;
mod timehist;
mod top;

pub use files::{BlockNames, FileName, FileNames};
pub use latency::LatencyHistograms;
pub use timehist::{BlockLineWriter, write_block_head};
pub use top::{BlockColumn, BlockGrouping, BlockTop};

use std::io::{self, Write};

use files::owner_phrase;
use kymo_analysis::block_io::{BlockDevice, BlockStats, BlockTable};
use kymo_analysis::tasks::DelayStats;
use serde_json::{Value, json};

use crate::offcpu::waits;
use crate::units::{Grouped, Seconds, Size, Span, TimeUnits, shown};

/// Names devices, where that is known.
pub type DeviceNames<'a> = &'a dyn Fn(BlockDevice) -> Option<String>;

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
        "\n {} block requests of {}; {} in queues, {} with drivers and devices.",
        Grouped(count),
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
            " Who waited most for completions: {}:{}, {} in {}.",
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

fn quantile(stats: &DelayStats, share: f64) -> Option<u64> {
    let max = stats.max?.0;
    stats.histogram.quantile(share).map(|q| q.min(max))
}

fn delay_json(d: &DelayStats) -> Value {
    let doublings = d.histogram.doublings();
    json!({
        "count": d.count,
        "total_ns": d.total,
        "average_ns": d.average(),
        "p50_ns": quantile(d, 0.5),
        "p90_ns": quantile(d, 0.9),
        "p99_ns": quantile(d, 0.99),
        "max_ns": d.max.map(|m| m.0),
        "max_start_ns": d.max.map(|m| m.1),
        "histogram": doublings.iter().map(|(from, n)| json!([from, n])).collect::<Vec<Value>>(),
    })
}

fn stats_json(s: &BlockStats) -> Value {
    json!({
        "count": s.count,
        "bytes": s.bytes,
        "queue": delay_json(&s.queue),
        "device_time": delay_json(&s.device),
        "total": delay_json(&s.total),
        "requeues": s.requeues,
        "errors": s.errors,
        "uncertain": s.uncertain,
    })
}

/// Members that say which device.
fn device_json(device: Option<BlockDevice>, names: DeviceNames<'_>) -> (Value, Value) {
    let numbers = device.map(|d| d.to_string());
    (numbers.into(), device.and_then(names).into())
}

fn halves_json(table: &BlockTable) -> Value {
    let c = &table.read.machine.counts;
    json!({
        "open_at_end": c.open_at_end,
        "completions_only": c.completions_only,
        "merged": c.merged,
        "uncertain": c.touching_loss,
        "alike": c.alike,
    })
}
