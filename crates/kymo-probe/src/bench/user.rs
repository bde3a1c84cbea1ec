//! Rows of programs: uprobes on each kind of instruction, returns, USDT probes.

use kymo_kernel::ftrace::Selection;
use kymo_kernel::probe_events::ProbeFile;
use kymo_kernel::probe_guard::ProbeGuard;
use kymo_model::probe::{
    FetchArg, FetchBase, FetchExpr, FetchType, ProbeDefinition, ProbeKind, ProbeTarget,
};

use super::program::{BenchProgram, ProbedFunction, ProgramShape};
use super::rows::{EMPTY, FUNCTIONS, STEPPED, USDT};
use super::{Bench, BenchStop, ProbedInstruction};

/// A half of a round takes about so long.
const HALF_NS: f64 = 3e6;
const CALLS: std::ops::RangeInclusive<f64> = 100.0..=20_000.0;

/// Calls of a function that has nothing to wait for.
const MANY: u32 = 2_000_000;

/// Kind of the probe on the second function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProbeWay {
    is_return: bool,
    /// Its semaphore is counted up by the kernel.
    semaphore: bool,
    /// Registers that are recorded, as of a USDT probe with integers.
    registers: &'static [&'static str],
}

const PLAIN: ProbeWay = ProbeWay { is_return: false, semaphore: false, registers: &[] };
const TWO: ProbeWay = ProbeWay { registers: &["%di", "%si"], ..PLAIN };

pub(super) fn rows(bench: &mut Bench<'_>) -> Result<(), BenchStop> {
    if !bench.tracefs.takes(ProbeFile::User) {
        let why = "this kernel has no uprobe_events (CONFIG_UPROBE_EVENTS)";
        return bench.row("uprobes", |_| Err(BenchStop::Missing(why.into())));
    }
    for (name, function) in FUNCTIONS {
        let way = ProbeWay { is_return: name == "uretprobe", ..PLAIN };
        bench.row(name, |b| probed(b, function, way))?;
    }
    bench.row("USDT probe, 2 arguments", |b| probed(b, USDT, TWO))?;
    let guarded = ProbeWay { semaphore: true, ..TWO };
    bench.row("USDT with semaphore, 2 arguments", |b| {
        probed(b, ProbedFunction::guarded(), guarded)
    })?;
    bench.row("USDT probe that is off", |b| bare(b, USDT))?;
    bench.row("USDT with semaphore that is off", |b| bare(b, ProbedFunction::guarded()))
}

/// A probe on an instruction of one kind.
pub(super) fn one(
    bench: &Bench<'_>,
    instruction: ProbedInstruction,
) -> Result<Vec<f64>, BenchStop> {
    match instruction {
        ProbedInstruction::Emulated => probed(bench, USDT, PLAIN),
        ProbedInstruction::SingleStepped => probed(bench, STEPPED, PLAIN),
        ProbedInstruction::Return => probed(bench, USDT, ProbeWay { is_return: true, ..PLAIN }),
    }
}

/// Returns the added cost per call of the probe.
fn probed(
    bench: &Bench<'_>,
    function: ProbedFunction,
    way: ProbeWay,
) -> Result<Vec<f64>, BenchStop> {
    // First few calls, to know how many there can be.
    let few = once(
        bench,
        ProgramShape { functions: [function; 2], calls: *CALLS.start() as u32, rounds: 3 },
        way,
    )?;
    let about = few.into_iter().fold(f64::INFINITY, f64::min).max(1.0);
    let calls = (HALF_NS / about).clamp(*CALLS.start(), *CALLS.end()) as u32;
    once(bench, ProgramShape { functions: [function; 2], calls, rounds: bench.options.pairs }, way)
}

fn once(bench: &Bench<'_>, shape: ProgramShape, way: ProbeWay) -> Result<Vec<f64>, BenchStop> {
    bench.check()?;
    let program = BenchProgram::write(&shape, "probed")?;
    let group = bench.group();
    let arg = |(register, n): (&&str, u32)| FetchArg {
        name: Some(format!("arg{n}")),
        expr: FetchExpr::from_base(FetchBase::Register((*register).to_owned())),
        fetch_type: Some(FetchType::unsigned(64)),
    };
    let definition = ProbeDefinition {
        kind: ProbeKind::from_return(way.is_return),
        group: group.clone(),
        event: Some("hit".to_owned()),
        target: ProbeTarget::File {
            path: program.path.display().to_string(),
            offset: program.probed,
            ref_ctr_offset: way.semaphore.then_some(program.semaphore),
        },
        args: way.registers.iter().zip(1..).map(arg).collect(),
    };
    let guard = ProbeGuard::add(bench.tracefs, vec![definition])?;
    let selection = Selection::parse(&format!("{group}:hit"))?;
    bench.instance.enable(&selection)?;
    let rounds = program.run();
    bench.instance.disable(&selection)?;
    let expected = u64::from(shape.calls) * u64::from(shape.rounds);
    let hits = hits(bench, &group)?;
    guard.remove()?;
    bench.check()?;
    if hits != expected {
        return Err(BenchStop::Missing(format!(
            "the kernel accepted the probe, but it was hit {hits} times in {expected} calls"
        )));
    }
    let each = |(without, with): (f64, f64)| (with - without) / f64::from(shape.calls);
    Ok(rounds?.into_iter().map(each).collect())
}

/// Cost of a USDT probe that is off, beside an empty function.
fn bare(bench: &Bench<'_>, function: ProbedFunction) -> Result<Vec<f64>, BenchStop> {
    bench.check()?;
    let shape =
        ProgramShape { functions: [EMPTY, function], calls: MANY, rounds: bench.options.pairs };
    let rounds = BenchProgram::write(&shape, "bare")?.run()?;
    let each = |(without, with): (f64, f64)| (with - without) / f64::from(MANY);
    Ok(rounds.into_iter().map(each).collect())
}

/// Hits of the events of a group.
pub(super) fn hits(bench: &Bench<'_>, group: &str) -> Result<u64, BenchStop> {
    let all = bench.tracefs.probes()?.into_iter();
    Ok(all.filter(|p| p.definition.group == group).map(|p| p.hits.map_or(0, |h| h.hits)).sum())
}
