//! Estimated cost of probes, before programs are attached: the current rate of each, counted by an
//! empty program, and the expected share of a CPU.

use std::time::Duration;

use kymo_bpf::{AttachTarget, BpfInstruction, BpfProgramType, CompiledProbe, CompiledProgram};
use kymo_kernel::bpf::enable_run_time;

use crate::error::ProgramError;
use crate::facts::MachineFacts;
use crate::running::{ProgramOptions, RunningProgram};

/// Cost of a probe.
#[derive(Clone, Debug, PartialEq)]
pub struct ProbeCost {
    /// Its first attach point.
    pub point: String,
    /// Its attach points.
    pub points: usize,
    /// Hits per second.
    pub hits: f64,
    /// Nanoseconds of a hit: an estimate.
    pub hit_ns: u64,
}

impl ProbeCost {
    /// Share of one CPU in percent.
    pub fn percent(&self) -> f64 {
        self.hits * self.hit_ns as f64 / 1e7
    }
}

/// Counts for `period` how often each probe fires, and estimates what it costs.
///
/// # Errors
/// If a probe cannot be attached.
pub fn measure_costs(
    program: &CompiledProgram,
    options: &ProgramOptions,
    facts: &MachineFacts,
    period: Duration,
) -> Result<Vec<ProbeCost>, ProgramError> {
    let _measured = enable_run_time()?;
    let mut counted = Vec::new();
    for probe in program.probes.iter().filter(|probe| fires(probe)) {
        let empty =
            CompiledProgram { probes: vec![without_body(probe)], ..CompiledProgram::default() };
        counted.push((probe, RunningProgram::start(empty, options, facts)?));
    }
    let before: Vec<u64> = counted.iter().map(|(_, running)| running.run_count()).collect();
    std::thread::sleep(period);
    let cost = |((probe, running), before): (&(&CompiledProbe, RunningProgram), u64)| ProbeCost {
        point: probe.points.first().map_or(String::new(), |point| point.name.clone()),
        points: probe.points.len(),
        hits: running.run_count().saturating_sub(before) as f64 / period.as_secs_f64(),
        hit_ns: attach_ns(probe) + probe.instructions.len() as u64,
    };
    Ok(counted.iter().zip(before).map(cost).collect())
}

/// Whether it fires by events, and not once.
fn fires(probe: &CompiledProbe) -> bool {
    use AttachTarget as T;
    probe.points.iter().any(|point| {
        !matches!(point.target, T::Begin | T::End | T::SelfSignal(_) | T::Test(_) | T::Iter { .. })
    })
}

/// Returns the probe with the body `return 0`.
fn without_body(probe: &CompiledProbe) -> CompiledProbe {
    let instruction = |code| BpfInstruction { code, ..BpfInstruction::default() };
    CompiledProbe {
        instructions: vec![instruction(0xb7), instruction(0x95)],
        relocations: Vec::new(),
        functions: Vec::new(),
        lines: Vec::new(),
        line_texts: Vec::new(),
        ..probe.clone()
    }
}

/// Nanoseconds from the event to the program and back, as measured on a machine of 2024: to
/// them comes about one for each instruction.
fn attach_ns(probe: &CompiledProbe) -> u64 {
    let at_return = |point: &kymo_bpf::AttachPoint| {
        matches!(point.target, AttachTarget::Uprobe { at_return: true, .. })
    };
    match probe.program_type {
        BpfProgramType::RawTracepoint => 80,
        BpfProgramType::Tracing => 60,
        BpfProgramType::Tracepoint => 250,
        BpfProgramType::PerfEvent => 1500,
        _ if probe.points.iter().any(at_return) => 2600,
        _ if probe.points.iter().any(|p| !matches!(p.target, AttachTarget::Kprobe { .. })) => 1300,
        _ => 300,
    }
}
