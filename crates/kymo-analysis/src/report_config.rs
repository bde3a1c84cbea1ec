//! Configuration of a report: sort keys, columns, filters and the drawing of call
//! chains, and what they come to for each event once it is known what was recorded.

use std::ops::RangeInclusive;

use kymo_files::perfdata::EventDesc;
use kymo_model::{AttrFlags, EventType, SampleType};
use regex_automata::meta::{BuildError, Regex};

use crate::histogram::{
    ChainOrder, Choice, EntryNumbers, HistEntry, Histogram, HistogramOptions, Key, histogram,
};
use crate::payload_labels::{PayloadKey, PayloadLabels};
use crate::profile::{EventProfile, FrameId, ParallelismOptions, Profile, Stack};

/// A report as it is asked for, in the words of the flags of `perf report`.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "fields are named like perf's flags")]
pub struct ReportRequest<'a> {
    pub sort: Option<&'a str>,
    pub fields: Option<&'a str>,
    pub parent: Option<&'a str>,
    pub ignore_callees: Option<&'a str>,
    pub call_graph: Option<&'a str>,
    /// `--children` or `--no-children`.
    pub children: Option<bool>,
    pub comms: Option<&'a str>,
    pub dsos: Option<&'a str>,
    pub symbols: Option<&'a str>,
    pub percent_limit: Option<f64>,
    pub show_nr_samples: bool,
    pub show_total_period: bool,
    /// Shares of the kernel and of programs.
    pub show_cpu_utilization: bool,
    pub field_separator: Option<&'a str>,
    pub no_inline: bool,
    pub full_source_path: bool,
    /// `--percentage relative`.
    pub relative: bool,
    /// A level for each sort key.
    pub hierarchy: bool,
    pub hide_unresolved: bool,
    pub symbol_filter: Option<&'a str>,
    pub exclude_other: bool,
    pub inverted: bool,
    /// Entries weigh their share of the time that passed, not of the CPUs' time.
    pub latency: bool,
    /// In recordings with context switches, latency is shown next to the overhead (perf 7).
    pub latency_beside: bool,
    /// A key `symbol` has a level below it in a tree (perf 7).
    pub symbol_level: bool,
    /// Numbers of threads that ran.
    pub parallelism: &'a [RangeInclusive<u32>],
    /// Number of the event of a group that entries are in the order of.
    pub group_sort_idx: usize,
    /// Fields of tracepoints are shown as they are.
    pub raw_trace: bool,
}

/// A request that cannot be met.
#[derive(Debug, thiserror::Error)]
pub enum ReportConfigError {
    /// A pattern of functions is no regular expression.
    #[error("{flag} {pattern}")]
    Pattern {
        /// Option that has the pattern.
        flag: &'static str,
        /// The pattern.
        pattern: String,
        /// Error of the pattern.
        source: Box<BuildError>,
    },
    /// A word of `-g` is not known.
    #[error(
        "unknown call graph option `{0}`: there are none, graph, fractal, flat, folded, caller, \
         callee, srcline and a least percentage"
    )]
    CallGraphOption(String),
    /// No recorded event has a field of this name.
    #[error(
        "unknown sort key `{0}`: there are {KEYS}, trace, trace_fields, and fields of the \
         recorded tracepoints"
    )]
    SortKey(String),
    /// No recorded event's samples have this.
    #[error("samples have no {0}: `kymo record {1}` records it")]
    NotSampled(String, &'static str),
}

/// Drawing of call chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "variants carry perf's names")]
pub enum ChainStyle {
    None,
    Graph,
    Fractal,
    Flat,
    Folded,
}

/// Column of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "variants carry the columns' headings")]
pub enum ReportColumn {
    Children,
    Own,
    Overhead,
    Kernel,
    User,
    Latency,
    Samples,
    Period,
    Key(Key),
}

impl ReportColumn {
    /// Whether the cells are percentages.
    pub fn is_share(self) -> bool {
        matches!(
            self,
            ReportColumn::Children
                | ReportColumn::Own
                | ReportColumn::Overhead
                | ReportColumn::Kernel
                | ReportColumn::User
                | ReportColumn::Latency
        )
    }
}

/// A request, checked.
#[derive(Debug)]
pub struct ReportConfig {
    /// `None` where the recorded events decide.
    keys: Option<Vec<SortKey>>,
    fields: Option<Vec<ColumnRequest>>,
    /// Keys that look into payloads.
    pub payload_keys: Vec<PayloadKey>,
    /// Callers that the key `parent` looks for.
    pub parent: Regex,
    /// Functions that what they called is counted for.
    ignore_callees: Option<Regex>,
    drawing: Option<ChainStyle>,
    order: Option<ChainOrder>,
    least: f64,
    children: Option<bool>,
    /// Task names that count; all where there is no list.
    pub comms: Option<Vec<String>>,
    /// Binaries that count.
    pub dsos: Option<Vec<String>>,
    /// Symbols that count.
    pub symbols: Option<Vec<String>>,
    /// Least share of an entry, in percent.
    pub percent_limit: f64,
    nr_samples: bool,
    /// A level for each sort key.
    pub hierarchy: bool,
    total_period: bool,
    cpu_utilization: bool,
    /// Text between columns, which are not padded then.
    pub separator: Option<String>,
    /// Inlined functions are shown in call graphs.
    pub inlines: bool,
    /// Lines are distinguished in call graphs.
    pub chain_lines: bool,
    /// Whole paths of source files are shown.
    pub full_paths: bool,
    /// Shares are of what is shown, not of all samples.
    relative: bool,
    hide_unresolved: bool,
    symbol_filter: Option<String>,
    exclude_other: bool,
    /// Samples weigh their latency.
    pub latency: bool,
    latency_beside: bool,
    /// The share of CPU time stands first, and latency beside it.
    overhead_first: bool,
    /// A tree is drawn with room for a level below symbols.
    pub symbol_level: bool,
    /// Their share of CPU time is shown beside it.
    overhead_beside: bool,
    /// Numbers of threads that count; all where there are none.
    parallelism: Vec<RangeInclusive<u32>>,
    /// Number of the event of a group that entries are in the order of.
    sorted_by: usize,
    raw_trace: bool,
    /// Only the symbol is sorted by, so that trees need not repeat it.
    pub symbol_first: bool,
}

/// Total to which shares relate.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReportWhole {
    /// Number of samples.
    pub samples: u64,
    /// Sum of their periods.
    pub period: u64,
    /// Their weight: periods, or latency.
    pub weight: u64,
}

/// Layout of the report of one event.
#[derive(Debug)]
pub struct EventLayout {
    /// Number of the event.
    pub event: usize,
    /// Grouping of its samples.
    pub histogram: HistogramOptions,
    /// Drawing of call chains.
    pub drawing: ChainStyle,
    /// Least share of a branch, in percent.
    pub least: f64,
    /// Columns, from the left.
    pub columns: Vec<ReportColumn>,
}

fn list(text: Option<&str>) -> Option<Vec<String>> {
    text.map(|t| t.split(',').map(|s| s.trim().to_string()).collect())
}

fn key(word: &str) -> Option<Key> {
    Some(match word {
        "comm" => Key::Comm,
        "dso" => Key::Dso,
        "sym" | "symbol" => Key::Symbol,
        // perf's key `pid` distinguishes threads and prints their numbers.
        "pid" | "tid" => Key::Tid,
        "tgid" => Key::Pid,
        "cpu" => Key::Cpu,
        "parallelism" => Key::Parallelism,
        "parent" => Key::Parent,
        "srcline" => Key::Srcline,
        "srcfile" => Key::Srcfile,
        _ => return None,
    })
}

const USUAL: [SortKey; 3] =
    [SortKey::Key(Key::Comm), SortKey::Key(Key::Dso), SortKey::Key(Key::Symbol)];
const KEYS: &str = "comm, dso, sym, pid, tgid, cpu, parallelism, parent, srcline, srcfile, time, \
                    cgroup, code_page_size, weight, local_weight, ins_lat, local_ins_lat";

/// A sort key: of samples, or by number of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SortKey {
    Key(Key),
    Trace(usize),
}

/// A column as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ColumnRequest {
    Column(ReportColumn),
    Trace(usize),
}

fn sort_key(word: &str, trace: &mut Vec<PayloadKey>) -> SortKey {
    if let Some(key) = key(word) {
        return SortKey::Key(key);
    }
    let wanted = PayloadKey::parse(word);
    let known = trace.iter().position(|t| *t == wanted);
    SortKey::Trace(known.unwrap_or_else(|| {
        trace.push(wanted);
        trace.len() - 1
    }))
}

/// The callers that the key `parent` names unless others are asked for.
const PARENT: &str = "^sys_|^do_page_fault";

impl ReportConfig {
    /// Checks a request.
    pub fn new(args: &ReportRequest<'_>) -> Result<ReportConfig, ReportConfigError> {
        let mut trace = Vec::new();
        let fields = args.fields.map(|text| parse_fields(text, &mut trace));
        let mut keys: Option<Vec<SortKey>> = match (args.sort, &fields) {
            (Some(text), _) => {
                let words =
                    text.split(',').map(str::trim).filter(|w| !["overhead", "latency"].contains(w));
                Some(words.map(|w| sort_key(w, &mut trace)).collect())
            }
            (None, Some(fields)) => Some(
                fields
                    .iter()
                    .filter_map(|f| match f {
                        ColumnRequest::Column(ReportColumn::Key(k)) => Some(SortKey::Key(*k)),
                        ColumnRequest::Trace(n) => Some(SortKey::Trace(*n)),
                        ColumnRequest::Column(_) => None,
                    })
                    .collect(),
            ),
            (None, None) => None,
        };
        if args.parent.is_some() {
            keys.get_or_insert_with(|| USUAL.to_vec()).push(SortKey::Key(Key::Parent));
        }
        if let Some(keys) = &mut keys {
            let mut seen = Vec::new();
            keys.retain(|k| {
                !seen.contains(k) && {
                    seen.push(*k);
                    true
                }
            });
        }
        let named = |text: Option<&str>, name: &str| {
            text.is_some_and(|text| text.split(',').any(|word| word.trim() == name))
        };
        let latency = args.latency || named(args.sort, "latency") || named(args.fields, "latency");
        let regex = |flag, pattern: &str| {
            Regex::new(pattern).map_err(|e| ReportConfigError::Pattern {
                flag,
                pattern: pattern.to_owned(),
                source: Box::new(e),
            })
        };
        let parent = regex("--parent", args.parent.unwrap_or(PARENT))?;
        let ignored = args.ignore_callees.map(|pattern| regex("--ignore-callees", pattern));
        let mut config = ReportConfig {
            symbol_first: args.sort.is_some_and(|s| s.starts_with("sym")),
            keys,
            fields,
            payload_keys: trace,
            parent,
            ignore_callees: ignored.transpose()?,
            inlines: !args.no_inline,
            chain_lines: false,
            full_paths: args.full_source_path,
            drawing: None,
            order: args.inverted.then_some(ChainOrder::Caller),
            relative: args.relative,
            hide_unresolved: args.hide_unresolved,
            symbol_filter: args.symbol_filter.map(str::to_owned),
            // As in perf, only where callers are asked for.
            exclude_other: args.exclude_other && args.parent.is_some(),
            latency,
            latency_beside: args.latency_beside,
            overhead_first: false,
            symbol_level: args.symbol_level,
            overhead_beside: args.latency || latency && named(args.sort, "overhead"),
            parallelism: args.parallelism.to_vec(),
            sorted_by: args.group_sort_idx,
            raw_trace: args.raw_trace,
            // As in perf, until the graph's own limit is stated.
            least: args.percent_limit.unwrap_or(0.5),
            children: args.children,
            comms: list(args.comms),
            dsos: list(args.dsos),
            symbols: list(args.symbols),
            percent_limit: args.percent_limit.unwrap_or(0.0),
            nr_samples: args.show_nr_samples,
            total_period: args.show_total_period,
            hierarchy: args.hierarchy,
            cpu_utilization: args.show_cpu_utilization,
            separator: args.field_separator.map(str::to_owned),
        };
        config.read_call_graph(args.call_graph)?;
        Ok(config)
    }

    fn read_call_graph(&mut self, spec: Option<&str>) -> Result<(), ReportConfigError> {
        for word in spec.unwrap_or_default().split(',').filter(|w| !w.is_empty()) {
            match word {
                "none" => self.drawing = Some(ChainStyle::None),
                "graph" => self.drawing = Some(ChainStyle::Graph),
                "fractal" => self.drawing = Some(ChainStyle::Fractal),
                "flat" => self.drawing = Some(ChainStyle::Flat),
                "folded" => self.drawing = Some(ChainStyle::Folded),
                "caller" => self.order = Some(ChainOrder::Caller),
                "callee" => self.order = Some(ChainOrder::Callee),
                "function" | "percent" => {}
                "srcline" => self.chain_lines = true,
                number => match number.parse::<f64>() {
                    Ok(n) if n.is_finite() && n >= 0.0 => self.least = n,
                    _ => return Err(ReportConfigError::CallGraphOption(number.to_owned())),
                },
            }
        }
        Ok(())
    }

    /// Settles what the recorded events decide: without keys, tracepoints alone are grouped by
    /// their text, or by their fields as they are.
    pub fn settle(&mut self, events: &[EventDesc]) {
        let is_usual = self.keys.is_none() && self.fields.is_none() && !self.latency;
        let has = |flag| events.iter().any(|e| e.attr.flags.contains(flag));
        let chains = events.iter().any(|e| e.attr.sample_type.contains(SampleType::CALLCHAIN));
        if self.latency_beside && is_usual && has(AttrFlags::CONTEXT_SWITCH) && !chains {
            (self.latency, self.overhead_first) = (true, true);
        }
        let only = events.iter().all(|e| e.attr.kind == EventType::TRACEPOINT);
        if self.keys.is_none() && only && !events.is_empty() {
            let key = if self.raw_trace { "trace_fields" } else { "trace" };
            self.keys = Some(vec![sort_key(key, &mut self.payload_keys)]);
        }
    }

    /// Refuses keys that no event has.
    pub fn check(&self, labels: &PayloadLabels, any: bool) -> Result<(), ReportConfigError> {
        let unknown = |(i, _): &(usize, &PayloadKey)| any && !labels.known(*i);
        for (_, key) in self.payload_keys.iter().enumerate().filter(unknown) {
            if let PayloadKey::Sample(key) = key {
                let word = key.names().0.to_owned();
                return Err(ReportConfigError::NotSampled(word, key.option()));
            }
            if let PayloadKey::Fields { event, name } = key {
                let event = event.as_ref().map_or(String::new(), |e| format!("{e}."));
                let name = name.as_deref().unwrap_or("*");
                return Err(ReportConfigError::SortKey(format!("{event}{name}")));
            }
        }
        Ok(())
    }

    /// Whether samples are grouped by this key.
    pub fn has(&self, key: Key) -> bool {
        self.keys.as_deref().unwrap_or(&USUAL).contains(&SortKey::Key(key))
    }

    /// Use of the number of threads that run at a time.
    pub fn parallelism(&self) -> ParallelismOptions {
        let keep_apart = self.has(Key::Parallelism) || !self.parallelism.is_empty();
        ParallelismOptions { weigh: self.latency, keep_apart }
    }

    /// Whether lines make a difference.
    pub fn needs_lines(&self) -> bool {
        self.chain_lines || self.has(Key::Srcline) || self.has(Key::Srcfile)
    }

    /// Value that frames of call graphs have in common which are drawn as one.
    pub fn merge_key(&self, profile: &Profile, frame: FrameId) -> (u64, u64) {
        if self.needs_lines() && !self.chain_lines {
            profile.without_line(frame)
        } else {
            (u64::from(frame.0), 0)
        }
    }

    /// Name of a frame in a call graph.
    pub fn frame_name(&self, profile: &Profile, id: FrameId) -> String {
        let frame = profile.frame(id);
        match (profile.function(id), frame.line) {
            (Some(name), Some(_)) if self.chain_lines => {
                let inlined = if frame.inlined.is_some() { " (inlined)" } else { "" };
                format!("{name} {}{inlined}", profile.srcline(id, self.full_paths))
            }
            _ => profile.frame_name(id),
        }
    }

    /// Call chains need not even be looked at.
    pub fn needs_no_chains(&self) -> bool {
        self.drawing == Some(ChainStyle::None)
            && self.children == Some(false)
            && !self.has(Key::Parent)
    }

    /// Whether call graphs begin with the outermost caller, unless the event decides: without call
    /// chains there are none.
    pub fn begins_outermost(&self) -> bool {
        let asked =
            |f: &Vec<ColumnRequest>| !f.contains(&ColumnRequest::Column(ReportColumn::Children));
        let children = self.children.unwrap_or(!self.fields.as_ref().is_some_and(asked));
        let default = if children { ChainOrder::Caller } else { ChainOrder::Callee };
        self.order.unwrap_or(default) == ChainOrder::Caller
    }

    /// Whether no flag leaves stacks out.
    pub fn wants_all(&self) -> bool {
        self.comms.is_none()
            && self.dsos.is_none()
            && self.symbols.is_none()
            && self.symbol_filter.is_none()
            && self.parallelism.is_empty()
            && !self.hide_unresolved
            && !self.exclude_other
    }

    /// Whether a stack is to be shown. As in perf, filters are about the place
    /// where the processor was, not about its callers.
    pub fn wants(&self, profile: &Profile, stack: &Stack) -> bool {
        let among = |list: &Option<Vec<String>>, name: &dyn Fn() -> String| {
            list.as_ref().is_none_or(|l| l.contains(&name()))
        };
        let frame = profile.frame(stack.leaf);
        let symbols = &profile.machine.symbols;
        let runs = |range: &RangeInclusive<u32>| range.contains(&stack.parallelism);
        (self.parallelism.is_empty() || self.parallelism.iter().any(runs))
            && among(&self.comms, &|| profile.machine.comm(stack.comm).to_string())
            && among(&self.dsos, &|| symbols.dso_name(frame.dso).to_string())
            && among(&self.symbols, &|| match frame.symbol {
                Some(s) => symbols.name(s).to_string(),
                None => format!("{:#018x}", frame.addr),
            })
    }

    /// Layout of the report of an event.
    pub fn layout(
        &self,
        number: usize,
        event: &EventProfile,
        labels: &PayloadLabels,
    ) -> EventLayout {
        let (chains, period) = (event.has_chains(), self.weight(event));
        let mut keys: Vec<Key> = Vec::new();
        for key in self.keys.as_deref().unwrap_or(&USUAL) {
            match key {
                SortKey::Key(k) => keys.push(*k),
                SortKey::Trace(n) => keys.extend(labels.columns_of(number, *n).map(Key::Label)),
            }
        }
        let parts = keys.iter().filter_map(|k| match k {
            Key::Label(part) => Some(*part),
            _ => None,
        });
        let sort_labels =
            parts.max().map(|last| (0..=last).map(|part| labels.order(number, part)).collect());
        let asked =
            |f: &Vec<ColumnRequest>| !f.contains(&ColumnRequest::Column(ReportColumn::Children));
        let children = chains
            && !self.hierarchy
            && self.children.unwrap_or(!self.fields.as_ref().is_some_and(asked));
        let drawing =
            if chains { self.drawing.unwrap_or(ChainStyle::Graph) } else { ChainStyle::None };
        let default = if children { ChainOrder::Caller } else { ChainOrder::Callee };
        let order = self.order.unwrap_or(default);
        let mut fields = Vec::new();
        match &self.fields {
            Some(asked) => {
                for show in asked {
                    match show {
                        ColumnRequest::Column(f) => fields.push(*f),
                        ColumnRequest::Trace(n) => {
                            let own = labels.columns_of(number, *n).map(Key::Label);
                            fields.extend(own.map(ReportColumn::Key));
                        }
                    }
                }
            }
            None => {
                match children {
                    true => fields.extend([ReportColumn::Children, ReportColumn::Own]),
                    false if self.overhead_first => {
                        fields.extend([ReportColumn::Overhead, ReportColumn::Latency]);
                    }
                    // Of callers and callees by latency; beside it the share of CPU time.
                    false if self.latency => fields.push(ReportColumn::Latency),
                    false => fields.push(ReportColumn::Overhead),
                }
                fields.extend(self.overhead_beside.then_some(ReportColumn::Overhead));
                if self.cpu_utilization {
                    fields.extend([ReportColumn::Kernel, ReportColumn::User]);
                }
                fields.extend(self.nr_samples.then_some(ReportColumn::Samples));
                fields.extend(self.total_period.then_some(ReportColumn::Period));
                fields.extend(keys.iter().map(|k| ReportColumn::Key(*k)));
            }
        }
        let hidden = |f: &ReportColumn| match f {
            ReportColumn::Key(Key::Comm) => self.comms.as_ref().is_some_and(|l| l.len() == 1),
            ReportColumn::Key(Key::Dso) => self.dsos.as_ref().is_some_and(|l| l.len() == 1),
            ReportColumn::Key(Key::Symbol) => self.symbols.as_ref().is_some_and(|l| l.len() == 1),
            _ => false,
        };
        // A table without any key would say nothing.
        let is_key = |f: &&ReportColumn| matches!(f, ReportColumn::Key(_));
        let keep_all = self.hierarchy || fields.iter().filter(is_key).all(hidden);
        EventLayout {
            event: number,
            histogram: HistogramOptions {
                keys,
                labels: sort_labels,
                children,
                chains: match drawing {
                    ChainStyle::None => None,
                    // Every tree has its own 100 %.
                    ChainStyle::Fractal => Some(0),
                    // What all of it is, is not known yet.
                    _ if self.relative => Some(0),
                    _ => Some((period as f64 * (self.least / 100.0)) as u64),
                },
                order,
                by_latency: self.latency,
                by_period: self.overhead_first,
                sorted_by: self.sorted_by,
            },
            drawing,
            least: self.least,
            columns: fields.into_iter().filter(|f| keep_all || !hidden(f)).collect(),
        }
    }
    /// Samples of an event, or of several beside each other, grouped.
    pub fn histogram(
        &self,
        profile: &Profile,
        events: &[&EventProfile],
        layout: &EventLayout,
    ) -> Histogram {
        let is_parent = |f| profile.function(f).is_some_and(|name| self.parent.is_match(name));
        let wanted = |s: &Stack| self.wants(profile, s);
        let takes = self
            .ignore_callees
            .as_ref()
            .map(|pattern| move |f| profile.function(f).is_some_and(|name| pattern.is_match(name)));
        let takes_callees = takes.as_ref().map(|takes| takes as &dyn Fn(FrameId) -> bool);
        let choice = Choice { wanted: &wanted, is_parent: &is_parent, takes_callees };
        let mut found = histogram(profile, events, &layout.histogram, &choice);
        found.entries.retain(|entry| self.wants_entry(profile, entry));
        found
    }

    /// Whether an entry is to be shown, be it of a caller.
    fn wants_entry(&self, profile: &Profile, entry: &HistEntry) -> bool {
        let resolved = || profile.frame(entry.frame).symbol.is_some();
        let holds = |part: &String| {
            profile.function(entry.frame).is_some_and(|name| name.contains(part.as_str()))
        };
        (!self.hide_unresolved || resolved())
            && self.symbol_filter.as_ref().is_none_or(holds)
            && (!self.exclude_other || entry.parent.is_some())
    }

    /// All of each event, or of what is shown of it, in the order of the numbers of an entry.
    /// As with perf, samples without a symbol are in no number where they are hidden.
    pub fn wholes(
        &self,
        profile: &Profile,
        events: &[&EventProfile],
        shown: &Histogram,
    ) -> Vec<ReportWhole> {
        let is_hidden = |stack: &Stack| profile.frame(stack.leaf).symbol.is_none();
        let whole = |(n, event): (usize, &&EventProfile)| {
            if !self.relative {
                let (samples, period, weight) = (event.samples, event.period, self.weight(event));
                let mut whole = ReportWhole { samples, period, weight };
                let all = event.stacks().map(|(stack, _)| stack).filter(|_| self.hide_unresolved);
                for stack in all.filter(is_hidden) {
                    let weight = if self.latency { stack.latency } else { stack.period };
                    whole.samples = whole.samples.saturating_sub(stack.samples);
                    whole.period = whole.period.saturating_sub(stack.period);
                    whole.weight = whole.weight.saturating_sub(weight);
                }
                return whole;
            }
            let mut sum = EntryNumbers::default();
            for entry in &shown.entries {
                sum.add(&entry.numbers_of(n));
            }
            ReportWhole { samples: sum.samples, period: sum.period, weight: sum.own }
        };
        events.iter().enumerate().map(whole).collect()
    }

    fn weight(&self, event: &EventProfile) -> u64 {
        if self.latency { event.latency } else { event.period }
    }
}

fn parse_fields(text: &str, trace: &mut Vec<PayloadKey>) -> Vec<ColumnRequest> {
    let words = text.split(',').map(str::trim);
    words
        .map(|word| match word {
            "overhead" => ColumnRequest::Column(ReportColumn::Overhead),
            "overhead_sys" => ColumnRequest::Column(ReportColumn::Kernel),
            "overhead_us" => ColumnRequest::Column(ReportColumn::User),
            "latency" => ColumnRequest::Column(ReportColumn::Latency),
            "overhead_children" => ColumnRequest::Column(ReportColumn::Children),
            "sample" => ColumnRequest::Column(ReportColumn::Samples),
            "period" => ColumnRequest::Column(ReportColumn::Period),
            _ => match sort_key(word, trace) {
                SortKey::Key(k) => ColumnRequest::Column(ReportColumn::Key(k)),
                SortKey::Trace(n) => ColumnRequest::Trace(n),
            },
        })
        .collect()
}
