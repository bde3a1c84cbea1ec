//! Events of perf.data among those of other recordings: lines laid out as theirs, and the
//! same JSON objects.

use std::io::Write as _;

use kymo_events::trace_dat::TaskName;
use kymo_events::{EventHead, RecordedEvent};
use kymo_format::json_string;

use crate::perf_script::sample_json::write_head;
use crate::trace_cmd::{TraceCmdOptions, TraceCmdStarts, write_time};

/// Writes events of perf.data.
pub(crate) struct PerfEventLines {
    options: TraceCmdOptions,
    starts: TraceCmdStarts,
}

impl PerfEventLines {
    pub(crate) fn new(options: TraceCmdOptions) -> PerfEventLines {
        PerfEventLines { options, starts: TraceCmdStarts::default() }
    }

    /// Appends an event with its newline.
    pub(crate) fn write(&mut self, event: &RecordedEvent<'_>, out: &mut Vec<u8>) {
        match self.options.json {
            true => json(event, out),
            false => self.text(event, out),
        }
        if out.last() != Some(&b'\n') {
            out.push(b'\n');
        }
    }

    fn text(&mut self, event: &RecordedEvent<'_>, out: &mut Vec<u8>) {
        let task = event.task();
        let tid = task.tid.unwrap_or(u32::MAX) as i32;
        // Another task of this number may have another name.
        self.starts.forget(tid);
        let name = || TaskName::new(task.comm());
        self.starts.write(tid, event.cpu().unwrap_or(u32::MAX), name, out);
        write_time(event.time.unwrap_or(0), false, self.options.ns, out);
        let title = format!("{}:", event.class.name);
        let _ = write!(out, "{title:<21} ");
        event.write_perf_text(out);
    }
}

fn json(event: &RecordedEvent<'_>, out: &mut Vec<u8>) {
    let task = event.task();
    let head = EventHead {
        comm: task.comm(),
        pid: task.pid.unwrap_or(u32::MAX),
        tid: task.tid.unwrap_or(u32::MAX),
        cpu: event.cpu(),
        time: event.time,
    };
    write_head(&head, &event.class.full_name, out);
    out.extend_from_slice(b",\"fields\":{");
    let mut first = true;
    for (n, field) in event.class.fields.iter().enumerate() {
        if field.common {
            continue;
        }
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        json_string(out, field.name.as_bytes());
        out.push(b':');
        event.field(kymo_events::FieldId(n as u32)).write_json(out);
    }
    out.extend_from_slice(b"}}\n");
}
