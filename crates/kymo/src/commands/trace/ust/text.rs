//! An event of a program as a line beside those of the kernel, or as a JSON object. What stands
//! behind its name is what `script` writes of the same event from a file.

use std::io::Write as _;
use std::sync::Arc;

use anstyle::{AnsiColor, Style};
use kymo_files::ctf::read::{Class, Ctf, PacketEvent, PacketReader, Reader};

use kymo_events::EventHead;
use kymo_events::ctf::EventTask;
use kymo_render::program_event::{
    CodeNames, EventObject, EventPayload, PayloadBuffers, PayloadLine, PrintFormat, write_message,
    write_object_head,
};

const TASK: Style = AnsiColor::Cyan.on_default();
const EVENT: Style = AnsiColor::Yellow.on_default().bold();

/// How events are shown.
pub(super) struct LineStyle {
    pub(super) json: bool,
    pub(super) colour: bool,
    /// Letters between CPU and time that events of the kernel beside have.
    pub(super) flags: usize,
}

/// What is so in a program: no interrupt, nothing switched off.
const FLAGS: &str = "..... ";

/// The events of one program, and names for their addresses.
pub(super) struct ProgramEvents {
    trace: Arc<Ctf>,
    formats: Vec<Option<PrintFormat>>,
    pub(super) code: CodeNames,
    buffers: PayloadBuffers,
    payload: Vec<u8>,
}

/// When, where and whose an event is, as far as its packet does not say it.
#[derive(Clone, Copy)]
pub(super) struct EventOrigin<'a> {
    /// Process, and what it is called.
    pub(super) process: (u32, &'a str),
    /// What a thread of it is called, if it has a name of its own.
    pub(super) thread: &'a dyn Fn(i32) -> Option<&'a str>,
    /// `CLOCK_MONOTONIC`, nanoseconds.
    pub(super) time: u64,
}

impl ProgramEvents {
    pub(super) fn new(trace: Ctf, code: CodeNames) -> ProgramEvents {
        let mut events = ProgramEvents {
            trace: Arc::new(trace),
            formats: Vec::new(),
            code,
            buffers: PayloadBuffers::default(),
            payload: Vec::new(),
        };
        events.look_up_formats();
        events
    }

    /// The program has more events now.
    pub(super) fn set_trace(&mut self, trace: Ctf) {
        self.trace = Arc::new(trace);
        self.look_up_formats();
    }

    fn look_up_formats(&mut self) {
        let classes = 0..self.trace.class_count() as u32;
        let format = |n| self.trace.class(n).and_then(|c| PrintFormat::of(&c));
        self.formats = classes.map(format).collect();
    }

    /// Hands out the events of a packet. `false`: it could not be read to its end.
    pub(super) fn for_each_in(
        &mut self,
        packets: &mut PacketReader,
        packet: &[u8],
        mut sink: impl FnMut(&mut ProgramEvents, &mut Reader<'_>, &PacketEvent<'_>),
    ) -> bool {
        let trace = Arc::clone(&self.trace);
        let mut reader = trace.reader();
        packets.for_each(&trace, packet, |event| sink(self, &mut reader, &event))
    }

    /// Appends an event and the line's end.
    pub(super) fn write(
        &mut self,
        style: &LineStyle,
        reader: &mut Reader<'_>,
        event: &PacketEvent<'_>,
        origin: EventOrigin<'_>,
        out: &mut Vec<u8>,
    ) {
        let Some(class) = reader.ctf().class(event.class) else { return };
        let format = self.formats.get(event.class as usize).and_then(Option::as_ref);
        self.payload.clear();
        let payload = EventPayload::new(&mut self.buffers, format, &mut self.code, 0);
        let mut line = PayloadLine::new(payload, EventTask::default(), &mut self.payload);
        // Its packet was read up to behind it: it is whole.
        let _ = reader.see(event.class, &event.body, &mut line);
        let tid = line.end().tid.unwrap_or(0);
        let (pid, process) = origin.process;
        let comm = (origin.thread)(tid.cast_signed()).unwrap_or(process);
        let name = printable_name(&class);
        if style.json {
            let comm = comm.as_bytes();
            let (cpu, time) = (event.cpu, Some(origin.time));
            write_object_head(&EventHead { comm, pid, tid, cpu, time }, &class.event.name, out);
            let mut object = EventObject::new(EventTask::default(), &mut self.code, 0);
            let _ = reader.see(event.class, &event.body, &mut object);
            object.write(out);
            if format.is_some() {
                write_message(&self.payload, out);
            }
            return out.extend_from_slice(b"}\n");
        }
        style.write_head(comm, tid, event.cpu, origin.time, &name, out);
        out.extend_from_slice(&self.payload);
        out.push(b'\n');
    }
}

/// The name of a class. It is up to the program, and keeps to its line.
fn printable_name(class: &Class<'_>) -> String {
    class.event.name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

impl LineStyle {
    fn write_head(
        &self,
        comm: &str,
        tid: u32,
        cpu: Option<u32>,
        time: u64,
        event: &str,
        out: &mut Vec<u8>,
    ) {
        // As the kernel's own lines round.
        let micros = time.saturating_add(500) / 1000;
        let (seconds, micros) = (micros / 1_000_000, micros % 1_000_000);
        let (task, name) = match self.colour {
            true => (TASK, EVENT),
            false => (Style::new(), Style::new()),
        };
        let cpu = cpu.map_or("[ - ]".to_owned(), |cpu| format!("[{cpu:03}]"));
        let flags = match self.flags {
            0 => "",
            n => FLAGS.get(FLAGS.len().saturating_sub(n + 1)..).unwrap_or(FLAGS),
        };
        let _ = write!(
            out,
            "{task}{comm:>16}-{tid:<7}{task:#} {cpu} {flags}{seconds:>5}.{micros:06}: \
             {name}{event}:{name:#} ",
        );
    }
}
