//! Events that the machine offers, read on first use: selecting events that need neither tracefs
//! nor sysfs reads neither.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::names::{self, CacheName};
use super::{EventSpec, ParseError, parse};
use crate::pmu::Pmus;
use crate::system_root::system_path;
use crate::tracefs::{Tracefs, TracefsError};
use crate::vmstat::Snapshot;

/// The events of this machine, by name.
#[derive(Debug)]
pub struct Catalog {
    devices: Option<PathBuf>,
    vmstat_file: PathBuf,
    pmus: OnceLock<Pmus>,
    tracefs: OnceLock<Tracefs>,
    vmstat: OnceLock<Vec<String>>,
    next_group: AtomicU32,
}

impl Default for Catalog {
    fn default() -> Self {
        Self::open()
    }
}

impl Catalog {
    /// The catalog of the running machine. Nothing is read yet.
    pub fn open() -> Catalog {
        Catalog {
            devices: None,
            vmstat_file: system_path("/proc/vmstat"),
            pmus: OnceLock::new(),
            tracefs: OnceLock::new(),
            vmstat: OnceLock::new(),
            next_group: AtomicU32::new(0),
        }
    }

    /// The catalog of directories that look like a machine: one like
    /// `/sys/bus/event_source/devices`, a tracefs root, a file like
    /// `/proc/vmstat`.
    pub fn at(devices: &Path, tracefs: &Path, vmstat: &Path) -> Catalog {
        Catalog {
            devices: Some(devices.to_owned()),
            vmstat_file: vmstat.to_owned(),
            tracefs: OnceLock::from(Tracefs::at(tracefs)),
            ..Self::open()
        }
    }

    /// Reads one argument of `-e`. Events of one `{group}` carry the same
    /// number in `group`, which no other group of this catalog gets.
    pub fn parse(&self, text: &str) -> Result<Vec<EventSpec>, ParseError> {
        parse::parse(self, text)
    }

    /// The PMUs in sysfs.
    pub fn pmus(&self) -> &Pmus {
        self.pmus.get_or_init(|| match &self.devices {
            Some(devices) => Pmus::at(devices),
            None => Pmus::open(),
        })
    }

    /// The tracefs tree, mounted if need be.
    pub fn tracefs(&self) -> Result<&Tracefs, TracefsError> {
        if let Some(found) = self.tracefs.get() {
            return Ok(found);
        }
        let found = Tracefs::open()?;
        Ok(self.tracefs.get_or_init(|| found))
    }

    /// Names of the counters in /proc/vmstat; none if it cannot be read.
    pub fn vmstat_names(&self) -> &[String] {
        self.vmstat.get_or_init(|| {
            Snapshot::read_from(&self.vmstat_file)
                .map(|s| s.iter().map(|(name, _)| name.to_owned()).collect())
                .unwrap_or_default()
        })
    }

    /// Every tracepoint as (system, name), sorted.
    pub fn tracepoints(&self) -> Result<Vec<(String, String)>, TracefsError> {
        let tracefs = self.tracefs()?;
        let mut list = Vec::with_capacity(2500);
        for system in tracefs.systems()? {
            for name in tracefs.events(&system)? {
                list.push((system.clone(), name));
            }
        }
        Ok(list)
    }

    pub(super) fn new_group(&self) -> u32 {
        self.next_group.fetch_add(1, Ordering::Relaxed)
    }

    /// Tracepoints of which a name means one without its group, else those with names much like it.
    pub fn tracepoints_like(&self, wanted: &str) -> Vec<String> {
        let all = self.tracepoints().unwrap_or_default();
        let named = all.iter().filter(|(_, name)| name == wanted);
        let named: Vec<String> = named.map(|(system, name)| format!("{system}:{name}")).collect();
        if !named.is_empty() {
            return named;
        }
        let all: Vec<String> = all.iter().map(|(s, n)| format!("{s}:{n}")).collect();
        kymo_model::near_names(wanted, all.iter().map(String::as_str))
    }

    /// Names that are much like `wanted`, of any kind.
    pub(super) fn near(&self, wanted: &str) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for n in names::HARDWARE.iter().chain(&names::SOFTWARE) {
            all.push(n.name.to_owned());
            if !n.alias.is_empty() {
                all.push(n.alias.to_owned());
            }
        }
        all.extend(names::TOOL.iter().map(|t| t.0.to_owned()));
        all.extend(names::caches().into_iter().map(|c| c.0));
        for pmu in self.pmus().iter() {
            all.extend(pmu.alias_names().iter().map(|a| format!("{}/{a}/", pmu.name)));
        }
        all.extend(self.vmstat_names().iter().map(|n| format!("vmstat:{n}")));
        if let Ok(list) = self.tracepoints() {
            all.extend(list.into_iter().map(|(s, n)| format!("{s}:{n}")));
        }
        kymo_model::near_names(wanted, all.iter().map(String::as_str))
    }

    /// The events with a fixed name: hardware, software, tool, cache, raw.
    pub(super) fn fixed(&self, word: &str) -> Option<Result<EventSpec, String>> {
        use kymo_model::EventType;
        let legacy = |kind, config| Some(Ok(EventSpec::legacy(word, kind, config)));
        if let Some(n) = names::find(&names::HARDWARE, word) {
            return legacy(EventType::HARDWARE, n.config);
        }
        if let Some(n) = names::find(&names::SOFTWARE, word) {
            return legacy(EventType::SOFTWARE, n.config);
        }
        if let Some(t) = names::TOOL.iter().find(|t| t.0 == word) {
            return Some(Ok(EventSpec::other(word, super::CounterSource::Tool(t.1))));
        }
        match names::cache(word) {
            Some(CacheName::Config(config)) => return legacy(EventType::HW_CACHE, config),
            Some(CacheName::NoSuchOperation(cache, op)) => {
                return Some(Err(format!("the cache {cache} has no {op}")));
            }
            None => {}
        }
        let config = parse::raw(word)?;
        Some(config.map(|config| EventSpec::legacy(word, EventType::RAW, config)))
    }
}
