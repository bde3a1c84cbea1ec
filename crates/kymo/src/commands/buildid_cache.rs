//! `kymo buildid-cache`: perf's cache of binaries by build-id, which recordings are resolved
//! with after the binaries have changed.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use kymo_files::perfdata::PerfData;
use kymo_kernel::system::SystemRoot;
use kymo_model::{BuildId, counted};
use kymo_probe::usdt_probe_lines;
use kymo_symbols::build_id_cache::{BinaryToAdd, BuildIdCache};
use kymo_symbols::debug_files::BinaryFiles;
use kymo_symbols::debuginfod::{Client, ClientConfig};
use kymo_symbols::{Binary, BuildIdDirectory, Finder, ResolverOptions};
use kymo_table::units::visible;

/// Flags of `kymo buildid-cache`.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
#[command(after_long_help = "\
LOCATION
The cache is ~/.debug, `buildid.dir` of perf's configuration, or DIR with `kymo --buildid-dir DIR`.
perf and kymo share it: both look there for binaries by build-id.

DIFFERENCES FROM PERF
kymo copies files instead of linking them, so an overwritten binary stays in the cache unchanged.
The exit status is 1 if a file cannot be added, removed or updated. Like perf, -l lists binaries
that have not changed since they were cached; -lv also lists the others. -r and -p also remove
directories that become empty.")]
pub(crate) struct Args {
    /// Add these binaries, with their debug files and USDT probes
    #[arg(short, long, value_name = "FILES", value_delimiter = ',')]
    add: Vec<PathBuf>,
    /// Remove the cached builds of these files
    #[arg(short, long, value_name = "FILES", value_delimiter = ',')]
    remove: Vec<PathBuf>,
    /// Remove all cached builds of these paths, which need not exist
    #[arg(short, long, value_name = "FILES", value_delimiter = ',')]
    purge: Vec<PathBuf>,
    /// Remove everything
    #[arg(short = 'P', long)]
    purge_all: bool,
    /// List build-ids of a perf.data that are not in the cache
    #[arg(short = 'M', long, value_name = "FILE")]
    missing: Option<PathBuf>,
    /// Add these binaries, and replace their cached builds
    #[arg(short, long, value_name = "FILES", value_delimiter = ',')]
    update: Vec<PathBuf>,
    /// List cached binaries that have not changed on disk; -v: all
    #[arg(
        short,
        long,
        conflicts_with_all = ["add", "remove", "purge", "purge_all", "missing", "update"]
    )]
    list: bool,
    /// Ignore the owner of the recording [always on]
    #[arg(short, long)]
    force: bool,
    /// Print actions; with -l, also list binaries that perf omits
    #[arg(short, long)]
    verbose: bool,
    /// Resolve paths in the mount namespace of this process
    #[arg(long, value_name = "PID")]
    target_ns: Option<u32>,
    /// Fetch debug files from these servers [default: DEBUGINFOD_URLS]
    #[arg(long, value_name = "URLS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "")]
    debuginfod: Option<String>,
}

pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let directory = BuildIdDirectory::of_user()
        .context("there is no build-id cache: HOME is not set, or buildid.dir is /dev/null")?;
    let manager = CacheManager {
        cache: BuildIdCache::new(directory.clone()),
        finder: Finder::new(&ResolverOptions {
            debuginfod: args.client(),
            ..ResolverOptions::default()
        }),
        target_ns: args.target_ns,
        verbose: args.verbose,
    };
    let reading = || format!("cannot read {}", directory.path().display());
    if args.list {
        return manager.list().with_context(reading);
    }
    let mut failed = false;
    let mut each = |what: &str, files: &[PathBuf], act: &dyn Fn(&Path) -> anyhow::Result<()>| {
        for file in files {
            if let Err(e) = act(file) {
                sayln!("kymo: cannot {what} {}: {e:#}", file.display());
                failed = true;
            }
        }
    };
    each("add", &args.add, &|file| manager.add(file));
    each("remove", &args.remove, &|file| manager.remove(file));
    each("purge", &args.purge, &|file| manager.purge(file));
    if args.purge_all {
        for binary in manager.cache.purge_all().with_context(reading)? {
            manager.tell("removed", binary.build_id, &binary.name);
        }
    }
    if let Some(recording) = &args.missing {
        manager.missing(recording)?;
    }
    each("update", &args.update, &|file| manager.update(file));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Puts the binaries that a recording names, and that are here, into the cache. What cannot be
/// put there is no fault of the recording.
pub(crate) fn cache_binaries(recording: &Path) {
    let (Some(directory), Ok(file)) = (BuildIdDirectory::of_user(), PerfData::open(recording))
    else {
        return;
    };
    let cache = BuildIdCache::new(directory);
    for entry in &file.features().build_ids {
        let path = entry.path();
        let Ok(files) = BinaryFiles::user(path) else { continue };
        if files.build_id != Some(entry.build_id) || cache.holds(entry.build_id) {
            continue;
        }
        let binary = BinaryToAdd {
            name: path,
            build_id: entry.build_id,
            file: &files.path,
            debug: None,
            probes: "",
        };
        if let Err(e) = cache.add(&binary) {
            sayln!("kymo: {} is not cached: {e}", path.display());
        }
    }
}

impl Args {
    /// Client of the servers that are named, or that the environment names.
    fn client(&self) -> Option<Arc<Client>> {
        let config = match self.debuginfod.as_deref().filter(|urls| !urls.is_empty()) {
            Some(urls) => ClientConfig::of_servers(urls)?,
            None => ClientConfig::from_env()?,
        };
        Some(Arc::new(Client::new(config, None)))
    }
}

struct CacheManager {
    cache: BuildIdCache,
    finder: Finder,
    target_ns: Option<u32>,
    verbose: bool,
}

impl CacheManager {
    fn list(&self) -> anyhow::Result<ExitCode> {
        let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
        let mut left_out = 0;
        for binary in self.cache.binaries()? {
            if self.verbose || binary.is_current() {
                writeln!(out, "{} {}", binary.build_id, binary.name.display())?;
            } else {
                left_out += 1;
            }
        }
        out.flush()?;
        if left_out > 0 {
            let what = counted(left_out, "binary", "binaries");
            sayln!("and {what} that changed or went since; -lv lists all");
        }
        Ok(ExitCode::SUCCESS)
    }

    fn add(&self, path: &Path) -> anyhow::Result<()> {
        let (files, id) = self.open(path)?;
        let name = self.name_of(&files);
        let probes = usdt_probe_lines(&files, &name.display().to_string());
        let probes = probes.unwrap_or_else(|e| {
            sayln!("kymo: USDT probes of {} are not cached: {e}", path.display());
            String::new()
        });
        let binary = Binary { path: &files.path, build_id: Some(id), pid: None };
        let debug = self.finder.dwarf(&binary).filter(|debug| *debug != files.path);
        let added = self.cache.add(&BinaryToAdd {
            name: &name,
            build_id: id,
            file: &files.path,
            debug: debug.as_deref(),
            probes: &probes,
        })?;
        self.tell(if added { "added" } else { "there already:" }, id, &name);
        Ok(())
    }

    fn remove(&self, path: &Path) -> anyhow::Result<()> {
        let (files, id) = self.open(path).context("-p removes builds of a file that is gone")?;
        if self.cache.remove(id)? {
            self.tell("removed", id, &self.name_of(&files))
        } else {
            sayln!("kymo: {} was not in the cache", path.display())
        }
        Ok(())
    }

    fn purge(&self, path: &Path) -> anyhow::Result<()> {
        let name = match self.open(path) {
            Ok((files, _)) => self.name_of(&files),
            Err(_) if path.as_os_str().as_encoded_bytes().starts_with(b"[") => path.to_owned(),
            Err(_) => std::path::absolute(path)?,
        };
        let removed = self.cache.purge(&name)?;
        if removed.is_empty() {
            sayln!("kymo: {} was not in the cache", path.display());
        }
        for id in removed {
            self.tell("removed", id, &name);
        }
        Ok(())
    }

    fn update(&self, path: &Path) -> anyhow::Result<()> {
        let (_, id) = self.open(path)?;
        self.cache.remove(id)?;
        self.add(path)
    }

    fn missing(&self, recording: &Path) -> anyhow::Result<()> {
        let file = PerfData::open(recording)?;
        let mut out = std::io::BufWriter::new(crate::streams::stdout().lock());
        for entry in &file.features().build_ids {
            if !self.cache.holds(entry.build_id) {
                writeln!(out, "{} {}", entry.build_id, entry.path().display())?;
            }
        }
        out.flush()?;
        Ok(())
    }

    /// A binary and its build-id.
    fn open(&self, path: &Path) -> anyhow::Result<(BinaryFiles, BuildId)> {
        let files = match self.target_ns {
            Some(pid) => BinaryFiles::user_of(pid, path),
            None => BinaryFiles::user(path),
        }?;
        let id = files.build_id.context("it has no build-id")?;
        Ok((files, id))
    }

    /// The path that recordings have of a binary: as its processes see it.
    fn name_of(&self, files: &BinaryFiles) -> PathBuf {
        let root = self.target_ns.map(|pid| SystemRoot::machine().root_of(pid));
        let below = root.and_then(|root| files.path.strip_prefix(root).ok());
        below.map_or_else(|| files.path.clone(), |below| Path::new("/").join(below))
    }

    fn tell(&self, what: &str, id: BuildId, name: &Path) {
        if self.verbose {
            sayln!("{what} {id} {}", visible(&name.to_string_lossy()));
        }
    }
}
