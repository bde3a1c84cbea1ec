//! `kymo inject`: a perf.data written again with what it lacks, for programs that need it.

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
use kymo_files::perfdata::{Entry, Features, PerfData};
use kymo_kernel::system::{KernelName, SystemRoot};
use kymo_model::{Attr, BuildId, Misc, NoteKind, RecordHeader, RecordKind, Sideband, counted};
use kymo_symbols::debug_files::BinaryFiles;
use kymo_view::Ledger;

use self::chains::ChainConversion;
use self::jit::JitInjection;
use super::hit_binaries::hit_binaries;
use crate::exit;

/// Flags of `kymo inject`.
#[derive(clap::Args)]
#[command(after_long_help = "\
WHAT IT WRITES
The recording again, with its events, tasks and sections, uncompressed: a file with -o FILE, else a
stream for a pipe. What is asked for is added on the way. kymo's own commands need none of it: they
read build-ids, compressed recordings and the maps of just-in-time compilers as they are.

-b looks for binaries where they were when they were recorded. One that has changed since, which
its inode tells, gets no build-id. In a pipe, where it is not known yet what samples will hit, all
that is mapped to be executed is told.

EXAMPLES
  kymo record -o - -- ./prog | kymo inject -b | perf report -i -
  kymo inject -i perf.data -o plain.data        compressed to uncompressed
  kymo record -k mono -o perf.data -- node --perf-prof app.js
  kymo inject -j -i perf.data -o jit.data       for perf report
  kymo inject -B -i perf.data -o with-ids.data  build-ids in the mappings, as record --buildid-mmap")]
pub(crate) struct Args {
    /// Tell the build-ids of binaries in which samples were taken
    #[arg(short, long)]
    build_ids: bool,
    /// Tell the build-ids of all binaries
    #[arg(long)]
    buildid_all: bool,
    /// State build-ids in the mappings of binaries in which samples were taken
    #[arg(short = 'B', long)]
    mmap2_buildids: bool,
    /// State build-ids in all mappings
    #[arg(long)]
    mmap2_buildid_all: bool,
    /// Build-ids of these files: `ID PATH`, several with commas between
    #[arg(long, value_name = "ID PATH[,…]", value_delimiter = ',', value_parser = known_build_id)]
    known_build_ids: Vec<(BuildId, String)>,
    /// Make ELF files of functions that just-in-time compilers wrote into jitdump files, and map them
    #[arg(short, long)]
    jit: bool,
    /// Unwind copies of stacks (--call-graph dwarf) into call chains, and leave the copies out
    #[arg(long, conflicts_with = "jit")]
    convert_callchain: bool,
    /// The perf.data; `-` is the standard input
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    input: PathBuf,
    /// The perf.data to write; `-` is the standard output
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    output: PathBuf,
    /// Leave out events that were not made from trace data (kymo makes none, and leaves out the
    /// trace data itself in any case; accepted for compatibility)
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
    };
    if !input.is_pipe() && wanted {
        injection.find_all(&mut input)?;
    }
    let (_, read) = rewrite(&mut input, target, &mut injection)?;
    // Losses and the like are in the new recording, too.
    let gone = [NoteKind::Damaged, NoteKind::Unfinished, NoteKind::Cut, NoteKind::Malformed];
    let notes = notes_on_perf_data(&input, &read).into_iter();
    let mut ledger = Ledger::from_notes(notes.filter(|note| gone.contains(&note.kind)));
    let damage = read.damaged.as_ref().map(|d| format!("{d}; what came before is written"));
    if read.aux_bytes > 0 {
        let fact = format!("{} bytes of trace data (AUX area) were left out", read.aux_bytes);
        ledger.tell(NoteKind::Target, fact, None);
    }
    if injection.changed > 0 {
        let what = counted(injection.changed, "binary has", "binaries have");
        let fact = format!("{what} changed since the recording: no build-id is told of them");
        ledger.tell(NoteKind::Target, fact, None);
    }
    injection.jit.iter().for_each(|jit| jit.note(&mut ledger));
    injection.chains.iter().for_each(|chains| chains.note(&mut ledger));
    say!("{}", ledger.to_text(""));
    Ok(exit::status(input.name(), damage.as_deref(), &ledger, false))
}

/// Where it goes, and whether that is a pipe.
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
    /// Build-ids are told by themselves.
    told: bool,
    /// Mappings get them.
    in_maps: bool,
    /// They are told by records as files appear, before it is known which will.
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
                sayln!("build id event injected for {id} {}", key.0.display());
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
        // Functions are told where their file was mapped, with the times when they were made.
        self.jit.is_some()
    }

    fn is_in_order_of_time(&self) -> bool {
        // A stack is unwound by the mappings of its time, and memory that is mapped after a jitdump
        // file must not come before it.
        self.chains.is_some() || self.jit.is_some()
    }

    fn change_event(&self, attr: &mut Attr) {
        if self.chains.is_some() {
            ChainConversion::change_event(attr);
        }
    }

    fn record(&mut self, entry: &Entry<'_>, out: &mut Vec<u8>) {
        if self.jit.as_mut().is_some_and(|jit| jit.replace(entry, out))
            || self.chains.as_mut().is_some_and(|chains| chains.replace(entry, out))
        {
            return;
        }
        let told = if self.told || self.in_maps { self.mapping(entry) } else { None };
        let Some((id, first)) = told else { return append(entry, out) };
        if self.records && self.told && first {
            self.found.last().into_iter().for_each(|binary| append_build_id(binary, out));
        }
        if self.in_maps && entry.raw.kind == RecordKind::MMAP2 {
            append_with_build_id(entry, id, out)
        } else {
            append(entry, out)
        }
    }

    fn build_ids(&mut self) -> Vec<BuildIdOf> {
        if self.told { self.found.clone() } else { Vec::new() }
    }
}

/// Appends a mapping with the build-id in place of device and inode.
fn append_with_build_id(entry: &Entry<'_>, id: BuildId, out: &mut Vec<u8>) {
    /// Behind the header: process, thread, address, length and offset stand before it.
    const PLACE: std::ops::Range<usize> = 32..56;
    let at = out.len();
    append(entry, out);
    let Some(place) =
        out[at..].get_mut(RecordHeader::SIZE + PLACE.start..RecordHeader::SIZE + PLACE.end)
    else {
        return;
    };
    place.fill(0);
    let bytes = id.as_bytes();
    place[0] = bytes.len() as u8;
    place[4..4 + bytes.len()].copy_from_slice(bytes);
    let misc = entry.raw.misc.0 | Misc::MMAP_BUILD_ID;
    out[at + 4..at + 6].copy_from_slice(&misc.to_ne_bytes());
}
