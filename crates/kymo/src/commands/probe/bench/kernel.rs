//! Rows of the kernel: a probe at the entry of a function, inside of it with a
//! breakpoint and with a jump, and of its return, in a system call that does next to
//! nothing.

use std::time::{Duration, Instant};

use kymo_kernel::ftrace::Selection;
use kymo_kernel::kprobes::{JumpOptimization, Kprobe, Means, jump_optimization};
use kymo_kernel::probe_events::{ProbeError, ProbeFile, ProbeLine};
use kymo_kernel::probe_guard::{GuardError, ProbeGuard};

use super::program::{Program, Shape, Site};
use super::user::hits;
use super::{Bench, Stop};

/// What the system call getppid is called in the kernel; the wrapper may be the
/// function itself.
const FUNCTIONS: [&str; 3] = ["__do_sys_getppid", "__x64_sys_getppid", "sys_getppid"];

/// System calls in each half of a pair.
const CALLS: u32 = 2_000;

/// How far behind the entry a place for a jump is looked for.
const DEEPEST: u32 = 48;

/// The kernel changes breakpoints into jumps a moment after it is asked to.
const PATIENCE: Duration = Duration::from_millis(3000);
const PAUSE: Duration = Duration::from_millis(10);

const ENTRY: &str = "kprobe at a function's entry";
const BREAKPOINT: &str = "kprobe inside, breakpoint";
const JUMP: &str = "kprobe inside, optimized to a jump";
const RETURN: &str = "kretprobe";
const RETURN_JUMP: &str = "kretprobe, optimized to a jump";

pub(super) fn rows(bench: &mut Bench<'_>) -> Result<(), Stop> {
    let missing = |why: &str| Err(Stop::Missing(why.to_owned()));
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
    let place = |ret: bool, offset: u32| Place { function, ret, offset };
    bench.row(ENTRY, |b| jumps(b, false, |b| measure(b, place(false, 0), None)))?;
    if bench.wants(BREAKPOINT) || bench.wants(JUMP) {
        let inside = inside(bench, function)?;
        let at = |offset: &Result<u32, String>| match offset {
            Ok(offset) => Ok(place(false, *offset)),
            Err(why) => Err(Stop::Missing(why.clone())),
        };
        bench.row(BREAKPOINT, |b| {
            jumps(b, false, |b| measure(b, at(&inside)?, Some(Means::Breakpoint)))
        })?;
        bench.row(JUMP, |b| match jump_optimization() {
            None => missing("the kernel was built without jumps (CONFIG_OPTPROBES)"),
            Some(_) => jumps(b, true, |b| measure(b, at(&inside)?, Some(Means::Jump))),
        })?;
    }
    bench.row(RETURN, |b| jumps(b, false, |b| measure(b, place(true, 0), None)))?;
    bench.row(RETURN_JUMP, |b| jumps(b, true, |b| measure(b, place(true, 0), Some(Means::Jump))))
}

/// A probe at an entry or of a return.
pub(super) fn entry(bench: &Bench<'_>, ret: bool) -> Result<Vec<f64>, Stop> {
    let function = function().ok_or_else(|| Stop::Missing("no getppid here".into()))?;
    measure(bench, Place { function, ret, offset: 0 }, None)
}

/// A place of the kernel.
#[derive(Clone, Copy, Debug)]
struct Place {
    function: (&'static str, u64),
    ret: bool,
    offset: u32,
}

/// The function's name and address.
fn function() -> Option<(&'static str, u64)> {
    let text = std::fs::read_to_string("/proc/kallsyms").ok()?;
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
    measure: impl FnOnce(&Bench<'_>) -> Result<Vec<f64>, Stop>,
) -> Result<Vec<f64>, Stop> {
    let _before = match jump_optimization() {
        Some(now) if now != allowed => Some(JumpOptimization::set(bench.tracefs, allowed)?),
        _ => None,
    };
    measure(bench)
}

fn add(bench: &Bench<'_>, place: Place) -> Result<ProbeGuard, GuardError> {
    let kind = if place.ret { 'r' } else { 'p' };
    let (group, (function, _)) = (bench.group(), place.function);
    let text = format!("{kind}:{group}/hit {function}+{}", place.offset);
    let line = ProbeLine { file: ProbeFile::Kernel, text, group, event: "hit".into() };
    ProbeGuard::add(bench.tracefs, vec![line])
}

fn means(place: Place) -> Option<Means> {
    let addr = place.function.1 + u64::from(place.offset);
    // At the entry it is put behind the mark for indirect jumps.
    let at = |k: &Kprobe| k.addr == addr || (place.offset == 0 && k.addr == addr + 4);
    Kprobe::all().into_iter().find(|k| k.ret == place.ret && !k.disabled && at(k)).map(|k| k.means)
}

/// Waits until the probe that is switched on works as it shall.
fn settled(place: Place, wanted: Means) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        if means(place) == Some(wanted) {
            return true;
        }
        std::thread::sleep(PAUSE);
    }
    false
}

/// The first instruction behind the entry that the kernel can replace by a jump, or
/// where it has no jumps, the first.
fn inside(bench: &Bench<'_>, function: (&'static str, u64)) -> Result<Result<u32, String>, Stop> {
    let selection = Selection::parse(&format!("{}:hit", bench.group()))?;
    let mut first = None;
    for offset in 1..DEEPEST {
        bench.check()?;
        let place = Place { function, ret: false, offset };
        let guard = match add(bench, place) {
            Ok(guard) => guard,
            // In the middle of an instruction, or at the call of the function tracer.
            Err(GuardError::Probe(ProbeError::Refused { .. })) => continue,
            Err(e) => return Err(e.into()),
        };
        bench.instance.enable(&selection)?;
        let (is, jump) = match jump_optimization() {
            None => (means(place), false),
            Some(_) => {
                let _switch = JumpOptimization::set(bench.tracefs, true)?;
                let jump = settled(place, Means::Jump);
                (means(place), jump)
            }
        };
        bench.instance.disable(&selection)?;
        guard.remove()?;
        // At the entry's call it would not be a probe of its own.
        if is != Some(Means::Ftrace) {
            first = first.or(Some(offset));
        }
        if jump {
            return Ok(Ok(offset));
        }
    }
    Ok(first.ok_or_else(|| {
        format!("the kernel takes no probe in the first {DEEPEST} bytes of {}", function.0)
    }))
}

fn measure(bench: &Bench<'_>, place: Place, wanted: Option<Means>) -> Result<Vec<f64>, Stop> {
    let shape = Shape { sites: [Site::system_call(); 2], calls: CALLS, rounds: 1 };
    let program = Program::write(&shape, "calls")?;
    let guard = add(bench, place)?;
    let selection = Selection::parse(&format!("{}:hit", bench.group()))?;
    let took = || -> Result<f64, Stop> {
        bench.check()?;
        Ok(program.run()?.iter().map(|(a, b)| a + b).sum())
    };
    let mut each = Vec::new();
    for _ in 0..bench.pairs {
        let without = took()?;
        bench.instance.enable(&selection)?;
        if let Some(wanted) = wanted.filter(|w| !settled(place, *w)) {
            let _ = bench.instance.disable(&selection);
            return Err(Stop::Missing(match (wanted, means(place)) {
                (Means::Jump, _) if place.ret => {
                    "at an entry this kernel uses the function tracer's call: no jump is needed"
                        .into()
                }
                (wanted, is) => format!("the kernel made it {is:?} and not {wanted:?}"),
            }));
        }
        let before = hits(bench, &bench.group())?;
        let with = took();
        let hits = hits(bench, &bench.group())?.saturating_sub(before);
        bench.instance.disable(&selection)?;
        // Others may call it, too, but nobody calls it less.
        if hits < 2 * u64::from(CALLS) {
            return Err(Stop::Missing(format!("{hits} hits in {} calls", 2 * CALLS)));
        }
        each.push((with? - without) / f64::from(2 * CALLS));
    }
    guard.remove()?;
    Ok(each)
}
