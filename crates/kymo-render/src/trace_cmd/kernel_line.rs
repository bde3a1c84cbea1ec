//! One event of the kernel as `trace-cmd report` lays it out, or as a JSON object, from a
//! file or from a ring that is read while it is written.
//!
//! ```text
//!   instance:             comm-pid   [cpu] seconds.micros: event:                payload
//! ```

use std::io::Write as _;

use kymo_events::EventHead;
use kymo_events::payload::{self, KernelNames};
use kymo_events::trace_dat::{
    GraphEntry, GraphEvent, KnownEvent, StackFormat, TaskName, write_duration,
};
use kymo_format::ring::Missed;
use kymo_format::{Symbols as _, flag_letters, json_string};
use kymo_model::{Endian, UntrustedText};

use super::TraceCmdOptions;
use super::open_function::{OpenFunction, write_function};
use crate::number::{self, SecondText};
use crate::perf_script::sample_json::write_thread_head;
use crate::program_event::write_message;
use crate::start_cache::StartCache;

/// An event, with what rendering it needs.
pub(crate) struct KernelLine<'e> {
    /// Nanoseconds, or a count.
    pub(crate) time: u64,
    /// Whether times are counts.
    pub(crate) counts: bool,
    pub(crate) cpu: u32,
    pub(crate) tid: i32,
    /// Process of the thread, if it is known.
    pub(crate) pid: Option<u32>,
    /// `common_flags` and `common_preempt_count`.
    pub(crate) flags: (u8, u8),
    /// Number of its class.
    pub(crate) id: u16,
    /// Its format, or why there is none.
    pub(crate) known: Result<&'e KnownEvent, &'e str>,
    pub(crate) payload: &'e [u8],
    pub(crate) endian: Endian,
    pub(crate) names: &'e KernelNames,
    /// Duration of the function that it begins and the next event ends.
    pub(crate) leaf: Option<u64>,
}

impl KernelLine<'_> {
    /// Appends a line of text.
    #[inline(always)]
    pub(crate) fn write_text(
        &self,
        options: TraceCmdOptions,
        starts: &mut TraceCmdStarts,
        comm: impl FnOnce() -> TaskName,
        out: &mut Vec<u8>,
    ) {
        self.write_start(options, starts, comm, out);
        match self.known {
            Ok(known) => {
                out.extend_from_slice(&known.column);
                self.write_payload(known, out);
            }
            Err(_) => _ = write!(out, "[unknown event {}]", self.id),
        }
        // Some texts end the line themselves.
        if out.last() != Some(&b'\n') {
            out.push(b'\n');
        }
    }

    /// Appends task, CPU and time.
    #[inline(always)]
    fn write_start(
        &self,
        options: TraceCmdOptions,
        starts: &mut TraceCmdStarts,
        comm: impl FnOnce() -> TaskName,
        out: &mut Vec<u8>,
    ) {
        if options.latency {
            latency_start(comm(), self.tid, self.cpu, self.flags, out);
        } else {
            starts.write(self.tid, self.cpu, comm, out);
        }
        if self.counts {
            write_count(self.time, out)
        } else {
            starts.write_time(self.time, options.ns, out)
        }
    }

    /// The function that begins with the event, if one does, with its line as far as it is
    /// known before the next event.
    pub(crate) fn open_function(
        &self,
        options: TraceCmdOptions,
        starts: &mut TraceCmdStarts,
        comm: impl FnOnce() -> TaskName,
    ) -> Option<OpenFunction> {
        let known = self.known.ok()?;
        let graph = known.graph.as_ref()?;
        let entry = GraphEntry::of(graph, (self.tid, self.payload), self.endian)?;
        let mut start = Vec::new();
        self.write_start(options, starts, comm, &mut start);
        start.extend_from_slice(&known.column);
        let depth = graph.depth(self.payload, self.endian);
        let mut name = Vec::new();
        self.write_function_name(graph, &mut name);
        Some(OpenFunction::new(entry, start, (depth, name)))
    }

    fn write_function_name(&self, graph: &GraphEvent, out: &mut Vec<u8>) {
        let address = graph.func(self.payload, self.endian);
        match self.names.kernel(address) {
            Some(symbol) => UntrustedText::new(symbol.name).write_escaped(out),
            None => number::hex(out, address, 0),
        }
    }

    #[inline(always)]
    fn write_payload(&self, known: &KnownEvent, out: &mut Vec<u8>) {
        match (&known.graph, &known.stack) {
            (None, None) => {
                payload::text(&known.format, self.payload, self.endian, self.names, false, out);
            }
            (Some(graph), _) => self.write_graph(graph, out),
            (None, Some(stack)) => self.write_stack(stack, out),
        }
    }

    fn write_stack(&self, stack: &StackFormat, out: &mut Vec<u8>) {
        // The print format shows eight entries and no more.
        out.extend_from_slice(b"<stack trace >\n");
        for address in stack.entries(self.payload, self.endian) {
            out.extend_from_slice(b"=> ");
            match self.names.kernel(address) {
                Some(symbol) => UntrustedText::new(symbol.name).write_escaped(out),
                None => out.extend_from_slice(b"0"),
            }
            let _ = writeln!(out, " ({address:x})");
        }
    }

    /// A function that begins, ends, or is a leaf.
    fn write_graph(&self, graph: &GraphEvent, out: &mut Vec<u8>) {
        let depth = graph.depth(self.payload, self.endian);
        if let GraphEvent::Entry { .. } = graph {
            return write_function(
                self.leaf,
                depth,
                |out| self.write_function_name(graph, out),
                out,
            );
        }
        write_duration(graph.duration(self.payload, self.endian), out);
        number::pad(out, 2 * depth);
        out.push(b'}');
    }

    /// Appends a JSON object and a newline.
    pub(crate) fn write_json(&self, comm: &[u8], instance: &str, out: &mut Vec<u8>) {
        let tid = self.tid as u32;
        let time = (!self.counts).then_some(self.time);
        let head = EventHead { comm, pid: tid, tid, cpu: Some(self.cpu), time };
        write_thread_head(&head, self.pid, self.known.map_or("", |k| &k.full_name), out);
        if self.counts {
            let _ = write!(out, ",\"count\":{}", self.time);
        }
        out.extend_from_slice(b",\"flags\":");
        json_string(out, &flag_letters(self.flags.0, self.flags.1));
        write_instance(instance, out);
        if let Ok(known) = self.known {
            out.extend_from_slice(b",\"fields\":");
            payload::json(&known.format, self.payload, self.endian, out);
            if known.format.names_addresses() {
                let mut message = Vec::new();
                self.write_payload(known, &mut message);
                write_message(message.trim_ascii_end(), out);
            }
        }
        out.extend_from_slice(b"}\n");
    }
}

fn write_instance(name: &str, out: &mut Vec<u8>) {
    if !name.is_empty() {
        out.extend_from_slice(b",\"instance\":");
        json_string(out, name.as_bytes());
    }
}

/// Appends a mark where events of a CPU are missing, as text.
pub(crate) fn write_lost_text(cpu: u32, missed: Missed, out: &mut Vec<u8>) {
    let _ = match missed {
        Missed::Count(n) => writeln!(out, "CPU:{cpu} [{n} EVENTS DROPPED]"),
        Missed::Unknown => writeln!(out, "CPU:{cpu} [EVENTS DROPPED]"),
    };
}

/// Appends a mark where events of a CPU are missing, as a JSON object.
pub(crate) fn write_lost_json(cpu: u32, missed: Missed, instance: &str, out: &mut Vec<u8>) {
    let _ = write!(out, "{{\"cpu\":{cpu},\"lost\":");
    let _ = match missed {
        Missed::Count(n) => write!(out, "{n}"),
        Missed::Unknown => write!(out, "null"),
    };
    write_instance(instance, out);
    out.extend_from_slice(b"}\n");
}

/// `comm-pid cpu` and the flags, as `trace-cmd report -l`.
fn latency_start(comm: TaskName, pid: i32, cpu: u32, flags: (u8, u8), out: &mut Vec<u8>) {
    let comm = comm.as_bytes();
    let comm = UntrustedText::new(comm.get(..8).unwrap_or(comm)).escaped();
    number::pad(out, 8usize.saturating_sub(comm.len()));
    out.extend_from_slice(&comm);
    let _ = write!(out, "-{pid:<5} {cpu:>3}");
    out.extend_from_slice(&flag_letters(flags.0, flags.1));
}

/// A count where others have a time.
fn write_count(count: u64, out: &mut Vec<u8>) {
    number::decimal(out, count, 12);
    out.extend_from_slice(b": ");
}

/// `comm-pid [cpu]` and seconds, remembered: a task on a CPU writes many lines.
#[derive(Default)]
pub(crate) struct TraceCmdStarts {
    tasks: StartCache<(i32, u32)>,
    second: SecondText,
}

impl TraceCmdStarts {
    /// The task has another name from now on.
    pub(crate) fn forget(&mut self, pid: i32) {
        self.tasks.forget(|(task, _)| *task == pid);
    }

    /// Appends ` seconds.micros: `, rounded as trace-cmd rounds, or ` seconds.nanos: `.
    #[inline]
    pub(crate) fn write_time(&mut self, time: u64, ns: bool, out: &mut Vec<u8>) {
        out.push(b' ');
        if ns {
            number::nanos(out, time);
            out.extend_from_slice(b": ");
        } else {
            self.second.write(out, time.saturating_add(500));
        }
    }

    /// Appends task and CPU; `cpu`: `u32::MAX` if it is not known.
    #[inline]
    pub(crate) fn write(
        &mut self,
        pid: i32,
        cpu: u32,
        comm: impl FnOnce() -> TaskName,
        out: &mut Vec<u8>,
    ) {
        let at = (pid as u32 ^ cpu.wrapping_mul(37)) as usize;
        if let Some(start) = self.tasks.get(at, |key| *key == (pid, cpu)) {
            return number::some_of(out, &start.text, start.len);
        }
        let from = out.len();
        let comm = comm();
        let comm = UntrustedText::new(comm.as_bytes()).escaped();
        number::pad(out, 16usize.saturating_sub(comm.len()));
        out.extend_from_slice(&comm);
        let _ = match cpu {
            u32::MAX => write!(out, "-{pid:<5} [---]"),
            _ => write!(out, "-{pid:<5} [{cpu:03}]"),
        };
        self.tasks.put(at, (pid, cpu), out.get(from..).unwrap_or(&[]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_round_to_the_nearest_microsecond() {
        let of = |time, ns| {
            let mut out = Vec::new();
            TraceCmdStarts::default().write_time(time, ns, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(of(11_368_843_602_601, false), " 11368.843603: ");
        assert_eq!(of(999_999_500, false), "     1.000000: ");
        assert_eq!(of(1_000, true), "     0.000001000: ");
        let mut count = Vec::new();
        write_count(2, &mut count);
        assert_eq!(count, b"           2: ");
    }
}
