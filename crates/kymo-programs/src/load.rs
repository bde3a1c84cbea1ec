//! Maps and programs into the kernel: maps first, whose descriptors the instructions name.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use kymo_bpf::{
    AttachPoint, AttachTarget, BpfProgramType, CompiledProbe, CompiledProgram, MapPurpose,
    ProgramPosition,
};
use kymo_kernel::bpf::{
    BpfError, BpfMap, BpfProgram, BpfRing, MapSpec, ProgramSpec, load_btf, open_kernel_btf,
};
use kymo_kernel::system::KernelName;

use crate::error::ProgramError;
use crate::facts::MachineFacts;

/// Attach types that programs are loaded for.
const TRACE_RAW_TRACEPOINT: u32 = 23;
const TRACE_FENTRY: u32 = 24;
const TRACE_FEXIT: u32 = 25;
const TRACE_ITERATOR: u32 = 28;

/// The maps of a program, and its ring.
pub(crate) struct LoadedMaps {
    pub maps: Vec<BpfMap>,
    pub ring: Option<BpfRing>,
    /// Number of the map of perf events, and pages of each one's ring.
    pub packets: Option<(usize, usize)>,
}

/// Creates the maps.
pub(crate) fn create_maps(program: &CompiledProgram, cpus: u32) -> Result<LoadedMaps, BpfError> {
    let maps = Vec::with_capacity(program.maps.len());
    let mut loaded = LoadedMaps { maps, ring: None, packets: None };
    for definition in &program.maps {
        let is_ring = definition.purpose == MapPurpose::Ring;
        let held = match definition.purpose {
            MapPurpose::Holder { map } => loaded.maps.get(map),
            _ => None,
        };
        let map = BpfMap::create(&MapSpec {
            name: &definition.name,
            map_type: definition.map_type as u32,
            key_size: definition.key_size,
            value_size: definition.value_size,
            max_entries: definition.max_entries,
            flags: definition.flags,
            values: if definition.is_per_cpu() { cpus } else { 1 },
            inner: held,
        })?;
        if let Some(held) = held {
            map.hold(held)?;
        }
        if is_ring {
            loaded.ring = Some(BpfRing::map(&map, definition.max_entries as usize)?);
        }
        if let MapPurpose::PacketRings { pages } = definition.purpose {
            loaded.packets = Some((loaded.maps.len(), pages as usize));
        }
        loaded.maps.push(map);
    }
    Ok(loaded)
}

/// Attach type, id of the function or tracepoint, BTF that the id is of if not the kernel's.
type TracedType = (u32, u32, Option<OwnedFd>);

/// Loads programs.
pub(crate) struct ProgramLoader<'p> {
    maps: &'p [BpfMap],
    pub facts: &'p MachineFacts,
    btf: Option<OwnedFd>,
    /// Whether the verifier's log is wanted.
    pub wants_log: bool,
    /// Handling of probes that cannot be attached.
    pub missing: MissingProbes,
}

/// `missing_probes` of a program's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingProbes {
    Error,
    Warn,
    Ignore,
}

impl MissingProbes {
    fn of(program: &CompiledProgram) -> MissingProbes {
        let set = program.config.iter().find(|(key, _)| key == "missing_probes");
        match set.map(|(_, value)| value.as_str()) {
            Some("warn") => MissingProbes::Warn,
            Some("ignore") => MissingProbes::Ignore,
            _ => MissingProbes::Error,
        }
    }
}

impl<'p> ProgramLoader<'p> {
    /// Loads the program's BTF; kernels that do not take it load the rest without.
    pub(crate) fn new(
        program: &'p CompiledProgram,
        maps: &'p [BpfMap],
        facts: &'p MachineFacts,
        wants_log: bool,
    ) -> ProgramLoader<'p> {
        let btf = if program.btf.is_empty() { None } else { load_btf(&program.btf).ok() };
        ProgramLoader { maps, facts, btf, wants_log, missing: MissingProbes::of(program) }
    }

    /// Loads the instructions of a probe for one of its points. `attach_type` is of links to
    /// many places; 0 for others.
    pub(crate) fn load(
        &self,
        probe: &CompiledProbe,
        point: &AttachPoint,
        attach_type: u32,
    ) -> Result<BpfProgram, ProgramError> {
        let (own_type, btf_id, own_btf) = self.attach_type(probe, point)?;
        let instructions = self.relocate(probe);
        let lines = line_info(probe);
        let spec = ProgramSpec {
            name: function_name(&point.name),
            program_type: probe.program_type as u32,
            attach_type: if attach_type == 0 { own_type } else { attach_type },
            attach_btf_id: btf_id,
            attach_btf: own_btf.as_ref().map(AsFd::as_fd),
            instructions: &instructions,
            btf: self.btf.as_ref().map(AsFd::as_fd),
            functions: &probe.functions,
            lines: &lines,
            wants_log: self.wants_log,
            kernel_version: kernel_version(),
        };
        BpfProgram::load(&spec).map_err(|error| refused(probe, point, error))
    }

    /// Attach type, BTF id, and BTF if it is a module's, of tracing programs.
    fn attach_type(
        &self,
        probe: &CompiledProbe,
        point: &AttachPoint,
    ) -> Result<TracedType, ProgramError> {
        if probe.program_type != BpfProgramType::Tracing {
            return Ok((0, 0, None));
        }
        let types = self.facts.types();
        let space = |module: &str| types.and_then(|types| types.space(module));
        let (attach_type, space, id, what) = match &point.target {
            AttachTarget::RawTracepoint { event, .. } | AttachTarget::Tracepoint { event, .. } => {
                let module = match &point.target {
                    AttachTarget::RawTracepoint { module, .. } => module.as_str(),
                    _ => "",
                };
                let space = space(module);
                let id = space.as_ref().and_then(|space| space.tracepoint_id(event));
                (TRACE_RAW_TRACEPOINT, space, id, event.clone())
            }
            AttachTarget::Fentry { module, function, at_exit } => {
                let attach_type = if *at_exit { TRACE_FEXIT } else { TRACE_FENTRY };
                let space = self.facts.types_of_function(module, function);
                let id = space.as_ref().and_then(|space| space.function_id(function));
                (attach_type, space, id, function.clone())
            }
            AttachTarget::Iter { object, .. } => {
                let function = format!("bpf_iter_{object}");
                let space = space("");
                let id = space.as_ref().and_then(|space| space.function_id(&function));
                (TRACE_ITERATOR, space, id, function)
            }
            _ => (0, None, Some(0), String::new()),
        };
        let refused = |reason: String| ProgramError::Attach {
            point: point.name.clone(),
            position: probe.position,
            reason,
        };
        let id = id.ok_or_else(|| refused(format!("the kernel's BTF has no {what}")))?;
        let btf = match space.as_ref().map_or("", |space| space.module.as_str()) {
            "" => None,
            module => {
                let btf = open_kernel_btf(module);
                Some(btf.map_err(|e| refused(format!("BTF of {module}: {e}")))?)
            }
        };
        Ok((attach_type, id, btf))
    }

    fn relocate(&self, probe: &CompiledProbe) -> Vec<u8> {
        let mut instructions = probe.instructions.clone();
        for relocation in &probe.relocations {
            let map = self.maps.get(relocation.map as usize);
            let place = instructions.get_mut(relocation.instruction as usize);
            if let (Some(map), Some(instruction)) = (map, place) {
                instruction.imm = map.as_fd().as_raw_fd();
            }
        }
        instructions.into_iter().flat_map(|i| i.to_bytes()).collect()
    }
}

/// `struct bpf_line_info`: instruction, file name, text, and line << 10 | column. Each
/// function has one at its first instruction, without which the kernel takes none.
fn line_info(probe: &CompiledProbe) -> Vec<[u32; 4]> {
    let texts = probe.line_texts.iter();
    let lines = probe.lines.iter().zip(texts).map(|((at, position), (file, text))| {
        [*at, *file, *text, position.line << 10 | position.column.min(1023)]
    });
    let mut lines: Vec<[u32; 4]> = lines.collect();
    for (begin, _) in &probe.functions {
        let place = lines.partition_point(|line| line[0] < *begin);
        let next = lines.get(place).copied();
        if let Some(line) = next.or(lines.last().copied()).filter(|line| line[0] != *begin) {
            lines.insert(place, [*begin, line[1], line[2], line[3]]);
        }
    }
    lines
}

/// The last part of a point's name.
fn function_name(point: &str) -> &str {
    point.rsplit([':', '/']).next().unwrap_or(point)
}

/// `KERNEL_VERSION` of the running kernel.
fn kernel_version() -> u32 {
    let (major, minor, patch) = KernelName::running().numbers();
    major << 16 | minor << 8 | patch.min(255)
}

fn refused(probe: &CompiledProbe, point: &AttachPoint, error: BpfError) -> ProgramError {
    if error.log.is_empty() {
        return ProgramError::Kernel(error);
    }
    let (position, text) = explain_log(probe, &error.log);
    ProgramError::Refused { point: point.name.clone(), position, text, log: error.log }
}

/// Position at which the verifier stopped, and its last message: it prints each instruction as
/// `NUMBER: (CODE) …` before it checks it.
fn explain_log(probe: &CompiledProbe, log: &str) -> (ProgramPosition, String) {
    let number = |line: &str| {
        let (number, rest) = line.split_once(": (")?;
        rest.get(2..3).filter(|end| *end == ")")?;
        number.trim().parse::<u32>().ok()
    };
    let at = log.lines().rev().find_map(number);
    let is_judgment = |line: &&str| {
        let line = line.trim();
        !line.is_empty()
            && !line.starts_with("processed ")
            && !line.starts_with(';')
            && !line.starts_with("verification time")
            && !line.starts_with("stack depth")
            && number(line).is_none()
    };
    let text = log.lines().rev().find(is_judgment).unwrap_or("refused by the verifier").trim();
    let lines = probe.lines.iter().take_while(|(first, _)| at.is_some_and(|at| *first <= at));
    let position = lines.last().map_or(probe.position, |(_, position)| *position);
    (position, text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifiers_words_are_put_to_their_line() {
        let at = |line| ProgramPosition { line, column: 3 };
        let probe = CompiledProbe {
            points: Vec::new(),
            program_type: BpfProgramType::RawTracepoint,
            instructions: Vec::new(),
            relocations: Vec::new(),
            functions: Vec::new(),
            lines: vec![(0, at(1)), (2, at(4)), (9, at(7))],
            line_texts: Vec::new(),
            condition: None,
            position: at(1),
            stack: 0,
        };
        let log = "0: R1=ctx() R10=fp0\n; @a = 1\n1: (b7) r2 = 1\n3: (79) r1 = *(u64 *)(r2 +0)\n\
                   R2 invalid mem access 'scalar'\nprocessed 4 insns (limit 1000000)\n";
        let (position, text) = explain_log(&probe, log);
        assert_eq!((position.line, text.as_str()), (4, "R2 invalid mem access 'scalar'"));
        let (position, text) = explain_log(&probe, "");
        assert_eq!((position.line, text.as_str()), (1, "refused by the verifier"));
    }
}
