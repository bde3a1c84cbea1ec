//! Events of a trace.dat: with the kernel's and the program's stack where the
//! recording was made with them, functions of the function tracer below their
//! callers, and time in functions of the function-graph tracer.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use anyhow::bail;
use kymo_files::tracedat::{Event, Select, TraceDat};
use kymo_format::{EventFormat, Field, FieldKind, Symbols as _};
use kymo_model::NoteKind;
use rustc_hash::FxHashMap;

use super::gather::{Gather, Owner, What};
use super::graph::Nested;
use super::waiting::{Context, Line, Waiting};
use super::{Counts, Taken, Taking};
use crate::commands::convert::model::Weight;
use kymo_events::payload::{KallsymsSource, KernelNames};
use kymo_events::trace_dat::{
    FormatTable, GraphEvent, KnownEvent, StackFormat, TaskName, TaskNames,
};
use kymo_events::{is_trace_dat_damaged, notes_on_trace_dat};
use kymo_view::Ledger;

/// How stacks come into such a recording.
const MORE: &str = "kymo trace -T records the kernel's stack with each event";

/// What an event is here.
#[derive(Clone, Copy)]
enum Role<'f> {
    Plain,
    /// The stack of the event before it; whether it is the program's.
    Stack(&'f StackFormat, bool),
    /// One function that another one called.
    Call {
        ip: &'f Field,
        parent: &'f Field,
    },
    Graph(&'f GraphEvent),
}

/// What is known of the events of one number.
struct Kind<'f> {
    known: Option<&'f KnownEvent>,
    role: Role<'f>,
    wanted: bool,
    /// The event's own frame.
    frame: u32,
    /// The field that weighs; none where each counts as one.
    weight: Option<&'f Field>,
}

/// An event that waits for its stack.
struct Pending {
    time: u64,
    comm: TaskName,
    frame: u32,
    /// The frames of a function and its caller stand for a stack.
    call: Option<[u32; 2]>,
    weight: u64,
}

struct Taker<'f> {
    formats: &'f FormatTable<'f>,
    names: KernelNames,
    taking: &'f Taking<'f>,
    times: Vec<(u64, u64)>,
    comms: TaskNames,
    kinds: FxHashMap<u16, Kind<'f>>,
    lines: FxHashMap<(usize, u32), Line<Pending>>,
    nested: Nested,
    maps: Maps,
    gather: Gather,
    counts: Counts,
}

pub(super) fn take(taking: &Taking<'_>, path: &Path) -> anyhow::Result<Taken> {
    let data = TraceDat::open(path)?;
    let formats = FormatTable::new(&data);
    check(taking, &formats)?;
    let machine = data.machine();
    let shares = taking.args.chosen.asks_for_shares();
    let times = taking.args.chosen.times(shares.then(|| data.span()).flatten())?;
    let from = times.iter().map(|t| t.0).min().unwrap_or(0);
    let mut taker = Taker {
        formats: &formats,
        names: KernelNames::new(source(taking, &machine.kallsyms)?, ""),
        taking,
        times,
        comms: TaskNames::new(&machine.saved_cmdlines),
        kinds: FxHashMap::default(),
        lines: FxHashMap::default(),
        nested: Nested::default(),
        maps: Maps::of(&data.options().procmaps),
        gather: taking.gather(),
        counts: Counts::default(),
    };
    let stats = data.for_each(&Select { from, ..Select::default() }, &mut |e| {
        taker.event(e);
        ControlFlow::Continue(())
    })?;
    taker.end();
    let mut ledger = Ledger::from_notes(notes_on_trace_dat(&data, &stats));
    taker.note(&data, &mut ledger);
    let Taker { gather, .. } = taker;
    let stacks = super::settle(gather, taking, &mut ledger);
    Ok(Taken { stacks, ledger, damaged: is_trace_dat_damaged(&data, &stats) })
}

/// The kernel's symbols: the recording has them; another file counts before them.
fn source(taking: &Taking<'_>, embedded: &Arc<String>) -> anyhow::Result<KallsymsSource> {
    let finding = &taking.args.source.finding;
    if finding.vmlinux.is_some() {
        bail!("-k is for perf.data: a trace.dat has its kernel's symbols, --kallsyms names others");
    }
    Ok(KallsymsSource::EmbeddedByKernel(match &finding.kallsyms {
        Some(path) => std::fs::read_to_string(path)
            .map_err(|e| anyhow::anyhow!("--kallsyms {}: {e}", path.display()))?
            .into(),
        None => Arc::clone(embedded),
    }))
}

/// KernelNames must be those of something; otherwise it is a slip of the fingers.
fn check(taking: &Taking<'_>, formats: &FormatTable<'_>) -> anyhow::Result<()> {
    let known = || formats.iter().filter_map(Result::ok);
    taking
        .args
        .chosen
        .check_events(|is_named| known().any(|k| is_named(&[&k.full_name, &k.format.name])))?;
    if let Weight::Field { event, name } = &taking.args.weight
        && !known().any(|k| weight(k, event.as_deref(), name).is_some())
    {
        bail!("--weight: no event of the recording has a field {name} that is a number");
    }
    Ok(())
}

/// The field that weighs in an event.
fn weight<'k>(known: &'k KnownEvent, event: Option<&str>, name: &str) -> Option<&'k Field> {
    let own = event.is_none_or(|e| e == known.full_name || e == known.format.name);
    let field = known.format.field(name).filter(|f| own && f.kind == FieldKind::Int);
    field.filter(|f| !f.common)
}

fn role(known: &KnownEvent) -> Role<'_> {
    let function = |format: &EventFormat| format.system == "ftrace" && format.name == "function";
    match known {
        KnownEvent { stack: Some(stack), .. } => Role::Stack(stack, false),
        KnownEvent { user_stack: Some(stack), .. } => Role::Stack(stack, true),
        KnownEvent { graph: Some(graph), .. } => Role::Graph(graph),
        KnownEvent { format, .. } if function(format) => {
            match (format.field("ip"), format.field("parent_ip")) {
                (Some(ip), Some(parent)) => Role::Call { ip, parent },
                _ => Role::Plain,
            }
        }
        _ => Role::Plain,
    }
}

impl<'f> Taker<'f> {
    fn event(&mut self, e: &Event<'_>) {
        let id = self.formats.id(e.payload).unwrap_or(0);
        if !self.kinds.contains_key(&id) {
            let kind = self.kind(id);
            self.kinds.insert(id, kind);
        }
        let Some(Kind { known, role, wanted, .. }) = self.kinds.get(&id) else { return };
        let (known, role, wanted) = (*known, *role, *wanted);
        let endian = self.formats.endian;
        let pid = self.formats.pid(e.payload);
        if let Some(known) = known.filter(|k| !k.names_of_tasks.is_empty()) {
            self.comms.learn(known, e.payload, endian, |_, _| {});
        }
        let place = (e.buffer, e.cpu);
        // A stack behind lost events is not that of the one before them.
        if e.missed.is_some()
            && let Some(line) = self.lines.remove(&place)
        {
            line.end().for_each(|w| add(&mut self.gather, &mut self.counts, pid_of(&w), w));
        }
        let context = Context { pid, flags: self.formats.flags(e.payload) };
        if let Role::Stack(stack, user) = role {
            let addresses: Vec<u64> = stack.entries(e.payload, endian).collect();
            let frames = match user {
                true => self.user(&addresses, stack.process(e.payload, endian)),
                false => addresses.iter().map(|a| self.kernel(*a)).collect(),
            };
            if let Some(line) = self.lines.get_mut(&place) {
                let _ = line.stack(context, frames, user);
            }
            return;
        }
        let wanted = wanted && self.wants(pid, e.time);
        if let Role::Graph(graph) = role {
            return self.function(e, graph, pid, wanted);
        }
        let pending = if wanted { self.pending(e, id, pid) } else { None };
        let line = self.lines.entry(place).or_default();
        let (gather, counts) = (&mut self.gather, &mut self.counts);
        line.event(context, pending, |w| add(gather, counts, pid_of(&w), w));
    }

    fn kind(&mut self, id: u16) -> Kind<'f> {
        let known = self.formats.get(id).ok();
        let name = known.map_or_else(|| format!("[event {id}]"), |k| k.full_name.clone());
        let names: &[&str] = match known {
            Some(k) => &[&k.full_name, &k.format.name],
            None => &[],
        };
        let field = match (&self.taking.args.weight, known) {
            (Weight::Field { event, name }, Some(known)) => weight(known, event.as_deref(), name),
            _ => None,
        };
        Kind {
            known,
            role: known.map_or(Role::Plain, role),
            wanted: self.taking.args.chosen.wants_event(names),
            frame: self.gather.event(&name),
            weight: field,
        }
    }

    fn wants(&self, pid: i32, time: u64) -> bool {
        let within = |(from, to): &(u64, u64)| (*from..=*to).contains(&time);
        let task = pid as u32;
        (self.times.is_empty() || self.times.iter().any(within))
            && self.taking.args.chosen.wants_task(self.comms.get(pid).as_bytes(), task, task)
    }

    /// What waits for its stack; nothing if the event does not weigh.
    fn pending(&mut self, e: &Event<'_>, id: u16, pid: i32) -> Option<Pending> {
        let kind = self.kinds.get(&id)?;
        let weight = match (&self.taking.args.weight, kind.weight) {
            (Weight::Field { .. }, None) => {
                self.counts.weightless += 1;
                return None;
            }
            (Weight::Field { .. }, Some(field)) => {
                let value = field.int(e.payload, self.formats.endian).unwrap_or(0);
                if field.signed && value < 0 {
                    self.counts.negative += 1;
                    return None;
                }
                value as u64
            }
            _ => 1,
        };
        let (frame, call) = (
            kind.frame,
            match kind.role {
                Role::Call { ip, parent } => {
                    let at = |f: &Field| f.int(e.payload, self.formats.endian).unwrap_or(0) as u64;
                    Some((at(parent), at(ip)))
                }
                _ => None,
            },
        );
        let call = call.map(|(parent, ip)| [self.kernel(parent), self.kernel(ip)]);
        Some(Pending { time: e.time, comm: self.comms.get(pid), frame, call, weight })
    }

    /// A function begins or ends.
    fn function(&mut self, e: &Event<'_>, graph: &GraphEvent, pid: i32, wanted: bool) {
        let endian = self.formats.endian;
        let whose = (e.buffer, pid, if pid == 0 { e.cpu } else { 0 });
        let func = graph.func(e.payload, endian);
        let Some(duration) = graph.duration(e.payload, endian) else {
            return self.nested.begin(whose, func, graph.depth(e.payload, endian));
        };
        let (own, path) = self.nested.end(whose, func, duration);
        if !wanted {
            return;
        }
        let frames: Vec<u32> = path.into_iter().map(|f| self.kernel(f)).collect();
        let comm = self.comms.get(pid);
        let task = Some(pid as u32);
        let owner = Owner { comm: comm.as_bytes(), pid: task, tid: task };
        self.gather.add(What::Functions, &owner, e.time, frames.into_iter(), own);
    }

    fn kernel(&mut self, addr: u64) -> u32 {
        let names = &self.names;
        self.gather.kernel(addr, || names.kernel(addr).map(|s| s.name.to_owned()))
    }

    fn user(&mut self, addresses: &[u64], process: Option<i32>) -> Vec<u32> {
        let (maps, gather) = (&self.maps, &mut self.gather);
        let known = addresses.iter().take_while(|a| **a != 0);
        known.map(|a| gather.user(*a, process.and_then(|p| maps.name(p, *a)))).collect()
    }

    fn end(&mut self) {
        for (_, line) in std::mem::take(&mut self.lines) {
            for waiting in line.end() {
                add(&mut self.gather, &mut self.counts, pid_of(&waiting), waiting);
            }
        }
    }

    fn note(&self, data: &TraceDat, ledger: &mut kymo_view::Ledger) {
        super::note(&self.counts, self.taking.args, Some(MORE), ledger);
        if self.gather.nameless > 0 {
            let fact = format!("{} addresses of the kernel have no name", self.gather.nameless);
            let empty = data.machine().kallsyms.is_empty();
            let advice = empty.then(|| "the recording has no kallsyms: --kallsyms FILE".to_owned());
            ledger.note(NoteKind::Unresolved, fact, advice);
        }
        if self.counts.user > 0 {
            let fact = "a trace.dat does not say what its programs had mapped where: their frames \
                        have at most the name of a binary";
            ledger.note(
                NoteKind::Unresolved,
                fact,
                Some("kymo record -g -e EVENT names them".into()),
            );
        }
        let ends = self.nested.unopened;
        if ends > 0 {
            let fact = format!("{ends} functions end whose begin is not in the recording");
            ledger.note(NoteKind::Functions, fact, None);
        }
        let begins = self.nested.unended + self.nested.still_open();
        if begins > 0 {
            let fact =
                format!("{begins} functions have no end in the recording, and count for nothing");
            ledger.tell(NoteKind::Functions, fact, None);
        }
        let converted = data.options().tsc2nsec.is_some();
        let counts = |clock: &str| matches!(clock, "counter" | "x86-tsc") && !converted;
        if self.taking.moments
            && let Some(b) = data.buffers().iter().find(|b| counts(&b.clock))
        {
            let fact = format!("times are counts of the clock {}, not nanoseconds", b.clock);
            ledger.note(NoteKind::Clock, fact, None);
        }
    }
}

fn pid_of(waiting: &Waiting<Pending>) -> u32 {
    waiting.context.pid as u32
}

/// Adds an event that is complete.
fn add(gather: &mut Gather, counts: &mut Counts, pid: u32, waiting: Waiting<Pending>) {
    let Waiting { event, kernel, user, .. } = waiting;
    counts.events += 1;
    counts.kernel += u64::from(!kernel.is_empty());
    counts.user += u64::from(!user.is_empty());
    counts.calls += u64::from(event.call.is_some());
    let call = event.call.filter(|_| kernel.is_empty());
    let frames = user.into_iter().rev().chain(kernel.into_iter().rev());
    // A call says more than that there was one.
    let own = match event.call {
        Some(_) => None,
        None => Some(event.frame),
    };
    let frames = frames.chain(call.into_iter().flatten()).chain(own);
    let owner = Owner { comm: event.comm.as_bytes(), pid: Some(pid), tid: Some(pid) };
    gather.add(What::Events, &owner, event.time, frames, event.weight);
}

/// What processes had mapped, as far as the recording says it: `PID COUNT NAME`, and a
/// line `START END PATH` for each mapping.
struct Maps(FxHashMap<i32, Vec<(u64, u64, String)>>);

impl Maps {
    fn of(texts: &[String]) -> Maps {
        let mut maps = Maps(FxHashMap::default());
        for text in texts {
            let mut lines = text.lines();
            let pid = lines.next().and_then(|l| l.split_whitespace().next());
            let Some(pid) = pid.and_then(|p| i32::from_str_radix(p, 16).ok()) else { continue };
            let mapping = |line: &str| {
                let mut words = line.splitn(3, ' ');
                let mut hex = || u64::from_str_radix(words.next()?, 16).ok();
                let (start, end) = (hex()?, hex()?);
                Some((start, end, words.next()?.trim().to_owned()))
            };
            maps.0.entry(pid).or_default().extend(lines.filter_map(mapping));
        }
        maps
    }

    fn name(&self, process: i32, addr: u64) -> Option<&str> {
        let of = |(start, end, _): &&(u64, u64, String)| (*start..*end).contains(&addr);
        self.0.get(&process)?.iter().find(of).map(|m| m.2.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Maps;

    #[test]
    fn mappings_are_read_as_trace_cmd_writes_them() {
        let text = "1f 2 /usr/bin/some thing\n400000 401000 /usr/bin/some thing\n\
                    7f0000000000 7f0000100000 /usr/lib/libc.so.6\nrubbish\n";
        let maps = Maps::of(&[text.to_owned(), "nonsense".to_owned()]);
        assert_eq!(maps.name(0x1f, 0x400fff), Some("/usr/bin/some thing"));
        assert_eq!(maps.name(0x1f, 0x401000), None);
        assert_eq!(maps.name(0x1f, 0x7f00000fffff), Some("/usr/lib/libc.so.6"));
        assert_eq!(maps.name(31 + 1, 0x400000), None);
    }
}
