//! Functions by their addresses in traced programs, for fields that hold such: from what each
//! trace says that its program had mapped.

use std::path::PathBuf;
use std::sync::Arc;

use kymo_files::ctf::CodeMapping;
use kymo_files::ctf::read::Ctf;
use kymo_files::ctf::types::EnvValue;
use kymo_symbols::{Resolver, ResolverOptions};

/// The mappings of one program, by address.
#[derive(Clone, Debug, Default)]
struct ProgramCode {
    pid: u32,
    mappings: Vec<CodeMapping>,
}

impl ProgramCode {
    fn new(pid: u32, mut mappings: Vec<CodeMapping>) -> ProgramCode {
        mappings.sort_by_key(|m| m.start);
        ProgramCode { pid, mappings }
    }

    fn find(&self, address: u64) -> Option<&CodeMapping> {
        let behind = self.mappings.partition_point(|m| m.start <= address);
        self.mappings.get(..behind)?.last().filter(|m| address < m.end)
    }
}

/// Names of addresses in programs.
pub struct CodeNames {
    /// Program of each trace.
    programs: Arc<[ProgramCode]>,
    /// None where no program has its mappings.
    resolver: Option<Resolver>,
    text: String,
}

impl CodeNames {
    /// Names in the programs of recorded traces.
    pub fn recorded(ctf: &Ctf) -> CodeNames {
        let program = |trace: &kymo_files::ctf::read::Trace| {
            let metadata = trace.metadata();
            let pid = match metadata.env("vpid") {
                Some(EnvValue::Int(pid)) => u32::try_from(*pid).unwrap_or(0),
                _ => 0,
            };
            ProgramCode::new(pid, metadata.mappings.clone())
        };
        let programs: Arc<[ProgramCode]> = ctf.traces().iter().map(program).collect();
        let any = programs.iter().any(|p| !p.mappings.is_empty());
        let mut resolver = any.then(|| Resolver::new(ResolverOptions::default()));
        // Resolvers of other threads number no binaries.
        if let Some(resolver) = &mut resolver {
            let mappings = programs.iter().flat_map(|p| p.mappings.iter().map(|m| (p.pid, m)));
            for (pid, m) in mappings.filter(|(_, m)| m.path.starts_with('/')) {
                resolver.dso(&m.path, m.build_id, pid);
            }
        }
        CodeNames { programs, resolver, text: String::new() }
    }

    /// Names in one program that runs. `root`: where its root is, if it is another than here.
    pub fn running(pid: u32, root: Option<PathBuf>) -> CodeNames {
        let resolver = Resolver::new(ResolverOptions { symfs: root, ..ResolverOptions::default() });
        let programs = Arc::new([ProgramCode::new(pid, Vec::new())]);
        CodeNames { programs, resolver: Some(resolver), text: String::new() }
    }

    /// The program that runs has these mappings now.
    pub fn set_mappings(&mut self, mappings: Vec<CodeMapping>) {
        let pid = self.programs.first().map_or(0, |p| p.pid);
        self.programs = Arc::new([ProgramCode::new(pid, mappings)]);
    }

    /// Names for another thread.
    pub fn fork_for_thread(&self) -> CodeNames {
        CodeNames {
            programs: Arc::clone(&self.programs),
            resolver: self.resolver.as_ref().map(Resolver::fork_for_thread),
            text: String::new(),
        }
    }

    /// The function that an address of a trace's program is in, and how far: `main+0x10`.
    pub fn find(&mut self, trace: usize, address: u64) -> Option<&str> {
        let resolver = self.resolver.as_mut()?;
        let program = self.programs.get(trace)?;
        let mapping = program.find(address)?;
        let offset = mapping.offset.checked_add(address - mapping.start)?;
        if !mapping.path.starts_with('/') {
            return None;
        }
        let dso = resolver.dso(&mapping.path, mapping.build_id, program.pid);
        let (symbol, within) = resolver.symbol(dso, offset)?;
        super::print_format::write_function(&mut self.text, (resolver.name(symbol), within));
        Some(&self.text)
    }
}
