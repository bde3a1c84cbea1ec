//! Collects the list: one [`ListEntry`] per event, with the kernel's answer to whether it can be
//! counted.

use std::collections::BTreeMap;

use globset::{GlobBuilder, GlobMatcher};
use kymo_format::EventFormat;
use kymo_kernel::events::{Catalog, Support, names};
use kymo_kernel::ftrace::TraceDir;
use kymo_kernel::pmu::Pmu;
use kymo_kernel::tracefs::{DynamicEvent, TracefsError};
use kymo_kernel::vmstat;

/// The kinds of events, in the order they are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum EventCategory {
    Hardware,
    Software,
    Tool,
    Cache,
    Pmu,
    Raw,
    Breakpoint,
    Tracepoint,
    Probe,
    Ust,
    Vmstat,
}

impl EventCategory {
    pub(super) const fn word(self) -> &'static str {
        match self {
            EventCategory::Hardware => "hw",
            EventCategory::Software => "sw",
            EventCategory::Tool => "tool",
            EventCategory::Cache => "cache",
            EventCategory::Pmu => "pmu",
            EventCategory::Raw => "raw",
            EventCategory::Breakpoint => "mem",
            EventCategory::Tracepoint => "tracepoint",
            EventCategory::Probe => "probe",
            EventCategory::Ust => "ust",
            EventCategory::Vmstat => "vmstat",
        }
    }

    fn from_word(word: &str) -> Option<EventCategory> {
        Some(match word {
            "hw" | "hardware" => EventCategory::Hardware,
            "sw" | "software" => EventCategory::Software,
            "tool" => EventCategory::Tool,
            "cache" | "hwcache" => EventCategory::Cache,
            "pmu" => EventCategory::Pmu,
            "raw" => EventCategory::Raw,
            "mem" | "breakpoint" => EventCategory::Breakpoint,
            "tracepoint" => EventCategory::Tracepoint,
            "probe" => EventCategory::Probe,
            "ust" => EventCategory::Ust,
            "vmstat" => EventCategory::Vmstat,
            _ => return None,
        })
    }

    /// The PMU that counts events of this kind, by its name in sysfs; of `Pmu` each has its own.
    const fn pmu(self) -> Option<&'static str> {
        match self {
            EventCategory::Hardware | EventCategory::Cache | EventCategory::Raw => Some("cpu"),
            EventCategory::Software => Some("software"),
            EventCategory::Tool => Some("tool"),
            EventCategory::Breakpoint => Some("breakpoint"),
            EventCategory::Tracepoint | EventCategory::Probe => Some("tracepoint"),
            EventCategory::Pmu | EventCategory::Ust | EventCategory::Vmstat => None,
        }
    }
}

/// One event.
#[derive(Debug)]
pub(super) struct ListEntry {
    pub(super) kind: EventCategory,
    pub(super) name: String,
    pub(super) alias: Option<String>,
    pub(super) label: &'static str,
    pub(super) about: String,
    /// `None` where there is nothing to ask the kernel.
    pub(super) support: Option<Support>,
    pub(super) detail: EntryDetail,
}

/// Properties that only some kinds of events have.
#[derive(Debug)]
pub(super) enum EntryDetail {
    None,
    Pmu {
        pmu: String,
        terms: String,
        unit: String,
        scale: f64,
        cpus: Option<Vec<u32>>,
        formats: BTreeMap<String, String>,
    },
    Tracepoint {
        definition: Option<String>,
        layout: Option<Box<EventFormat>>,
    },
    Ust {
        event: Box<kymo_ust::EventRecord>,
        programs: Vec<super::ust::OwningProgram>,
    },
    Counter {
        record: Box<kymo_ust::CounterRecord>,
        programs: Vec<super::ust::OwningProgram>,
    },
}

/// The list, and what could not be listed.
#[derive(Debug, Default)]
pub(super) struct EventListing {
    pub(super) entries: Vec<ListEntry>,
    pub(super) notes: Vec<String>,
}

/// Filter of the list from the command line.
#[derive(Debug, Default)]
pub(super) struct ListFilter {
    kinds: Vec<EventCategory>,
    patterns: Vec<ListPattern>,
    /// Names of PMUs.
    unit: Option<GlobMatcher>,
}

#[derive(Debug)]
enum ListPattern {
    Glob(GlobMatcher),
    Part(String),
}

impl ListFilter {
    pub(super) fn new(words: &[String], unit: Option<&str>) -> anyhow::Result<ListFilter> {
        let unit = unit.map(|unit| anyhow::Ok(GlobBuilder::new(unit).build()?.compile_matcher()));
        let mut filter = ListFilter { unit: unit.transpose()?, ..ListFilter::default() };
        for word in words.iter().flat_map(|w| w.split(',')).filter(|w| !w.is_empty()) {
            if let Some(kind) = EventCategory::from_word(word) {
                filter.kinds.push(kind);
            } else if word.contains(['*', '?', '[']) {
                let glob = GlobBuilder::new(word).case_insensitive(true).build()?;
                filter.patterns.push(ListPattern::Glob(glob.compile_matcher()));
            } else {
                filter.patterns.push(ListPattern::Part(word.to_ascii_lowercase()));
            }
        }
        Ok(filter)
    }

    /// Whether anything was named that is not a kind.
    pub(super) fn has_patterns(&self) -> bool {
        !self.patterns.is_empty()
    }

    fn everything(&self) -> bool {
        self.kinds.is_empty() && self.patterns.is_empty()
    }

    /// Whether events of that kind have to be looked up at all.
    fn may_want(&self, kind: EventCategory) -> bool {
        if !self.wants_unit(kind, kind.pmu()) {
            return false;
        }
        self.everything()
            || !self.patterns.is_empty()
            || self.kinds.contains(&kind)
            || kind == EventCategory::Tracepoint && self.kinds.contains(&EventCategory::Probe)
    }

    /// Whether a PMU is chosen; of events that PMUs describe it is asked for each.
    fn wants_unit(&self, kind: EventCategory, pmu: Option<&str>) -> bool {
        self.unit.as_ref().is_none_or(|unit| match pmu {
            Some(pmu) => unit.is_match(pmu),
            None => kind == EventCategory::Pmu,
        })
    }

    pub(super) fn wants(&self, kind: EventCategory, names: &[&str]) -> bool {
        if !self.wants_unit(kind, kind.pmu()) {
            return false;
        }
        if self.everything() || self.kinds.contains(&kind) {
            return true;
        }
        // As in perf, `sw` lists the tool's own values too, and probes are tracepoints.
        let wider = match kind {
            EventCategory::Probe => Some(EventCategory::Tracepoint),
            EventCategory::Tool => Some(EventCategory::Software),
            _ => None,
        };
        if wider.is_some_and(|k| self.kinds.contains(&k)) {
            return true;
        }
        names.iter().filter(|n| !n.is_empty()).any(|name| {
            let after_colon = name.split_once(':').map(|(_, n)| n);
            self.patterns.iter().any(|p| match p {
                ListPattern::Glob(glob) => {
                    glob.is_match(name) || after_colon.is_some_and(|n| glob.is_match(n))
                }
                ListPattern::Part(part) => name.to_ascii_lowercase().contains(part.as_str()),
            })
        })
    }
}

/// Looks everything up that the filter lets through.
pub(super) fn gather(catalog: &Catalog, filter: &ListFilter, verbose: bool) -> EventListing {
    let mut found = EventListing::default();
    fixed(catalog, filter, &mut found);
    if filter.may_want(EventCategory::Pmu) {
        let chosen = |pmu: &&Pmu| filter.wants_unit(EventCategory::Pmu, Some(&pmu.name));
        for pmu in catalog.pmus().iter().filter(chosen) {
            of_pmu(catalog, pmu, filter, verbose, &mut found);
        }
    }
    descriptors(catalog, filter, &mut found);
    if filter.may_want(EventCategory::Tracepoint)
        && let Err(e) = tracepoints(catalog, filter, verbose, &mut found)
    {
        found.notes.push(format!("tracepoints are not listed: {e}"));
    }
    if filter.may_want(EventCategory::Ust) {
        super::ust::gather(filter, &mut found);
    }
    if filter.may_want(EventCategory::Vmstat) {
        counters(catalog, filter, &mut found);
    }
    found
}

/// Reads one event text and asks the kernel.
fn ask(catalog: &Catalog, text: &str) -> Option<Support> {
    Some(catalog.parse(text).ok()?.first()?.support())
}

fn fixed(catalog: &Catalog, filter: &ListFilter, found: &mut EventListing) {
    let tables = [
        (EventCategory::Hardware, "Hardware event", names::HARDWARE.as_slice()),
        (EventCategory::Software, "Software event", names::SOFTWARE.as_slice()),
    ];
    for (kind, label, table) in tables {
        for n in table.iter().filter(|n| filter.wants(kind, &[n.name, n.alias])) {
            found.entries.push(ListEntry {
                kind,
                name: n.name.to_owned(),
                alias: (!n.alias.is_empty()).then(|| n.alias.to_owned()),
                label,
                about: n.about.to_owned(),
                support: ask(catalog, n.name),
                detail: EntryDetail::None,
            });
        }
    }
    for (name, _, about) in names::TOOL.iter().filter(|t| filter.wants(EventCategory::Tool, &[t.0]))
    {
        found.entries.push(simple(EventCategory::Tool, name, "Tool event", about, None));
    }
    for (name, _) in names::caches() {
        if filter.wants(EventCategory::Cache, &[&name]) {
            let support = ask(catalog, &name);
            found.entries.push(simple(
                EventCategory::Cache,
                &name,
                "Hardware cache event",
                "",
                support,
            ));
        }
    }
}

fn simple(
    kind: EventCategory,
    name: &str,
    label: &'static str,
    about: &str,
    support: Option<Support>,
) -> ListEntry {
    ListEntry {
        kind,
        name: name.to_owned(),
        alias: None,
        label,
        about: about.to_owned(),
        support,
        detail: EntryDetail::None,
    }
}

fn of_pmu(
    catalog: &Catalog,
    pmu: &Pmu,
    filter: &ListFilter,
    verbose: bool,
    found: &mut EventListing,
) {
    let aliases = pmu.alias_names();
    if aliases.is_empty() {
        return;
    }
    let cpus = pmu.cpus();
    let formats: BTreeMap<String, String> = if verbose {
        pmu.formats().into_iter().map(|(term, f)| (term, f.to_string())).collect()
    } else {
        BTreeMap::new()
    };
    for alias in aliases {
        let name = format!("{}/{alias}/", pmu.name);
        if !filter.wants(EventCategory::Pmu, &[&name, &alias]) {
            continue;
        }
        let Some(facts) = pmu.alias(&alias) else { continue };
        let detail = EntryDetail::Pmu {
            pmu: pmu.name.clone(),
            terms: facts.terms.clone(),
            unit: facts.unit,
            scale: facts.scale,
            cpus: cpus.clone(),
            formats: formats.clone(),
        };
        // An event with an open parameter (`domain=?`) cannot be asked for.
        let support = ask(catalog, &name);
        let about = facts.terms;
        let entry = simple(EventCategory::Pmu, &name, "Kernel PMU event", &about, support);
        found.entries.push(ListEntry { detail, ..entry });
    }
}

fn descriptors(catalog: &Catalog, filter: &ListFilter, found: &mut EventListing) {
    const RAW: &str = "Raw hardware event descriptor";
    let raw = [
        ("rNNN", "The processor's own event number, in hexadecimal"),
        (
            "cpu/t1=v1[,t2=v2,t3 ...]/modifier",
            "The PMU's terms; `kymo list -v pmu` shows which there are",
        ),
    ];
    for (name, about) in raw.iter().filter(|r| filter.wants(EventCategory::Raw, &[r.0])) {
        // Number 0 stands for all of them: which numbers count is not the kernel's to know.
        let support = if *name == "rNNN" {
            ask(catalog, "r0")
        } else {
            let cpu = catalog.pmus().get("cpu");
            Some(cpu.map_or(Support::No(libc::ENOENT), |_| Support::Yes))
        };
        found.entries.push(simple(EventCategory::Raw, name, RAW, about, support));
    }
    let name = "mem:<addr>[/len][:access]";
    if filter.wants(EventCategory::Breakpoint, &[name]) {
        // The address of something in this process, asked for as data.
        let address = std::ptr::from_ref(&name) as usize;
        let support = ask(catalog, &format!("mem:{address:#x}/1:w"));
        let about = "Accesses to an address; access is any of r, w and x";
        found.entries.push(simple(
            EventCategory::Breakpoint,
            name,
            "Hardware breakpoint",
            about,
            support,
        ));
    }
}

fn tracepoints(
    catalog: &Catalog,
    filter: &ListFilter,
    verbose: bool,
    found: &mut EventListing,
) -> Result<(), TracefsError> {
    let tracefs = catalog.tracefs()?;
    let dynamic: BTreeMap<(String, String), DynamicEvent> = tracefs
        .dynamic_events()
        .unwrap_or_default()
        .into_iter()
        .map(|e| ((e.system.clone(), e.name.clone()), e))
        .collect();
    let mut answer = None;
    for (system, event) in catalog.tracepoints()? {
        let name = format!("{system}:{event}");
        let key = (system, event);
        let added = dynamic.get(&key);
        let (kind, label) = match added {
            Some(_) => (EventCategory::Probe, "Dynamic event"),
            None => (EventCategory::Tracepoint, "Tracepoint event"),
        };
        if !filter.wants(kind, &[&name]) {
            continue;
        }
        // One answer holds for all, see the help text. The `ftrace` entries are
        // apart: they are record formats, and only those with an id are events.
        let support = if key.0 == "ftrace" {
            let is_marker = key.1 == "print";
            let is_recorded = || TraceDir::top(tracefs).option("copy_trace_marker").is_some();
            if tracefs.event_id(&key.0, &key.1).is_err() || is_marker && !is_recorded() {
                continue;
            }
            ask(catalog, &name)
        } else {
            if answer.is_none() {
                answer = ask(catalog, &name);
            }
            answer
        };
        let layout = if verbose {
            let text = tracefs.event_format(&key.0, &key.1).unwrap_or_default();
            match EventFormat::parse(&text) {
                Ok(format) => Some(Box::new(format)),
                Err(e) => {
                    found.notes.push(format!("the fields of {name} are not shown: {e}"));
                    None
                }
            }
        } else {
            None
        };
        let definition = added.map(|e| e.definition.clone());
        let entry = simple(kind, &name, label, "", support);
        let detail = EntryDetail::Tracepoint { definition, layout };
        found.entries.push(ListEntry { detail, ..entry });
    }
    Ok(())
}

fn counters(catalog: &Catalog, filter: &ListFilter, found: &mut EventListing) {
    for counter in catalog.vmstat_names() {
        let name = format!("vmstat:{counter}");
        if !filter.wants(EventCategory::Vmstat, &[&name]) {
            continue;
        }
        let about = if vmstat::is_gauge(counter) {
            "A level of /proc/vmstat; counting shows how far it moved"
        } else {
            "A counter of /proc/vmstat since boot, of the whole machine"
        };
        found.entries.push(simple(EventCategory::Vmstat, &name, "Vmstat counter", about, None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_globs_and_parts_choose() {
        let words = |w: &[&str]| -> Vec<String> { w.iter().map(|s| (*s).to_owned()).collect() };
        let f = ListFilter::new(&words(&["sw", "sched:*switch", "kmalloc"]), None).unwrap();
        assert!(f.wants(EventCategory::Software, &["cs"]));
        assert!(f.wants(EventCategory::Tracepoint, &["sched:sched_switch"]));
        assert!(f.wants(EventCategory::Tracepoint, &["kmem:kmalloc_node"]));
        assert!(!f.wants(EventCategory::Tracepoint, &["kmem:kfree"]));
        assert!(ListFilter::new(&words(&["a["]), None).is_err());
    }
}
