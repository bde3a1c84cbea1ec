//! `kymo inject`: a perf.data written again with what it lacks, for programs that need it.

mod aslr;
mod chains;
mod jit;

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use kymo_events::notes_on_perf_data;
use kymo_files::perfdata::rewrite::{RewriteTarget, Rewriting, append, append_build_id, rewrite};
use kymo_files::perfdata::write::features::BuildIdOf;
use kymo_files::perfdata::write::{EventMeta, FeatureSections};
use kymo_files::perfdata::{Entry, Features, PerfData};
use kymo_kernel::system::{KernelName, SystemRoot};
use kymo_model::{Attr, BuildId, Misc, NoteKind, RecordHeader, RecordKind, Sideband, counted};
use kymo_symbols::debug_files::BinaryFiles;
use kymo_table::units::visible;
use kymo_view::Ledger;

use self::aslr::AddressRemapping;
use self::chains::ChainConversion;
use self::jit::JitInjection;
use super::hit_binaries::hit_binaries;
use crate::exit;

/// Flags of `kymo inject`.
#[derive(clap::Args)]
#[command(after_long_help = "\
OUTPUT
kymo writes a copy of the recording, uncompressed and with the requested additions: a file with -o
FILE, otherwise a stream for a pipe. kymo's own commands do not need it: they read build-ids,
compressed recordings and maps of JIT compilers directly.

-b looks for binaries at their recorded paths. A binary whose inode has changed gets no build-id. In
a pipe, where the binaries with samples are not known in advance, all executable mappings get
build-ids.

--aslr is for recordings that are passed on: addresses of the kernel, of modules and of programs are
replaced, the same way each time, and reports stay as they were. Registers, copies of stacks and
samples of tracepoints are left out, since they may hold addresses. Names of files, tasks and the
machine stay.

EXAMPLES
  kymo record -o - -- ./prog | kymo inject -b | perf report -i -
  kymo inject -i perf.data -o plain.data        compressed to uncompressed
  kymo record -k mono -o perf.data -- node --perf-prof app.js
  kymo inject -j -i perf.data -o jit.data       for perf report
  kymo inject -b --aslr -i perf.data -o shared.data
  kymo inject -B -i perf.data -o with-ids.data  build-ids in the mappings, as record --buildid-mmap")]
pub(crate) struct Args {
    /// Write the build-ids of binaries with samples
    #[arg(short, long)]
    build_ids: bool,
    /// Write the build-ids of all binaries
    #[arg(long)]
    buildid_all: bool,
    /// Write build-ids into the mappings of binaries with samples
    #[arg(short = 'B', long)]
    mmap2_buildids: bool,
    /// Write build-ids into all mappings
    #[arg(long)]
    mmap2_buildid_all: bool,
    /// Use these build-ids: `ID PATH`, comma-separated
    #[arg(long, value_name = "ID PATH[,…]", value_delimiter = ',', value_parser = known_build_id)]
    known_build_ids: Vec<(BuildId, String)>,
    /// Write ELF files for the functions of jitdump files, and map them
    #[arg(short, long)]
    jit: bool,
    /// Replace stack copies (--call-graph dwarf) with unwound call chains
    #[arg(long, conflicts_with = "jit")]
    convert_callchain: bool,
    /// Replace addresses, so that the recording does not show the memory layout of the machine
    #[arg(long, conflicts_with_all = ["jit", "convert_callchain"])]
    aslr: bool,
    /// Recording (perf.data); `-`: standard input
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    input: PathBuf,
    /// File to write; `-`: standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Drop events that were not synthesized from trace data (accepted for compatibility; kymo
    /// synthesizes none)
    #[arg(long)]
    strip: bool,
    /// Overwrite a file that is not a recording
    #[arg(short, long)]
    force: bool,
    /// Print the build-ids that are added
    #[arg(short, long)]
    verbose: bool,
}

fn known_build_id(text: &str) -> Result<(BuildId, String), String> {
    let parts = text.trim().split_once(' ').ok_or("it is a build-id, a blank and a path")?;
    let id = BuildId::parse(parts.0).ok_or("it begins with no build-id")?;
    Ok((id, parts.1.trim().to_owned()))
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let to_stdout = args.output.as_os_str() == "-";
    if to_stdout && crate::streams::stdout().is_terminal() {
        bail!("a perf.data is not for a terminal: -o FILE, or into a pipe");
    }
    let mut input = PerfData::open(&args.input)?;
    let all = args.buildid_all || args.mmap2_buildid_all || input.is_pipe();
    let wanted = args.build_ids || args.buildid_all;
    let in_maps = args.mmap2_buildids || args.mmap2_buildid_all;
    let hit = if (wanted || in_maps) && !all {
        Some(hit_binaries(&mut input, &args.input)?)
    } else {
        None
    };
    let (target, to_pipe) = target(&args)?;
    let mut injection = Injection {
        told: wanted,
        in_maps,
        records: input.is_pipe() && to_pipe,
        verbose: args.verbose,
        hit,
        known: args.known_build_ids.iter().map(|(id, path)| (PathBuf::from(path), *id)).collect(),
        same_kernel: None,
        files: HashMap::new(),
        found: Vec::new(),
        changed: 0,
        jit: args.jit.then(|| JitInjection::beside(&args.output)),
        chains: args.convert_callchain.then(|| ChainConversion::new(&args.input)),
        addresses: args.aslr.then(AddressRemapping::new),
    };
    if !input.is_pipe() && wanted {
        injection.find_all(&mut input)?;
    }
    let (_, read) = rewrite(&mut input, target, &mut injection)?;
    // Losses and the like are in the new recording, too.
    let gone = [NoteKind::Damaged, NoteKind::Unfinished, NoteKind::Cut, NoteKind::Malformed];
    let notes = notes_on_perf_data(&input, &read).into_iter();
    let mut ledger = Ledger::from_notes(notes.filter(|note| gone.contains(&note.kind)));
    let damage = read.damaged.as_ref().map(|d| format!("{d}; everything before it is written"));
    if read.aux_bytes > 0 {
        let fact = format!("{} bytes of trace data (AUX area) were left out", read.aux_bytes);
        ledger.tell(NoteKind::Target, fact, None);
    }
    if injection.changed > 0 {
        let what = counted(injection.changed, "binary has", "binaries have");
        let fact = format!("{what} changed since the recording: they get no build-id");
        ledger.tell(NoteKind::Target, fact, None);
    }
    injection.jit.iter().for_each(|jit| jit.note(&mut ledger));
    injection.chains.iter().for_each(|chains| chains.note(&mut ledger));
    injection.addresses.iter().for_each(|addresses| addresses.note(&mut ledger));
    say!("{}", ledger.to_text(""));
    Ok(exit::status(input.name(), damage.as_deref(), &ledger, false))
}

/// Opens the output; true if it is a pipe.
fn target(args: &Args) -> anyhow::Result<(RewriteTarget, bool)> {
    if args.output.as_os_str() == "-" {
        return Ok((RewriteTarget::Pipe(Box::new(crate::streams::raw_stdout())), true));
    }
    let (file, stream) = kymo_record::create_recording(&args.output, args.force)?;
    Ok(if stream {
        (RewriteTarget::Pipe(Box::new(file)), true)
    } else {
        (RewriteTarget::File(file), false)
    })
}

/// A file as a mapping names it: with its inode, where the record states one.
type MappedFile = (PathBuf, Option<u64>);

/// Name of the kernel in mappings.
const KERNEL: &[u8] = b"[kernel.kallsyms]";

struct Injection {
    /// Build-ids are written as events of their own.
    told: bool,
    /// Mappings get them.
    in_maps: bool,
    /// They are written as records when files appear, before it is known which will be hit.
    records: bool,
    verbose: bool,
    /// The only binaries that are looked at.
    hit: Option<BTreeSet<PathBuf>>,
    known: HashMap<PathBuf, BuildId>,
    /// Whether the recorded kernel is the one that runs.
    same_kernel: Option<bool>,
    files: HashMap<MappedFile, Option<BuildId>>,
    found: Vec<BuildIdOf>,
    changed: u64,
    jit: Option<JitInjection>,
    chains: Option<ChainConversion>,
    addresses: Option<AddressRemapping>,
}

impl Injection {
    /// Looks at all mappings of a file before it is written.
    fn find_all(&mut self, input: &mut PerfData) -> anyhow::Result<()> {
        input.for_each(kymo_files::perfdata::RecordOrder::File, &mut |entry| {
            self.mapping(entry);
            std::ops::ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// The build-id of what a mapping record maps, and whether it is the first of that file.
    fn mapping(&mut self, entry: &Entry<'_>) -> Option<(BuildId, bool)> {
        if !matches!(entry.raw.kind, RecordKind::MMAP | RecordKind::MMAP2)
            || entry.raw.misc.0 & Misc::MMAP_DATA != 0
        {
            return None;
        }
        let Ok(Some(Sideband::Mmap(map))) = Sideband::parse(&entry.raw) else { return None };
        let name = PathBuf::from(OsStr::from_bytes(map.filename));
        if self.hit.as_ref().is_some_and(|hit| !hit.contains(&name)) {
            return None;
        }
        let inode = map.inode.map(|(_, _, inode, _)| inode).filter(|inode| *inode != 0);
        let key = (name, inode);
        let known = self.files.get(&key).copied();
        let id = match known {
            Some(id) => id,
            None => {
                let id = map.build_id.or_else(|| self.build_id(&key, entry.features));
                self.files.insert(key.clone(), id);
                id
            }
        }?;
        let first = known.is_none();
        if first {
            if self.verbose {
                let name = key.0.to_string_lossy();
                sayln!("build id event injected for {id} {}", visible(&name));
            }
            let kernel = entry.raw.misc.cpumode() == Misc::KERNEL;
            let name = key.0.into_os_string().into_vec();
            let name = if name.starts_with(KERNEL) { KERNEL.to_vec() } else { name };
            self.found.push(BuildIdOf { kernel, name, id });
        }
        Some((id, first))
    }

    fn build_id(&mut self, (path, inode): &MappedFile, features: &Features) -> Option<BuildId> {
        if let Some(id) = self.known.get(path) {
            return Some(*id);
        }
        let name = path.to_string_lossy();
        if name.starts_with('[') {
            let same = *self.same_kernel.get_or_insert_with(|| {
                let running = KernelName::running();
                features.osrelease.as_ref() == Some(&running.release)
                    && features.hostname.as_ref() == Some(&running.node)
            });
            let system = SystemRoot::machine();
            return match same {
                false => None,
                true if name.starts_with("[kernel.kallsyms]") => system.kernel_build_id(),
                true => system.module_build_id(name.trim_matches(['[', ']'])),
            };
        }
        if !name.starts_with('/') || name.starts_with("//") {
            return None;
        }
        if let Some(inode) = inode
            && fs::metadata(path).is_ok_and(|there| there.ino() != *inode)
        {
            self.changed += 1;
            return None;
        }
        BinaryFiles::user(path).ok()?.build_id
    }
}

impl Rewriting for Injection {
    fn breaks_rounds(&self) -> bool {
        // Functions are reported where their file was mapped, with the times when they were made.
        self.jit.is_some()
    }

    fn is_in_order_of_time(&self) -> bool {
        // A stack is unwound, and an address replaced, by the mappings of its time, and memory that
        // is mapped after a jitdump file must not come before it.
        self.chains.is_some() || self.jit.is_some() || self.addresses.is_some()
    }

    fn change_event(&self, attr: &mut Attr, features: &Features) {
        if self.chains.is_some() {
            ChainConversion::change_event(attr);
        }
        if self.addresses.is_some() {
            AddressRemapping::change_event(attr, features);
        }
    }

    fn change_sections(&self, sections: &mut FeatureSections, events: &[EventMeta]) {
        if self.addresses.is_some() {
            AddressRemapping::change_sections(sections, events);
        }
    }

    fn record(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        if self.jit.as_mut().is_some_and(|jit| jit.replace(entry, out))
            || self.chains.as_mut().is_some_and(|chains| chains.replace(entry, out))
        {
            return;
        }
        let told = if self.told || self.in_maps { self.mapping(entry) } else { None };
        if self.records && self.told && told.is_some_and(|(_, first)| first) {
            self.found.last().into_iter().for_each(|binary| append_build_id(binary, out));
        }
        let start = out.len();
        match &mut self.addresses {
            Some(addresses) => addresses.append(entry, out),
            None => append(entry, out),
        }
        if let Some((id, _)) = told
            && self.in_maps
            && entry.raw.kind == RecordKind::MMAP2
        {
            set_build_id(&mut out[start..], entry.raw.misc, id);
        }
    }

    fn build_ids(&mut self) -> Vec<BuildIdOf> {
        if self.told { self.found.clone() } else { Vec::new() }
    }
}

/// Puts the build-id in the place of device and inode of a mapping.
fn set_build_id(record: &mut [u8], misc: Misc, id: BuildId) {
    /// Behind the header: process, thread, address, length and offset stand before it.
    const PLACE: std::ops::Range<usize> = 32..56;
    let Some(place) =
        record.get_mut(RecordHeader::SIZE + PLACE.start..RecordHeader::SIZE + PLACE.end)
    else {
        return;
    };
    place.fill(0);
    let bytes = id.as_bytes();
    place[0] = bytes.len() as u8;
    place[4..4 + bytes.len()].copy_from_slice(bytes);
    record[4..6].copy_from_slice(&(misc.0 | Misc::MMAP_BUILD_ID).to_ne_bytes());
}
