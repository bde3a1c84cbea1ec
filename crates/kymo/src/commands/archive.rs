//! `kymo archive`: the binaries of a recording by build-id in a tar, for the build-id cache of
//! another machine.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use kymo_files::perfdata::PerfData;
use kymo_kernel::calendar::format_local_time;
use kymo_kernel::output_file::{self, Existing, PRIVATE};
use kymo_kernel::system::SystemRoot;
use kymo_model::counted;
use kymo_symbols::build_id_archive::{ArchiveWriter, INNER, unpack};
use kymo_symbols::build_id_cache::BuildIdCache;
use kymo_symbols::{BuildIdDirectory, Finder, ResolverOptions};
use kymo_table::units::visible;

use super::hit_binaries::{hit_binaries, stated_build_ids};
use crate::args::symbols::DebuginfodArgs;
use crate::exit;

/// Flags of `kymo archive`.
#[derive(clap::Args)]
#[command(after_long_help = "\
CONTENTS
An archive contains the binaries with samples, from perf's build-id cache (`kymo buildid-cache`) or,
if they have not changed since the recording, from their original paths. It is compatible with `perf
archive` (`tar xf FILE -C ~/.debug`). `kymo bundle` writes a smaller file that resolves the same
addresses, including lines and inlined functions.

EXAMPLES
  kymo archive                         perf.data.tar.bz2 from perf.data
  kymo archive --all                   recording and binaries: perf.all-HOST-TIME.tar.bz2
  kymo archive --unpack FILE           unpack into the build-id cache and this directory")]
pub(crate) struct Args {
    /// Recording [default: perf.data]; with --unpack, archive [default: the only perf*.tar.bz2
    /// here]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Same as FILE, for consistency with other commands
    #[arg(short, long, value_name = "FILE", conflicts_with = "file")]
    input: Option<PathBuf>,
    /// Pack the recording with its binaries, into perf.all-HOST-TIME.tar.bz2
    #[arg(long)]
    all: bool,
    /// Unpack an archive
    #[arg(long, conflicts_with_all = ["all", "exclude_buildids"])]
    unpack: bool,
    /// Exclude build-ids listed in this file, one per line
    #[arg(long, value_name = "FILE")]
    exclude_buildids: Option<PathBuf>,
    /// Overwrite a recording when unpacking
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    servers: DebuginfodArgs,
}

pub(crate) fn run(mut args: Args) -> anyhow::Result<ExitCode> {
    args.file = args.file.or(args.input.take());
    let directory = BuildIdDirectory::of_user()
        .context("there is no build-id cache: HOME is not set, or buildid.dir is /dev/null")?;
    let cache = BuildIdCache::new(directory);
    if args.unpack {
        unpack_archive(&args, &cache).map(|()| ExitCode::SUCCESS)
    } else {
        pack(&args, &cache)
    }
}

fn pack(args: &Args, cache: &BuildIdCache) -> anyhow::Result<ExitCode> {
    let recording = args.file.clone().unwrap_or_else(PerfData::default_path);
    let excluded = match &args.exclude_buildids {
        Some(path) => fs::read_to_string(path).with_context(|| path.display().to_string())?,
        None => String::new(),
    };
    let excluded: BTreeSet<&str> = excluded.split_whitespace().collect();
    let mut file = PerfData::open(&recording)?;
    let hit = hit_binaries(&mut file, &recording)?;
    let mut wanted: Vec<_> = stated_build_ids(&mut file)?;
    wanted.retain(|entry| {
        hit.contains(entry.path()) && !excluded.contains(entry.build_id.to_string().as_str())
    });
    if wanted.is_empty() {
        bail!("no build-ids to pack: no binary with samples in {} has one", recording.display());
    }
    let finder = Finder::new(&ResolverOptions {
        debuginfod: args.servers.client(),
        ..ResolverOptions::default()
    });
    let name = if args.all {
        with_ending(Path::new(INNER), &format!(".{}", std::process::id()))
    } else {
        with_ending(&recording, ".tar.bz2")
    };
    let mut packed = 0;
    write_whole(&name, |out| {
        let mut archive = ArchiveWriter::new(out);
        for entry in &wanted {
            let binary = entry.path();
            if archive.add_binary(cache, &finder, binary, entry.build_id)? {
                packed += 1;
            } else {
                sayln!(
                    "kymo: {} of build-id {} is neither in the cache nor here",
                    visible(&binary.to_string_lossy()),
                    entry.build_id
                );
            }
        }
        archive.finish()
    })?;
    let name = if args.all { pack_all(&recording, &name)? } else { name };
    say!(
        "[ kymo archive: Packed {} into {} ]\n\
         Where it is to be read, `kymo archive --unpack {}` unpacks it.\n",
        counted(packed, "binary", "binaries"),
        name.display(),
        name.display()
    );
    Ok(exit::of_description(&file))
}

/// The recording and the archive of its binaries in one, whose name is given.
fn pack_all(recording: &Path, binaries: &Path) -> anyhow::Result<PathBuf> {
    let host = SystemRoot::machine().hostname().unwrap_or_default();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seconds = now.map_or(0, |now| now.as_secs().cast_signed());
    let time = format_local_time("%Y%m%d-%H%M%S", seconds);
    let name = PathBuf::from(format!("perf.all-{host}-{time}.tar.bz2"));
    let inside = recording.file_name().context("the recording has no name")?;
    let written = write_whole(&name, |out| {
        let mut archive = ArchiveWriter::new(out);
        archive.add_file(&inside.to_string_lossy(), recording)?;
        archive.add_file(INNER, binaries)?;
        archive.finish()
    });
    // It is within the other, or was not requested.
    let _ = fs::remove_file(binaries);
    written.map(|()| name)
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    PathBuf::from(name)
}

/// Writes a file that is there when it is complete. Like a recording it is its maker's alone to
/// read.
fn write_whole(
    path: &Path,
    write: impl FnOnce(BufWriter<File>) -> io::Result<BufWriter<File>>,
) -> anyhow::Result<()> {
    let written = output_file::write_whole(path, PRIVATE, Existing::Replace, |file| {
        write(BufWriter::new(file.try_clone()?))?.flush()
    });
    written.with_context(|| format!("cannot write {}", path.display()))
}

fn unpack_archive(args: &Args, cache: &BuildIdCache) -> anyhow::Result<()> {
    let path = match &args.file {
        Some(path) => path.clone(),
        None => only_archive()?,
    };
    let file = File::open(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut recordings = Vec::new();
    let mut recording = |name: &str, bytes: &mut dyn Read| {
        recordings.push(name.to_owned());
        let path = Path::new(name);
        // The name comes out of the archive: it must not lead elsewhere.
        if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            let why = format!("{name} is there already and is not a regular file");
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        let existing = if args.force { Existing::Replace } else { Existing::Keep };
        output_file::write_whole(path, PRIVATE, existing, |file| io::copy(bytes, file)).map_err(
            |e| match e.kind() {
                io::ErrorKind::AlreadyExists => {
                    io::Error::new(e.kind(), format!("{name} is there already; -f overwrites it"))
                }
                _ => e,
            },
        )?;
        Ok(())
    };
    let unpacked = unpack(BufReader::new(file), cache, &mut recording)
        .with_context(|| format!("cannot unpack {}", path.display()))?;
    for name in &unpacked.refused {
        sayln!("kymo: left out {}: not a file of a build-id cache", visible(name));
    }
    if unpacked.binaries == 0 && recordings.is_empty() {
        bail!("{} contains no files of a build-id cache", path.display());
    }
    let binaries = counted(unpacked.binaries as u64, "binary", "binaries");
    say!("[ kymo archive: Unpacked {binaries} into {}", cache.directory().path().display());
    for name in recordings {
        say!(", and {name}");
    }
    say!(" ]\n");
    Ok(())
}

/// The archive that is meant where none is named.
fn only_archive() -> anyhow::Result<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(".").context("cannot read this directory")? {
        let name = entry?.file_name().into_string().unwrap_or_default();
        if name.starts_with("perf") && name.ends_with(".tar.bz2") {
            found.push(name);
        }
    }
    found.sort_unstable();
    match found.as_slice() {
        [only] => Ok(PathBuf::from(only)),
        [] => bail!("no perf*.tar.bz2 in this directory; name the archive"),
        _ => bail!("there are several archives, name one of them: {}", found.join(", ")),
    }
}
