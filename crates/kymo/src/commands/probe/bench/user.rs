//! Rows of programs: uprobes on each kind of instruction, returns, markers.

use kymo_kernel::ftrace::Selection;
use kymo_kernel::probe_events::{ProbeFile, ProbeLine};
use kymo_kernel::probe_guard::ProbeGuard;

use super::program::{Program, Shape, Site};
use super::rows::{EMPTY, MARKER, SITES, STEPPED};
use super::{Bench, Stop};

/// A half of a round takes about so long.
const HALF_NS: f64 = 3e6;
const CALLS: std::ops::RangeInclusive<f64> = 100.0..=20_000.0;

/// Calls of a function that has nothing to wait for.
const MANY: u32 = 2_000_000;

/// How the second function is probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    ret: bool,
    /// Its semaphore is counted up by the kernel.
    semaphore: bool,
    /// What is recorded.
    fetched: &'static str,
}

const PLAIN: Way = Way { ret: false, semaphore: false, fetched: "" };
/// As markers of two integers are recorded.
const TWO: &str = " arg1=%di:u64 arg2=%si:u64";

pub(super) fn rows(bench: &mut Bench<'_>) -> Result<(), Stop> {
    if !bench.tracefs.takes(ProbeFile::User) {
        let why = "this kernel has no uprobe_events (CONFIG_UPROBE_EVENTS)";
        return bench.row("uprobes", |_| Err(Stop::Missing(why.into())));
    }
    for (name, site) in SITES {
        let way = Way { ret: name == "uretprobe", ..PLAIN };
        bench.row(name, |b| probed(b, site, way))?;
    }
    let two = Way { fetched: TWO, ..PLAIN };
    bench.row("SDT marker, 2 arguments", |b| probed(b, MARKER, two))?;
    let guarded = Way { semaphore: true, ..two };
    bench.row("SDT with semaphore, 2 arguments", |b| probed(b, Site::guarded(), guarded))?;
    bench.row("SDT marker that is off", |b| bare(b, MARKER))?;
    bench.row("SDT with semaphore that is off", |b| bare(b, Site::guarded()))
}

/// A probe on an instruction that is emulated, or single-stepped.
pub(super) fn one(bench: &Bench<'_>, ret: bool, dear: bool) -> Result<Vec<f64>, Stop> {
    let site = if dear { STEPPED } else { MARKER };
    probed(bench, site, Way { ret, ..PLAIN })
}

/// What the probe adds to a call.
fn probed(bench: &Bench<'_>, site: Site, way: Way) -> Result<Vec<f64>, Stop> {
    // First few calls, to know how many there can be.
    let few =
        once(bench, Shape { sites: [site; 2], calls: *CALLS.start() as u32, rounds: 3 }, way)?;
    let about = few.into_iter().fold(f64::INFINITY, f64::min).max(1.0);
    let calls = (HALF_NS / about).clamp(*CALLS.start(), *CALLS.end()) as u32;
    once(bench, Shape { sites: [site; 2], calls, rounds: bench.pairs }, way)
}

fn once(bench: &Bench<'_>, shape: Shape, way: Way) -> Result<Vec<f64>, Stop> {
    bench.check()?;
    let program = Program::write(&shape, "probed")?;
    let (group, event) = (bench.group(), "hit".to_owned());
    let path = program.path.display();
    let kind = if way.ret { 'r' } else { 'p' };
    let semaphore =
        if way.semaphore { format!("({:#x})", program.semaphore) } else { String::new() };
    let text =
        format!("{kind}:{group}/{event} {path}:{:#x}{semaphore}{}", program.probed, way.fetched);
    let line = ProbeLine { file: ProbeFile::User, text, group: group.clone(), event };
    let guard = ProbeGuard::add(bench.tracefs, vec![line])?;
    let selection = Selection::parse(&format!("{group}:hit"))?;
    bench.instance.enable(&selection)?;
    let rounds = program.run();
    bench.instance.disable(&selection)?;
    let expected = u64::from(shape.calls) * u64::from(shape.rounds);
    let hits = hits(bench, &group)?;
    guard.remove()?;
    bench.check()?;
    if hits != expected {
        return Err(Stop::Missing(format!(
            "the kernel took the probe, which was hit {hits} times in {expected} calls"
        )));
    }
    let each = |(without, with): (f64, f64)| (with - without) / f64::from(shape.calls);
    Ok(rounds?.into_iter().map(each).collect())
}

/// What a site costs that nobody looks at, beside an empty function.
fn bare(bench: &Bench<'_>, site: Site) -> Result<Vec<f64>, Stop> {
    bench.check()?;
    let shape = Shape { sites: [EMPTY, site], calls: MANY, rounds: bench.pairs };
    let rounds = Program::write(&shape, "bare")?.run()?;
    let each = |(without, with): (f64, f64)| (with - without) / f64::from(MANY);
    Ok(rounds.into_iter().map(each).collect())
}

/// Hits of the events of a group.
pub(super) fn hits(bench: &Bench<'_>, group: &str) -> Result<u64, Stop> {
    let all = bench.tracefs.probes()?.into_iter();
    Ok(all.filter(|p| p.event.system == group).map(|p| p.hits.map_or(0, |h| h.hits)).sum())
}
