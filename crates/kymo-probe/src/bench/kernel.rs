//! Rows of the kernel: a probe at the entry of a function, inside of it with a
//! breakpoint and with a jump, and of its return, in a system call that does next to
//! nothing.

use std::time::{Duration, Instant};

use kymo_kernel::ftrace::Selection;
use kymo_kernel::kprobes::{JumpOptimization, Kprobe, ProbeMechanism, jump_optimization};
use kymo_kernel::probe_events::{ProbeError, ProbeFile};
use kymo_kernel::probe_guard::{GuardError, ProbeGuard};

use kymo_kernel::system::SystemRoot;
use kymo_model::probe::{ProbeDefinition, ProbeKind, ProbeTarget};

use super::program::{BenchProgram, ProbedFunction, ProgramShape};
use super::user::hits;
use super::{Bench, BenchStop};

/// Names of the system call getppid in the kernel; the wrapper may be the function itself.
const FUNCTIONS: [&str; 3] = ["__do_sys_getppid", "__x64_sys_getppid", "sys_getppid"];

/// System calls in each half of a pair.
const CALLS: u32 = 2_000;

/// Bytes from the entry within which a point for a jump is searched.
const DEEPEST: u32 = 48;

/// The kernel changes breakpoints into jumps a moment after it is asked to.
const PATIENCE: Duration = Duration::from_millis(3000);
const PAUSE: Duration = Duration::from_millis(10);

const ENTRY: &str = "kprobe at a function's entry";
const BREAKPOINT: &str = "kprobe inside, breakpoint";
const JUMP: &str = "kprobe inside, optimized to a jump";
const RETURN: &str = "kretprobe";
const RETURN_JUMP: &str = "kretprobe, optimized to a jump";

pub(super) fn rows(bench: &mut Bench<'_>) -> Result<(), BenchStop> {
    let missing = |why: &str| Err(BenchStop::Missing(why.to_owned()));
    if !bench.tracefs.takes(ProbeFile::Kernel) {
        let why = "this kernel has no kprobe_events (CONFIG_KPROBE_EVENTS)";
        for name in [ENTRY, BREAKPOINT, JUMP, RETURN] {
            bench.row(name, |_| missing(why))?;
        }
        return Ok(());
    }
    let Some(function) = function() else {
        return bench.row(ENTRY, |_| missing("the system call getppid is not in /proc/kallsyms"));
    };
    let point = |is_return: bool, offset: u32| KernelPoint { function, is_return, offset };
    bench.row(ENTRY, |b| jumps(b, false, |b| measure(b, point(false, 0), None)))?;
    if bench.wants(BREAKPOINT) || bench.wants(JUMP) {
        let inside = inside(bench, function)?;
        let at = |offset: &Result<u32, String>| match offset {
            Ok(offset) => Ok(point(false, *offset)),
            Err(why) => Err(BenchStop::Missing(why.clone())),
        };
        bench.row(BREAKPOINT, |b| {
            jumps(b, false, |b| measure(b, at(&inside)?, Some(ProbeMechanism::Breakpoint)))
        })?;
        bench.row(JUMP, |b| match jump_optimization() {
            None => missing("the kernel was built without jumps (CONFIG_OPTPROBES)"),
            Some(_) => jumps(b, true, |b| measure(b, at(&inside)?, Some(ProbeMechanism::Jump))),
        })?;
    }
    bench.row(RETURN, |b| jumps(b, false, |b| measure(b, point(true, 0), None)))?;
    bench.row(RETURN_JUMP, |b| {
        jumps(b, true, |b| measure(b, point(true, 0), Some(ProbeMechanism::Jump)))
    })
}

/// A probe at an entry or of a return.
pub(super) fn entry(bench: &Bench<'_>, is_return: bool) -> Result<Vec<f64>, BenchStop> {
    let function = function().ok_or_else(|| BenchStop::Missing("no getppid here".into()))?;
    measure(bench, KernelPoint { function, is_return, offset: 0 }, None)
}

/// A probe point of the kernel.
#[derive(Clone, Copy, Debug)]
struct KernelPoint {
    function: (&'static str, u64),
    is_return: bool,
    offset: u32,
}

/// The function's name and address.
fn function() -> Option<(&'static str, u64)> {
    let text = SystemRoot::machine().kallsyms_text().ok()?;
    FUNCTIONS.into_iter().find_map(|wanted| {
        text.lines().find_map(|line| {
            let mut words = line.split_ascii_whitespace();
            let addr = u64::from_str_radix(words.next()?, 16).ok()?;
            (words.nth(1)? == wanted).then_some((wanted, addr))
        })
    })
}

/// Measures with jumps allowed or not, where the kernel knows them.
fn jumps(
    bench: &Bench<'_>,
    allowed: bool,
    measure: impl FnOnce(&Bench<'_>) -> Result<Vec<f64>, BenchStop>,
) -> Result<Vec<f64>, BenchStop> {
    let _before = match jump_optimization() {
        Some(now) if now != allowed => Some(JumpOptimization::set(bench.tracefs, allowed)?),
        _ => None,
    };
    measure(bench)
}

fn add(bench: &Bench<'_>, point: KernelPoint) -> Result<ProbeGuard, GuardError> {
    let definition = ProbeDefinition {
        kind: ProbeKind::from_return(point.is_return),
        group: bench.group(),
        event: Some("hit".to_owned()),
        target: ProbeTarget::Symbol {
            module: None,
            symbol: point.function.0.to_owned(),
            offset: Some(point.offset.into()),
        },
        args: Vec::new(),
    };
    ProbeGuard::add(bench.tracefs, vec![definition])
}

fn mechanism(point: KernelPoint) -> Option<ProbeMechanism> {
    let addr = point.function.1 + u64::from(point.offset);
    // At the entry it is put behind the mark for indirect jumps.
    let at = |k: &Kprobe| k.addr == addr || (point.offset == 0 && k.addr == addr + 4);
    Kprobe::all()
        .into_iter()
        .find(|k| k.is_return == point.is_return && !k.disabled && at(k))
        .map(|k| k.mechanism)
}

/// Waits until the probe that is switched on works as it shall.
fn settled(point: KernelPoint, wanted: ProbeMechanism) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if mechanism(point) == Some(wanted) {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

/// The first instruction behind the entry that the kernel can replace by a jump, or
/// where it has no jumps, the first.
fn inside(
    bench: &Bench<'_>,
    function: (&'static str, u64),
) -> Result<Result<u32, String>, BenchStop> {
    let selection = Selection::parse(&format!("{}:hit", bench.group()))?;
    let mut first = None;
    for offset in 1..DEEPEST {
        bench.check()?;
        let point = KernelPoint { function, is_return: false, offset };
        let guard = match add(bench, point) {
            Ok(guard) => guard,
            // In the middle of an instruction, or at the call of the function tracer.
            Err(GuardError::Probe(ProbeError::Refused { .. })) => continue,
            Err(e) => return Err(e.into()),
        };
        bench.instance.enable(&selection)?;
        let (is, jump) = match jump_optimization() {
            None => (mechanism(point), false),
            Some(_) => {
                let _switch = JumpOptimization::set(bench.tracefs, true)?;
                let jump = settled(point, ProbeMechanism::Jump);
                (mechanism(point), jump)
            }
        };
        bench.instance.disable(&selection)?;
        guard.remove()?;
        // At the entry's call it would not be a probe of its own.
        if is != Some(ProbeMechanism::Ftrace) {
            first = first.or(Some(offset));
        }
        if jump {
            return Ok(Ok(offset));
        }
    }
    Ok(first.ok_or_else(|| {
        format!("the kernel accepts no probe in the first {DEEPEST} bytes of {}", function.0)
    }))
}

fn measure(
    bench: &Bench<'_>,
    point: KernelPoint,
    wanted: Option<ProbeMechanism>,
) -> Result<Vec<f64>, BenchStop> {
    let shape =
        ProgramShape { functions: [ProbedFunction::system_call(); 2], calls: CALLS, rounds: 1 };
    let program = BenchProgram::write(&shape, "calls")?;
    let guard = add(bench, point)?;
    let selection = Selection::parse(&format!("{}:hit", bench.group()))?;
    let took = || -> Result<f64, BenchStop> {
        bench.check()?;
        Ok(program.run()?.iter().map(|(a, b)| a + b).sum())
    };
    let mut each = Vec::new();
    for _ in 0..bench.options.pairs {
        let without = took()?;
        bench.instance.enable(&selection)?;
        if let Some(wanted) = wanted.filter(|w| !settled(point, *w)) {
            let _ = bench.instance.disable(&selection);
            return Err(BenchStop::Missing(match (wanted, mechanism(point)) {
                (ProbeMechanism::Jump, _) if point.is_return => {
                    "at a function entry this kernel uses the function tracer's call instead of a \
                     jump"
                        .into()
                }
                (wanted, is) => format!("the kernel created {is:?} instead of {wanted:?}"),
            }));
        }
        let before = hits(bench, &bench.group())?;
        let with = took();
        let hits = hits(bench, &bench.group())?.saturating_sub(before);
        bench.instance.disable(&selection)?;
        // Others may call it, too, but not less often.
        if hits < 2 * u64::from(CALLS) {
            return Err(BenchStop::Missing(format!("{hits} hits in {} calls", 2 * CALLS)));
        }
        each.push((with? - without) / f64::from(2 * CALLS));
    }
    guard.remove()?;
    Ok(each)
}
