//! Events of CTF traces, with the stacks that LTTng's contexts `callstack-kernel` and
//! `callstack-user` bring along.

use std::ops::ControlFlow;
use std::path::Path;

use anyhow::bail;
use kymo_files::ctf::read::{Class, Ctf, Event, FieldInfo, Group, Part, Select, TaskField, Visit};
use kymo_files::ctf::types::EnvValue;
use kymo_kernel::system::SystemRoot;
use kymo_model::NoteKind;
use kymo_symbols::Resolver;

use super::gather::{Gather, Owner as Whose, What};
use super::{Counts, Taken, Taking};
use crate::commands::convert::model::Weight;
use kymo_events::ctf::{EventTask, TraceOwners};
use kymo_events::{is_ctf_damaged, notes_on_ctf};
use kymo_view::Ledger;
use kymo_view::trust::note_symbols;

/// The contexts that are stacks.
const KERNEL: &str = "callstack_kernel";
const USER: &str = "callstack_user";
/// More than any tracer records; what a damaged trace says beyond is not read.
const DEEPEST: usize = 1024;

/// What is known of the events of one kind.
struct Kind<'c> {
    wanted: bool,
    frame: u32,
    weight: Option<&'c FieldInfo>,
}

pub(super) fn take(taking: &Taking<'_>, path: &Path) -> anyhow::Result<Taken> {
    let args = taking.args;
    let ctf = Ctf::open(path)?;
    check(taking, &ctf)?;
    let shares = args.chosen.asks_for_shares();
    let span = if shares { ctf.span()? } else { None };
    let times = args.chosen.times(span)?;
    let mut gather = taking.gather();
    let mut kernel = Kernel::of(taking, path, &ctf);
    let mut counts = Counts::default();
    let kinds: Vec<Kind<'_>> = (0..ctf.class_count() as u32)
        .map_while(|n| ctf.class(n))
        .map(|c| Kind {
            wanted: args.chosen.wants_event(&names(&c)),
            frame: gather.event(&c.event.name),
            weight: weight(taking, &c),
        })
        .collect();
    let (owners, mut reader) = (TraceOwners::new(&ctf), ctf.reader());
    let select = Select { from: times.iter().map(|t| t.0).min().unwrap_or(0) };
    let stats = ctf.for_each(&select, &mut |e| {
        let kind = kinds.get(e.class as usize).filter(|k| k.wanted);
        let within = |(from, to): &(u64, u64)| (*from..=*to).contains(&e.time);
        let in_time = times.is_empty() || times.iter().any(within);
        let Some(kind) = kind.filter(|_| in_time) else { return ControlFlow::Continue(()) };
        let mut look = Look::new(owners.get(e.trace), kind.weight);
        // What is whole of an event counts: its kind, its contexts.
        let _ = reader.see(e.class, &e.body, &mut look);
        if let Some(weight) = look.weight(taking, kind, &mut counts) {
            let task = look.task;
            let (pid, tid) = (task.pid.or(task.tid), task.tid.or(task.pid));
            if args.chosen.wants_task(task.comm(), pid.unwrap_or(0), tid.unwrap_or(0)) {
                add(&mut gather, &mut counts, &mut kernel, e, kind, &look, weight);
            }
        }
        ControlFlow::Continue(())
    })?;
    let mut ledger = Ledger::from_notes(notes_on_ctf(&ctf, &stats));
    super::note(&counts, args, None, &mut ledger);
    kernel.note(&gather, &mut ledger);
    if counts.user > 0 {
        let fact = "CTF does not say what programs had mapped where: their frames have no names";
        ledger.note(NoteKind::Unresolved, fact, Some("kymo record -g -e EVENT names them".into()));
    }
    let stacks = super::settle(gather, taking, &mut ledger);
    Ok(Taken { stacks, ledger, damaged: is_ctf_damaged(&ctf, &stats) })
}

fn add(
    gather: &mut Gather,
    counts: &mut Counts,
    kernel: &mut Kernel,
    e: &Event<'_>,
    kind: &Kind<'_>,
    look: &Look<'_>,
    weight: u64,
) {
    counts.events += 1;
    counts.kernel += u64::from(!look.kernel.is_empty());
    counts.user += u64::from(!look.user.is_empty());
    let mut frames: Vec<u32> = look.user.iter().rev().map(|a| gather.user(*a, None)).collect();
    for addr in look.kernel.iter().rev() {
        frames.push(gather.kernel(*addr, || kernel.name(*addr)));
    }
    frames.push(kind.frame);
    let task = &look.task;
    let owner = Whose {
        comm: if task.named { task.comm() } else { b"[unknown]" },
        pid: task.pid.or(task.tid),
        tid: task.tid.or(task.pid),
    };
    gather.add(What::Events, &owner, e.time, frames.into_iter(), weight);
}

/// An event is called `provider:name` or only `name`.
fn names<'c>(class: &Class<'c>) -> [&'c str; 2] {
    let full = class.event.name.as_str();
    [full, full.split_once(':').map_or(full, |(_, bare)| bare)]
}

fn weight<'c>(taking: &Taking<'_>, class: &Class<'c>) -> Option<&'c FieldInfo> {
    let Weight::Field { event, name } = &taking.args.weight else { return None };
    let own = event.as_ref().is_none_or(|e| names(class).contains(&e.as_str()));
    let find = |part| class.field(part, name).map(|(_, field)| field);
    let parts = [Part::Fields, Part::EventContext, Part::StreamContext];
    parts.into_iter().filter(|_| own).find_map(find).filter(|f| f.size > 0)
}

/// Names must be those of something; otherwise it is a slip of the fingers.
fn check(taking: &Taking<'_>, ctf: &Ctf) -> anyhow::Result<()> {
    let classes = || (0..ctf.class_count() as u32).map_while(|n| ctf.class(n));
    taking.args.chosen.check_events(|is_named| classes().any(|c| is_named(&names(&c))))?;
    if let Weight::Field { name, .. } = &taking.args.weight
        && !classes().any(|c| weight(taking, &c).is_some())
    {
        bail!("--weight: no event of the traces has a field {name} that is a number");
    }
    Ok(())
}

/// Looks at an event: whose it is, what it weighs, its stacks with the innermost
/// frame first.
struct Look<'l> {
    task: EventTask,
    field: Option<&'l FieldInfo>,
    value: Option<u64>,
    /// The stack whose row is open; whether it is the kernel's.
    open: Option<bool>,
    kernel: Vec<u64>,
    user: Vec<u64>,
}

impl<'l> Look<'l> {
    fn new(task: EventTask, field: Option<&'l FieldInfo>) -> Look<'l> {
        Look { task, field, value: None, open: None, kernel: Vec::new(), user: Vec::new() }
    }

    /// Nothing if the event does not weigh.
    fn weight(&self, taking: &Taking<'_>, kind: &Kind<'_>, counts: &mut Counts) -> Option<u64> {
        let Weight::Field { .. } = &taking.args.weight else { return Some(1) };
        let (Some(field), Some(value)) = (kind.weight, self.value) else {
            counts.weightless += 1;
            return None;
        };
        if field.signed && (value as i64) < 0 {
            counts.negative += 1;
            return None;
        }
        Some(value)
    }
}

impl Visit for Look<'_> {
    fn int(&mut self, field: &FieldInfo, value: u64) {
        if let Some(kernel) = self.open {
            let stack = if kernel { &mut self.kernel } else { &mut self.user };
            // The tracer ends a stack with all bits set.
            if value != u64::MAX && value != 0 && stack.len() < DEEPEST {
                stack.push(value);
            }
            return;
        }
        let _ = self.task.number(field, value);
        if self.field.is_some_and(|f| std::ptr::eq(f, field)) {
            self.value = Some(value);
        }
    }

    fn text(&mut self, field: &FieldInfo, value: &[u8]) {
        if field.task == Some(TaskField::Name) {
            self.task.name(value);
        }
    }

    fn open(&mut self, field: &FieldInfo, group: Group, _count: u64) {
        if group == Group::Row && field.part != Part::Fields {
            self.open = match field.name.as_str() {
                KERNEL => Some(true),
                USER => Some(false),
                _ => None,
            };
        }
    }

    fn close(&mut self, _group: Group) {
        self.open = None;
    }
}

/// Names of the kernel's functions: out of a file that was named, or of the running
/// kernel if the trace was made under it since it was booted.
struct Kernel {
    resolver: Option<Resolver>,
}

impl Kernel {
    fn of(taking: &Taking<'_>, path: &Path, ctf: &Ctf) -> Kernel {
        let finding = &taking.args.source.finding;
        let named = finding.kallsyms.is_some() || finding.vmlinux.is_some();
        let usable = named || ctf.traces().iter().all(|t| is_of_this_boot(t.metadata()));
        Kernel { resolver: usable.then(|| Resolver::new(finding.options(path))) }
    }

    fn name(&mut self, addr: u64) -> Option<String> {
        self.resolver.as_ref()?.kernel_span(addr).map(|s| s.2.to_owned())
    }

    fn note(&self, gather: &Gather, ledger: &mut kymo_view::Ledger) {
        if let Some(resolver) = &self.resolver {
            note_symbols(resolver, ledger);
        }
        if gather.nameless > 0 {
            let fact = format!("{} addresses of the kernel have no name", gather.nameless);
            let advice = match self.resolver {
                Some(_) => None,
                None => Some(
                    "the trace is not of the kernel that runs here: --kallsyms FILE names its symbols"
                        .to_owned(),
                ),
            };
            ledger.note(NoteKind::Unresolved, fact, advice);
        }
    }
}

/// Kernels move at each boot: the same machine and release are not enough.
fn is_of_this_boot(metadata: &kymo_files::ctf::Metadata) -> bool {
    let text = |name: &str| match metadata.env(name) {
        Some(EnvValue::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let system = SystemRoot::machine();
    let is = |name: &str, here: Option<String>| text(name).zip(here).is_some_and(|(t, h)| t == h);
    is("hostname", system.hostname())
        && is("kernel_release", system.kernel_release())
        && text("trace_creation_datetime")
            .and_then(seconds)
            .zip(system.boot_time())
            .is_some_and(|(t, b)| t > b)
}

/// `20261121T223000+0100` as seconds since 1970.
fn seconds(text: &str) -> Option<i64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    let (year, month, day) = (number(0, 4)?, number(4, 6)?, number(6, 8)?);
    let (hour, minute, second) = (number(9, 11)?, number(11, 13)?, number(13, 15)?);
    // Days since 1970 of a year that begins in March.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days =
        365 * y + y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400) + (153 * m + 2) / 5 + day
            - 719_469;
    let zone = match (text.get(15..16), number(16, 18), number(18, 20)) {
        (Some("-"), Some(h), Some(m)) => -(h * 60 + m),
        (Some("+"), Some(h), Some(m)) => h * 60 + m,
        _ => 0,
    };
    Some(((days * 24 + hour) * 60 + minute - zone) * 60 + second)
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn dates_are_counted_from_1970() {
        // What `date -u -d … +%s` says.
        assert_eq!(seconds("19700101T000000+0000"), Some(0));
        assert_eq!(seconds("20261121T223000+0100"), Some(1_795_296_600));
        assert_eq!(seconds("20240229T120000-0530"), Some(1_709_227_800));
        assert_eq!(seconds("yesterday"), None);
    }
}
