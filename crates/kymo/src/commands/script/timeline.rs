//! Events of a trace.dat, of CTF traces, or of both on one time. They are merged and
//! gathered on one thread, rendered on others.

use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use kymo_files::ctf::read::Times;
use kymo_files::tracedat::TraceDat;
use kymo_files::{Moment, Select, Stats, Timeline, TimelineError};
use kymo_model::NoteKind;
use kymo_view::Ledger;

use super::filter::Filter;
use super::pool::{self, Job, Worker};
use super::{Args, ctf, nothing, output, tracedat};
use crate::commands::timeline::{end, ledger};
use kymo_events::payload::{KallsymsSource, KernelNames};
use kymo_events::trace_dat::FormatTable;

/// More threads than this only wait for the one that merges.
const MOST_PRINTERS: usize = 6;
/// Bytes of events that go together.
const FULL: usize = 192 << 10;
/// Events that go together: with few bytes each they still are enough work.
const MANY: usize = 8 << 10;

pub(super) fn run(args: &Args, paths: &[PathBuf]) -> anyhow::Result<ExitCode> {
    let mut timeline = Timeline::open(paths)?;
    refuse(args, &timeline)?;
    if let Some(programs) = timeline.programs_mut().filter(|_| args.real_time) {
        programs.set_times(Times::Real);
    }
    let shares = args.time.as_ref().is_some_and(|t| t.contains('%'));
    let filter = Filter::new(args, if shares { timeline.span()? } else { None })?;
    if args.header || args.header_only {
        timeline
            .kernels()
            .iter()
            .try_for_each(|k| output::write(tracedat::header(k).as_bytes()))?;
        timeline.programs().map_or(Ok(()), |p| output::write(ctf::header(p).as_bytes()))?;
        if args.header_only {
            return Ok(ExitCode::SUCCESS);
        }
    }
    let kernels: Vec<Kernel<'_>> = timeline.kernels().iter().map(Kernel::new).collect();
    if let ([data], None, false) = (timeline.kernels(), timeline.programs(), args.json) {
        output::write(tracedat::cpus(data).as_bytes())?;
    }
    timeline.kernels().iter().try_for_each(tracedat::texts)?;
    let first = Printer::new(args, &timeline, &kernels, &filter)?;
    // A time since the line before is known to who wrote that line.
    let in_turn = args.reltime || args.deltatime;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let n = if in_turn { 1 } else { threads.min(MOST_PRINTERS) };
    let printers = std::iter::repeat_with(|| first.another()).take(n).collect();
    let feed = Feed::new(args, &timeline, &kernels);
    let (stats, printers) = pool::run(printers, |give| feed.run(&filter, give))?;
    let stats = stats?;
    let mut ledger = ledger(&timeline, &stats);
    note(&printers, &mut ledger);
    let texts = timeline.kernels().iter().flat_map(|k| k.buffers()).any(|b| b.text.is_some());
    if !texts && !printers.iter().any(Printer::shown) {
        ledger.tell(NoteKind::Nothing, nothing(args), None);
    }
    std::io::stderr().write_all(ledger.to_text("").as_bytes())?;
    Ok(end(&timeline, &stats, (&ledger, args.strict), "was printed"))
}

/// Flags that mean nothing for these recordings.
fn refuse(args: &Args, timeline: &Timeline) -> anyhow::Result<()> {
    let shows = args.show_task_events
        || args.show_mmap_events
        || args.show_lost_events
        || args.show_switch_events;
    let (kernel, programs) = (!timeline.kernels().is_empty(), timeline.programs().is_some());
    for (given, flag) in [
        (args.dump_raw_trace, "-D"),
        (shows, "--show-…-events"),
        (!args.symbols.is_empty(), "-S"),
        (args.finding.symfs.is_some(), "--symfs"),
        (args.finding.vmlinux.is_some(), "-k"),
        (args.finding.kallsyms.is_some(), "--kallsyms"),
        (args.finding.bundle.is_some(), "--bundle"),
        (kernel && !args.fields.is_empty(), "-F"),
        (kernel && args.reltime, "--reltime"),
        (kernel && args.deltatime, "--deltatime"),
    ] {
        if given && kernel {
            bail!("{flag} is for perf.data, not for a trace.dat");
        }
        if given {
            bail!("{flag} is not for a CTF trace");
        }
    }
    if args.latency && programs {
        bail!("-l is not for a CTF trace");
    }
    if args.real_time && timeline.is_mixed() {
        bail!(
            "--real-time is for traces of programs alone: the kernel's times are CLOCK_MONOTONIC"
        );
    }
    Ok(())
}

/// What rendering needs of a recording of the kernel.
struct Kernel<'t> {
    data: &'t TraceDat,
    formats: FormatTable<'t>,
    names: KernelNames,
}

impl<'t> Kernel<'t> {
    fn new(data: &'t TraceDat) -> Kernel<'t> {
        let machine = data.machine();
        let kallsyms = KallsymsSource::EmbeddedByKernel(Arc::clone(&machine.kallsyms));
        let names = KernelNames::new(kallsyms, &machine.printk_formats);
        Kernel { data, formats: FormatTable::new(data), names }
    }
}

/// Whose an event is: a recording of the kernel by number, or programs.
const PROGRAMS: u32 = u32::MAX;

/// Events that are rendered together.
#[derive(Default)]
struct Batch {
    /// In their order: so many of the next events of a recording.
    runs: Vec<(u32, u32)>,
    events: usize,
    kernels: Vec<tracedat::Batch>,
    programs: ctf::Batch,
}

impl Batch {
    fn new(kernels: usize) -> Batch {
        let kernels = std::iter::repeat_with(tracedat::Batch::default).take(kernels).collect();
        Batch { kernels, ..Batch::default() }
    }

    fn is_full(&self) -> bool {
        let bytes = || self.kernels.iter().map(|k| k.bytes()).sum::<usize>();
        self.events >= MANY || bytes() + self.programs.bytes() >= FULL
    }

    #[inline]
    fn count(&mut self, whose: u32, events: usize) {
        self.events += events;
        match self.runs.last_mut() {
            Some((of, n)) if *of == whose => *n += events as u32,
            _ => self.runs.push((whose, events as u32)),
        }
    }
}

/// What merges and gathers.
struct Feed<'a> {
    timeline: &'a Timeline,
    kernels: Vec<tracedat::Feed<'a>>,
}

impl<'a> Feed<'a> {
    fn new(args: &Args, timeline: &'a Timeline, kernels: &'a [Kernel<'_>]) -> Feed<'a> {
        let feed = |k: &'a Kernel<'_>| tracedat::Feed::new(k.data, &k.formats, !args.json);
        Feed { timeline, kernels: kernels.iter().map(feed).collect() }
    }

    fn run(
        mut self,
        filter: &Filter,
        give: &mut dyn FnMut(Job<Batch>) -> ControlFlow<()>,
    ) -> Result<Stats, TimelineError> {
        let count = self.kernels.len();
        let mut batch = Batch::new(count);
        let mut give = |batch: Batch| {
            let for_all = batch.kernels.iter().any(tracedat::Batch::teaches);
            give(Job { job: batch, for_all })
        };
        let until = filter.until();
        let select = Select { cpus: filter.cpus(), from: filter.from(), runs: !filter.any };
        let stats = self.timeline.for_each(&select, &mut |moment| {
            let late = match &moment {
                Moment::Kernel(_, e) => e.time > until,
                Moment::Program(e) => e.time > until,
                // There is no such condition.
                Moment::Run(_) => false,
            };
            if late {
                return ControlFlow::Break(());
            }
            self.add(moment, &mut batch);
            if !batch.is_full() {
                return ControlFlow::Continue(());
            }
            let within = self.kernels.iter().any(tracedat::Feed::is_within);
            if within && batch.events < 4 * MANY {
                return ControlFlow::Continue(());
            }
            self.kernels.iter_mut().for_each(tracedat::Feed::part);
            give(std::mem::replace(&mut batch, Batch::new(count)))
        });
        if batch.events > 0 {
            let _ = give(batch);
        }
        stats
    }

    #[inline]
    fn add(&mut self, moment: Moment<'_>, batch: &mut Batch) {
        match moment {
            Moment::Kernel(number, event) => {
                let (feed, place) = (self.kernels.get_mut(number), batch.kernels.get_mut(number));
                if let (Some(feed), Some(place)) = (feed, place)
                    && feed.add(event, place)
                {
                    batch.count(number as u32, 1);
                }
            }
            Moment::Program(event) => {
                self.kernels.iter_mut().for_each(tracedat::Feed::part);
                batch.programs.push(event);
                batch.count(PROGRAMS, 1);
            }
            Moment::Run(run) => {
                self.kernels.iter_mut().for_each(tracedat::Feed::part);
                batch.programs.push_run(run);
                batch.count(PROGRAMS, run.events.len());
            }
        }
    }
}

/// Renders events.
struct Printer<'t> {
    kernels: Vec<tracedat::Printer<'t>>,
    programs: Option<ctf::Printer<'t>>,
}

impl<'t> Printer<'t> {
    fn new(
        args: &Args,
        timeline: &'t Timeline,
        kernels: &'t [Kernel<'t>],
        filter: &Filter,
    ) -> anyhow::Result<Printer<'t>> {
        let kernel = |k: &'t Kernel<'t>| {
            tracedat::Printer::new(args, k.data, &k.formats, &k.names, filter.clone())
        };
        let beside = timeline.is_mixed();
        let programs = timeline.programs();
        let programs = programs.map(|p| ctf::Printer::new(args, p, filter.clone(), beside));
        let kernels = kernels.iter().map(kernel).collect();
        Ok(Printer { kernels, programs: programs.transpose()? })
    }

    /// One that begins with nothing seen.
    fn another(&self) -> Printer<'t> {
        Printer {
            kernels: self.kernels.iter().map(tracedat::Printer::another).collect(),
            programs: self.programs.as_ref().map(ctf::Printer::another),
        }
    }

    fn shown(&self) -> bool {
        self.kernels.iter().any(|k| k.shown) || self.programs.as_ref().is_some_and(|p| p.shown)
    }
}

impl Worker<Batch> for Printer<'_> {
    fn render(&mut self, batch: &Batch, out: &mut Vec<u8>) -> anyhow::Result<()> {
        // For each recording the next event and the next name.
        let mut places = vec![(0, 0); batch.kernels.len()];
        let mut program = 0;
        for (whose, count) in &batch.runs {
            if *whose == PROGRAMS {
                if let Some(printer) = &mut self.programs {
                    let next = program + *count as usize;
                    let comms = self.kernels.first().map(tracedat::Printer::comms);
                    printer.render(&batch.programs, program..next, comms, out);
                    program = next;
                }
                continue;
            }
            let number = *whose as usize;
            if let (Some(printer), Some(events), Some((event, name))) =
                (self.kernels.get_mut(number), batch.kernels.get(number), places.get_mut(number))
            {
                for _ in 0..*count {
                    printer.render(events, *event, name, out);
                    *event += 1;
                }
            }
        }
        Ok(())
    }

    fn pass(&mut self, batch: &Batch) {
        self.kernels.iter_mut().zip(&batch.kernels).for_each(|(printer, b)| printer.pass(b));
    }
}

/// What the printers met.
fn note(printers: &[Printer<'_>], ledger: &mut Ledger) {
    let kernels = printers.first().map_or(0, |p| p.kernels.len());
    for number in 0..kernels {
        tracedat::note(printers.iter().filter_map(|p| p.kernels.get(number)), ledger);
    }
    ctf::note(printers.iter().filter_map(|p| p.programs.as_ref()), ledger);
}
