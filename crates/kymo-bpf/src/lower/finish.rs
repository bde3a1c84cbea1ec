//! Output of the last pass: map definitions, programs with BTF.

use super::types::Type;
use super::{Lowered, LoweredProgram, Lowering, MapSlot, ServiceMap, UserMap};
use crate::code::BtfWriter;
use crate::object::{
    BpfMapType, CompiledProbe, CompiledProgram, MapDefinition, MapPurpose, ValueType,
};

/// Entries of a map with keys, if the program does not say otherwise.
const MAX_KEYS: u64 = 4096;
/// Buckets of stack maps. Preallocated: 127 frames make some 17 MiB.
const STACK_BUCKETS: u32 = 16384;
/// Bytes of the ring, if the program does not say otherwise: some 50 ms of a million short
/// records a second.
const RING_BYTES: u64 = 4 << 20;
/// Size of the ring where records only end the program, or print or clear maps.
const SMALL_RING_BYTES: u64 = 256 << 10;
/// Pages of a CPU's ring of packets, if the program does not say otherwise, and the most.
const PACKET_RING_PAGES: u64 = 64;
const MOST_PACKET_PAGES: u64 = 4096;
const PAGE: u64 = 4096;

/// Release of bpftrace that `release` may name.
pub(crate) const OLD_RELEASE: &str = "0.17";

/// Whether a setting of the `config` block is known.
pub(crate) fn is_setting(key: &str) -> bool {
    const KEYS: [&str; 25] = [
        "cache_user_symbols",
        "cpp_demangle",
        "lazy_symbolication",
        "license",
        "log_size",
        "max_bpf_progs",
        "max_cat_bytes",
        "max_map_keys",
        "max_probes",
        "max_strlen",
        "missing_probes",
        "on_stack_limit",
        "perf_rb_pages",
        "show_debug_info",
        "stack_mode",
        "str_trunc_trailer",
        "print_maps_on_exit",
        "release",
        "unstable_map_decl",
        "unstable_tseries",
        "unstable_dw_ustack",
        "unstable_addr",
        "unstable_import",
        "unstable_macro",
        "unstable_typeinfo",
    ];
    KEYS.contains(&key)
}

pub(super) fn unknown_setting(key: &str) -> String {
    format!("{key}: not a known configuration option")
}

/// Default value of a setting.
pub(super) fn usual_setting(key: &str) -> &'static str {
    match key {
        "max_strlen" => "1024",
        "max_map_keys" => "4096",
        "max_probes" | "max_bpf_progs" => "1024",
        "max_cat_bytes" => "10240",
        "str_trunc_trailer" => "..",
        "missing_probes" => "error",
        "license" => "GPL",
        "stack_mode" => "bpftrace",
        "print_maps_on_exit" | "cpp_demangle" | "lazy_symbolication" => "1",
        "log_size" => "1000000",
        "on_stack_limit" => "32",
        "show_debug_info" => "0",
        _ => "",
    }
}

/// Pointers as numbers, as they were printed before.
fn plain_pointers(of: &mut ValueType) {
    match of {
        ValueType::Pointer => *of = ValueType::Integer { size: 8, signed: false },
        ValueType::Tuple(fields) | ValueType::Structure { fields, .. } => {
            fields.iter_mut().for_each(|field| plain_pointers(&mut field.value_type));
        }
        ValueType::Array { element, .. } => plain_pointers(element),
        _ => {}
    }
}

/// Licenses by which the kernel knows a program to be free.
const LICENSES: [&str; 6] =
    ["Dual MIT/GPL", "Dual BSD/GPL", "Dual MPL/GPL", "GPL and additional rights", "GPL v2", "GPL"];

/// Error in the value of a setting, if any.
pub(super) fn setting_problem(key: &str, value: &str) -> Option<String> {
    let choices: &[&str] = match key {
        "license" => &LICENSES,
        "release" => &[OLD_RELEASE],
        "missing_probes" => &["error", "warn", "ignore"],
        "stack_mode" => &["bpftrace", "perf", "raw", "build_id"],
        "print_maps_on_exit" | "cpp_demangle" | "lazy_symbolication" | "show_debug_info" => {
            &["0", "1", "false", "true"]
        }
        "max_strlen" | "max_map_keys" | "max_probes" | "max_bpf_progs" | "max_cat_bytes" => {
            let is_number = value.parse::<u64>().is_ok_and(|number| number > 0);
            return (!is_number).then(|| format!("{key} is a number above 0, not {value:?}"));
        }
        _ if key.starts_with("unstable_") => &["error", "warn", "enable"],
        _ => return None,
    };
    let is_known = choices.contains(&value);
    if key == "license" && !is_known {
        let choices = choices.join(", ");
        return Some(format!("Invalid value for license. Found: {value}. Valid values: {choices}"));
    }
    (!is_known).then(|| format!("{key} is {}, not {value:?}", choices.join(", ")))
}

impl Lowering<'_> {
    fn ring_bytes(&self) -> u64 {
        use crate::object::ActionKind as A;
        let is_rare = |kind: &A| {
            matches!(
                kind,
                A::Exit
                    | A::PrintMap { .. }
                    | A::ClearMap { .. }
                    | A::ZeroMap { .. }
                    | A::WritePacket { .. }
            )
        };
        if self.actions.iter().all(|action| is_rare(&action.kind)) {
            SMALL_RING_BYTES
        } else {
            RING_BYTES
        }
    }

    /// The pages that the program sets are those of all CPUs.
    fn packet_ring_pages(&self) -> u32 {
        let cpus = u64::from(self.options.cpus.max(1));
        let pages = match self.setting("perf_rb_pages", 0) {
            0 => PACKET_RING_PAGES,
            all => all.div_ceil(cpus),
        };
        pages.clamp(1, MOST_PACKET_PAGES).next_power_of_two() as u32
    }

    /// Whether it is to be as in release 0.17, where releases differ.
    pub(super) fn is_old(&self) -> bool {
        self.config.get("release").is_some_and(|release| release == OLD_RELEASE)
    }

    pub(super) fn finish(mut self, programs: Vec<LoweredProgram>) -> Lowered<CompiledProgram> {
        self.warnings.append(&mut self.scope_warnings);
        for declared in &self.tree.map_declarations {
            let slot = self.map_index.get(&declared.name).map(|at| &self.maps[*at as usize]);
            if let Some(MapSlot::User(map)) = slot
                && (&map.value, &map.key) == (&Type::Unknown, &Type::Unknown)
            {
                let what = format!("Unused map: {}", declared.name);
                self.warnings.push(crate::lexer::error_at(declared.position, what));
            }
        }
        let used: Vec<bool> = (0..self.maps.len() as u32)
            .map(|n| {
                let mut programs = programs.iter();
                let referred = programs.any(|p| p.encoded.relocations.iter().any(|r| r.map == n));
                referred || matches!(self.maps[n as usize], MapSlot::User(_))
            })
            .collect();
        // Unused maps of ours leave; numbers of the others move down.
        let mut moved = Vec::new();
        let mut next = 0u32;
        for used in &used {
            moved.push(next);
            next += u32::from(*used);
        }
        let mut maps = Vec::new();
        for (slot, _) in self.maps.iter().zip(&used).filter(|(_, used)| **used) {
            maps.push(match slot {
                MapSlot::Service(ServiceMap::Holder(map)) => self.holder(moved[*map as usize]),
                MapSlot::User(map) => self.user_definition(map),
                MapSlot::Service(service) => self.service_definition(*service),
            });
        }
        self.move_actions(&moved);
        if self.is_old() {
            maps.iter_mut().for_each(|map| plain_pointers(&mut map.value_type));
            let fields = self.actions.iter_mut().flat_map(|action| &mut action.fields);
            fields.for_each(|field| plain_pointers(&mut field.value_type));
        }
        let mut btf = BtfWriter::new();
        let source: Vec<&str> = self.text.lines().collect();
        let file = btf.text("program.bt");
        let mut probes = Vec::new();
        for program in programs {
            let names = program.encoded.functions.iter().enumerate();
            let functions: Vec<(u32, u32)> = names
                .map(|(n, first)| {
                    let (name, parameters) =
                        if n == 0 { ("main".into(), 1) } else { (format!("callback_{n}"), 4) };
                    (*first, btf.function(&name, parameters))
                })
                .collect();
            let mut relocations = program.encoded.relocations;
            for relocation in &mut relocations {
                relocation.map = moved[relocation.map as usize];
            }
            let line_texts = program
                .encoded
                .lines
                .iter()
                .map(|(_, position)| {
                    let line = source.get(position.line.wrapping_sub(1) as usize);
                    (file, btf.text(line.map_or("", |l| l.trim())))
                })
                .collect();
            probes.push(CompiledProbe {
                points: program.points,
                program_type: program.program_type,
                instructions: program.encoded.instructions,
                relocations,
                functions,
                lines: program.encoded.lines,
                line_texts,
                condition: program.condition,
                position: program.position,
                stack: program.encoded.stack,
            });
        }
        let mut config: Vec<(String, String)> = self.config.into_iter().collect();
        config.sort();
        Ok(CompiledProgram {
            maps,
            probes,
            actions: self.actions,
            error_sites: self.error_sites,
            probe_names: self.probe_names,
            config,
            options: self.program_options,
            missing_probes: self.missing_probes,
            warnings: self.warnings,
            btf: btf.finish(),
            unsafe_call: self.unsafe_call,
        })
    }

    fn move_actions(&mut self, moved: &[u32]) {
        use crate::object::{ActionKind as A, ErrorKind as E};
        for action in &mut self.actions {
            match &mut action.kind {
                A::PrintMap { map, .. }
                | A::PrintMapEntry { map, .. }
                | A::ClearMap { map }
                | A::ZeroMap { map } => {
                    *map = moved[*map] as usize;
                }
                _ => {}
            }
        }
        for site in &mut self.error_sites {
            if let E::MapFull { map } | E::NoSuchKey { map } = &mut site.kind {
                *map = moved[*map] as usize;
            }
        }
    }

    fn user_definition(&self, map: &UserMap) -> MapDefinition {
        let keyed = map.has_key == Some(true);
        let value = self.types.storage(&map.value);
        let aggregate = matches!(map.value, Type::Aggregate(_));
        let declared = map.declared.as_ref();
        // Counters are per CPU: no CPU waits for another's cache line, and no update is lost. What
        // is assigned is shared: it may be written on one CPU and read on another.
        let map_type = match (keyed, aggregate, declared.map(|(kind, _)| kind.as_str())) {
            (false, true, _) => BpfMapType::PerCpuArray,
            (false, false, _) => BpfMapType::Array,
            (true, true, Some("lruhash" | "percpulruhash")) => BpfMapType::LruPerCpuHash,
            (true, true, _) => BpfMapType::PerCpuHash,
            (true, false, Some("lruhash" | "percpulruhash")) => BpfMapType::LruHash,
            (true, false, _) => BpfMapType::Hash,
        };
        let entries = declared.map_or(self.setting("max_map_keys", MAX_KEYS), |(_, n)| *n);
        let mark = if keyed { 0 } else { self.mark_bytes(&map.value) };
        MapDefinition {
            name: map.name.clone(),
            purpose: MapPurpose::User,
            map_type,
            key_size: if keyed { self.types.storage(&map.key) } else { 4 },
            value_size: value + mark,
            max_entries: if keyed { entries.clamp(1, 1 << 26) as u32 } else { 1 },
            flags: 0,
            key_type: keyed.then(|| self.types.value_type(&map.key)),
            value_type: self.types.value_type(&map.value),
            has_written_mark: mark > 0,
        }
    }

    fn holder(&self, map: u32) -> MapDefinition {
        MapDefinition {
            name: "holder".into(),
            purpose: MapPurpose::Holder { map: map as usize },
            map_type: BpfMapType::ArrayOfMaps,
            key_size: 4,
            value_size: 4,
            max_entries: 1,
            flags: 0,
            key_type: None,
            value_type: ValueType::None,
            has_written_mark: false,
        }
    }

    fn service_definition(&self, service: ServiceMap) -> MapDefinition {
        let definition = |name: &str, purpose, map_type, value_size, max_entries| MapDefinition {
            name: name.into(),
            purpose,
            map_type,
            key_size: 4,
            value_size,
            max_entries,
            flags: 0,
            key_type: None,
            value_type: ValueType::None,
            has_written_mark: false,
        };
        match service {
            ServiceMap::Scratch => {
                let entries = self.slots.max(1) as u32;
                let size = self.scratch_bytes.max(8);
                definition("scratch", MapPurpose::Scratch, BpfMapType::PerCpuArray, size, entries)
            }
            ServiceMap::Zeros => {
                let size = self.zero_bytes.max(8).next_multiple_of(8);
                definition("zeros", MapPurpose::Scratch, BpfMapType::Array, size, 1)
            }
            ServiceMap::Errors => {
                let sites = self.error_sites.len().max(1) as u32;
                definition("errors", MapPurpose::ErrorCounters, BpfMapType::PerCpuArray, 8, sites)
            }
            ServiceMap::Ring => {
                let pages = self.setting("perf_rb_pages", self.ring_bytes() / PAGE);
                let pages = pages.clamp(1, 1 << 16);
                let bytes = (pages * PAGE).next_power_of_two() as u32;
                let mut ring =
                    definition("ring", MapPurpose::Ring, BpfMapType::RingBuffer, 0, bytes);
                ring.key_size = 0;
                ring
            }
            ServiceMap::PacketRings => {
                let pages = self.packet_ring_pages();
                let purpose = MapPurpose::PacketRings { pages };
                let cpus = self.options.cpus.max(1);
                definition("packets", purpose, BpfMapType::PerfEventArray, 4, cpus)
            }
            ServiceMap::Holder(map) => self.holder(map),
            ServiceMap::Exit => definition("exit", MapPurpose::ExitFlag, BpfMapType::Array, 8, 1),
            ServiceMap::Stacks(depth) => {
                let (kind, size) = (BpfMapType::StackTrace, depth * 8);
                definition("stacks", MapPurpose::StackTraces, kind, size, STACK_BUCKETS)
            }
        }
    }
}
