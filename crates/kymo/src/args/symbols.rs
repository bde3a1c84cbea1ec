//! Flags that say where symbols, debug files and sources come from, and whether
//! debuginfod servers are asked.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kymo_symbols::BundleError;
use kymo_symbols::ResolverOptions;
use kymo_symbols::bundle::Bundle;
use kymo_symbols::debuginfod::{Client, ClientConfig, OnProgress, Progress};
use kymo_view::trust::byte_size;

/// Flags that say where symbols come from.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct SymbolArgs {
    /// Read kernel symbols from this file, in the format of /proc/kallsyms
    #[arg(long, value_name = "FILE")]
    pub(crate) kallsyms: Option<PathBuf>,
    /// Read kernel symbols from this uncompressed kernel image
    #[arg(short = 'k', long, value_name = "FILE")]
    pub(crate) vmlinux: Option<PathBuf>,
    /// Look for binaries and debug files under this directory
    #[arg(long, value_name = "DIR", value_parser = directory)]
    pub(crate) symfs: Option<PathBuf>,
    /// Show mangled names
    #[arg(long)]
    pub(crate) no_demangle: bool,
    #[command(flatten)]
    pub(crate) servers: DebuginfodArgs,
    /// Resolve symbols with this bundle (see `kymo bundle`)
    ///
    /// A bundle next to the recording is found without this option.
    #[arg(long, value_name = "FILE", conflicts_with = "no_bundle")]
    pub(crate) bundle: Option<PathBuf>,
    /// Ignore a bundle next to the recording
    #[arg(long)]
    pub(crate) no_bundle: bool,
}

/// Flags of debuginfod.
#[derive(clap::Args, Clone, Default)]
pub(crate) struct DebuginfodArgs {
    /// Do not use debuginfod servers, even if DEBUGINFOD_URLS is set
    #[arg(long)]
    no_debuginfod: bool,
}

impl DebuginfodArgs {
    /// Client of the servers that the environment names, if it names any.
    pub(crate) fn client(&self) -> Option<Arc<Client>> {
        let config = ClientConfig::from_env().filter(|_| !self.no_debuginfod)?;
        let bar = crate::streams::error_is_terminal().then(|| -> OnProgress {
            let bar = FetchBar::default();
            Box::new(move |p| bar.draw(p))
        });
        Some(Arc::new(Client::new(config, bar)))
    }

    /// Returns the client without a progress bar, for commands that draw on the terminal.
    pub(crate) fn quiet_client(&self) -> Option<Arc<Client>> {
        let config = ClientConfig::from_env().filter(|_| !self.no_debuginfod)?;
        Some(Arc::new(Client::new(config, None)))
    }
}

/// A directory that exists: without it everything would merely have no names.
fn directory(text: &str) -> Result<PathBuf, String> {
    if Path::new(text).is_dir() { Ok(text.into()) } else { Err("no such directory".into()) }
}

impl SymbolArgs {
    /// Options of the resolver of a recording's symbols.
    pub(crate) fn options(&self, recording: &Path) -> ResolverOptions {
        let (bundle, no_bundle) = match self.open_bundle(recording) {
            Ok(bundle) => (bundle.map(Arc::new), None),
            Err(e) => (None, Some(e)),
        };
        ResolverOptions {
            bundle,
            no_bundle,
            symfs: self.symfs.clone(),
            kallsyms: self.kallsyms.clone(),
            vmlinux: self.vmlinux.clone(),
            no_demangle: self.no_demangle,
            debuginfod: self.servers.client(),
        }
    }

    fn open_bundle(&self, recording: &Path) -> Result<Option<Bundle>, BundleError> {
        // The standard input has no place beside it.
        if self.no_bundle || recording == Path::new("-") {
            return Ok(None);
        }
        match &self.bundle {
            Some(path) => Bundle::open_for(path, recording).map(Some),
            None => Bundle::open_beside(recording),
        }
    }
}

/// One line on the terminal: what is being fetched. It is wiped at the end.
#[derive(Default)]
struct FetchBar {
    state: Mutex<Shown>,
}

#[derive(Default)]
struct Shown {
    /// Build-id, bytes, bytes expected.
    running: Vec<(String, u64, Option<u64>)>,
    drawn: Option<Instant>,
}

impl FetchBar {
    const PAUSE: Duration = Duration::from_millis(100);

    fn draw(&self, p: Progress<'_>) {
        let mut shown = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        shown.running.retain(|(id, ..)| id != p.build_id);
        if !p.done {
            shown.running.push((p.build_id.to_owned(), p.got, p.expected));
        }
        crate::progress::set_fetching(!shown.running.is_empty());
        let now = Instant::now();
        if !p.done && shown.drawn.is_some_and(|t| now.duration_since(t) < FetchBar::PAUSE) {
            return;
        }
        shown.drawn = Some(now);
        let mut text = String::from("\r\x1b[K");
        let got = shown.running.iter().map(|r| r.1).sum();
        let expected: Option<u64> = shown.running.iter().map(|r| r.2).sum();
        match (&shown.running[..], expected) {
            ([], _) => {}
            ([(id, ..)], Some(all)) => {
                let id = id.get(..12).unwrap_or(id);
                text.push_str(&format!("fetching {id}… {} of {}", byte_size(got), byte_size(all)));
            }
            ([(id, ..)], None) => {
                text.push_str(&format!(
                    "fetching {}… {}",
                    id.get(..12).unwrap_or(id),
                    byte_size(got)
                ));
            }
            (many, _) => {
                text.push_str(&format!("fetching {} files… {}", many.len(), byte_size(got)))
            }
        }
        // The fetch matters, not the bar, which may have no reader.
        let _ = crate::streams::control_stderr(&text);
    }
}
