//! What the flags of `kymo report` mean, once it is known what was recorded.

use std::path::Path;

use anyhow::{Context as _, bail};
use kymo_analysis::histogram::{ChainOrder, HistogramOptions, Key};
use kymo_analysis::profile::{EventProfile, FrameId, Profile, Stack};
use kymo_files::perfdata::EventDesc;
use kymo_model::EventType;
use regex_automata::meta::Regex;

use super::Args;
use super::fields::Field;
use super::trace::{Labels, TraceKey};

/// How call chains are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drawing {
    None,
    Graph,
    Fractal,
    Flat,
    Folded,
}

/// The flags, checked.
pub(crate) struct Meaning {
    /// `None` where the recorded events decide.
    keys: Option<Vec<Sort>>,
    fields: Option<Vec<Show>>,
    /// What is asked of payloads.
    pub(crate) trace: Vec<TraceKey>,
    pub(crate) parent: Regex,
    drawing: Option<Drawing>,
    order: Option<ChainOrder>,
    least: f64,
    children: Option<bool>,
    pub(crate) comms: Option<Vec<String>>,
    pub(crate) dsos: Option<Vec<String>>,
    pub(crate) symbols: Option<Vec<String>>,
    pub(crate) percent_limit: f64,
    nr_samples: bool,
    total_period: bool,
    pub(crate) separator: Option<String>,
    /// Inlined functions are shown in call graphs.
    pub(crate) inlines: bool,
    /// Lines are told apart in call graphs.
    pub(crate) chain_lines: bool,
    /// Whole paths of source files are shown.
    pub(crate) full_paths: bool,
    /// Only the symbol is sorted by, so that trees need not repeat it.
    pub(crate) symbol_first: bool,
}

/// How the samples of one event are shown.
pub(crate) struct Shape {
    /// Number of the event.
    pub(crate) event: usize,
    pub(crate) histogram: HistogramOptions,
    pub(crate) drawing: Drawing,
    /// Least share of a branch, in percent.
    pub(crate) least: f64,
    pub(crate) fields: Vec<Field>,
}

fn list(text: &Option<String>) -> Option<Vec<String>> {
    text.as_ref().map(|t| t.split(',').map(|s| s.trim().to_string()).collect())
}

fn key(word: &str) -> Option<Key> {
    Some(match word {
        "comm" => Key::Comm,
        "dso" => Key::Dso,
        "sym" | "symbol" => Key::Symbol,
        // perf's key `pid` tells threads apart and prints their numbers.
        "pid" | "tid" => Key::Tid,
        "tgid" => Key::Pid,
        "cpu" => Key::Cpu,
        "parent" => Key::Parent,
        "srcline" => Key::Srcline,
        "srcfile" => Key::Srcfile,
        _ => return None,
    })
}

const USUAL: [Sort; 3] = [Sort::Key(Key::Comm), Sort::Key(Key::Dso), Sort::Key(Key::Symbol)];
const KEYS: &str = "comm, dso, sym, pid, tgid, cpu, parent, srcline, srcfile";

/// A sort key: of samples, or by number of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Key(Key),
    Trace(usize),
}

/// A column as it is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    Field(Field),
    Trace(usize),
}

fn sort_key(word: &str, trace: &mut Vec<TraceKey>) -> Sort {
    if let Some(key) = key(word) {
        return Sort::Key(key);
    }
    let wanted = TraceKey::parse(word);
    let known = trace.iter().position(|t| *t == wanted);
    Sort::Trace(known.unwrap_or_else(|| {
        trace.push(wanted);
        trace.len() - 1
    }))
}

/// The callers that the key `parent` names unless others are asked for.
pub(crate) const PARENT: &str = "^sys_|^do_page_fault";

impl Meaning {
    pub(crate) fn of(args: &Args) -> anyhow::Result<Meaning> {
        let mut trace = Vec::new();
        let fields = args.fields.as_ref().map(|text| parse_fields(text, &mut trace));
        let mut keys: Option<Vec<Sort>> = match (&args.sort, &fields) {
            (Some(text), _) => {
                let words = text.split(',').map(str::trim).filter(|w| *w != "overhead");
                Some(words.map(|w| sort_key(w, &mut trace)).collect())
            }
            (None, Some(fields)) => Some(
                fields
                    .iter()
                    .filter_map(|f| match f {
                        Show::Field(Field::Key(k)) => Some(Sort::Key(*k)),
                        Show::Trace(n) => Some(Sort::Trace(*n)),
                        Show::Field(_) => None,
                    })
                    .collect(),
            ),
            (None, None) => None,
        };
        if args.parent.is_some() {
            keys.get_or_insert_with(|| USUAL.to_vec()).push(Sort::Key(Key::Parent));
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
        let pattern = args.parent.as_deref().unwrap_or(PARENT);
        let parent = Regex::new(pattern).with_context(|| format!("--parent {pattern}"))?;
        let mut meant = Meaning {
            symbol_first: args.sort.as_ref().is_some_and(|s| s.starts_with("sym")),
            keys,
            fields,
            trace,
            parent,
            inlines: !args.no_inline,
            chain_lines: false,
            full_paths: args.full_source_path,
            drawing: None,
            order: None,
            // As in perf, until the graph's own limit is stated.
            least: args.percent_limit.unwrap_or(0.5),
            children: match (args.children, args.no_children) {
                (_, true) => Some(false),
                (true, false) => Some(true),
                _ => None,
            },
            comms: list(&args.comms),
            dsos: list(&args.dsos),
            symbols: list(&args.symbols),
            percent_limit: args.percent_limit.unwrap_or(0.0),
            nr_samples: args.show_nr_samples,
            total_period: args.show_total_period,
            separator: args.field_separator.clone(),
        };
        meant.call_graph(args.call_graph.as_deref())?;
        Ok(meant)
    }

    fn call_graph(&mut self, spec: Option<&str>) -> anyhow::Result<()> {
        for word in spec.unwrap_or_default().split(',').filter(|w| !w.is_empty()) {
            match word {
                "none" => self.drawing = Some(Drawing::None),
                "graph" => self.drawing = Some(Drawing::Graph),
                "fractal" => self.drawing = Some(Drawing::Fractal),
                "flat" => self.drawing = Some(Drawing::Flat),
                "folded" => self.drawing = Some(Drawing::Folded),
                "caller" => self.order = Some(ChainOrder::Caller),
                "callee" => self.order = Some(ChainOrder::Callee),
                "function" | "percent" => {}
                "srcline" => self.chain_lines = true,
                number => match number.parse::<f64>() {
                    Ok(n) if n.is_finite() && n >= 0.0 => self.least = n,
                    _ if Path::new(number).exists() => bail!(
                        "`{number}` is no call graph option: name the recording with -i, or \
                         before -g"
                    ),
                    _ => bail!(
                        "unknown call graph option `{number}`: there are none, graph, fractal, \
                         flat, folded, caller, callee, srcline and a least percentage"
                    ),
                },
            }
        }
        Ok(())
    }

    /// Settles what the recorded events decide: without keys, tracepoints
    /// alone are told apart by their text.
    pub(crate) fn settle(&mut self, events: &[EventDesc]) {
        let only = events.iter().all(|e| e.attr.kind == EventType::TRACEPOINT);
        if self.keys.is_none() && only && !events.is_empty() {
            self.keys = Some(vec![sort_key("trace", &mut self.trace)]);
        }
    }

    /// Names of keys that no event has.
    pub(crate) fn check(&self, labels: &Labels, any: bool) -> anyhow::Result<()> {
        let unknown = |(i, _): &(usize, &TraceKey)| any && !labels.known(*i);
        for (_, key) in self.trace.iter().enumerate().filter(unknown) {
            if let TraceKey::Fields { event, name } = key {
                let event = event.as_ref().map_or(String::new(), |e| format!("{e}."));
                let name = name.as_deref().unwrap_or("*");
                bail!(
                    "unknown sort key `{event}{name}`: there are {KEYS}, trace, trace_fields, \
                     and fields of the recorded tracepoints"
                );
            }
        }
        Ok(())
    }

    pub(crate) fn has(&self, key: Key) -> bool {
        self.keys.as_deref().unwrap_or(&USUAL).contains(&Sort::Key(key))
    }

    /// Whether lines make a difference.
    pub(crate) fn needs_lines(&self) -> bool {
        self.chain_lines || self.has(Key::Srcline) || self.has(Key::Srcfile)
    }

    /// What frames of call graphs that are drawn as one have in common.
    pub(crate) fn same(&self, profile: &Profile, frame: FrameId) -> (u64, u64) {
        match self.needs_lines() && !self.chain_lines {
            true => profile.without_line(frame),
            false => (u64::from(frame.0), 0),
        }
    }

    /// What a frame is called in a call graph.
    pub(crate) fn frame_name(&self, profile: &Profile, id: FrameId) -> String {
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
    pub(crate) fn needs_no_chains(&self) -> bool {
        self.drawing == Some(Drawing::None)
            && self.children == Some(false)
            && !self.has(Key::Parent)
    }

    /// Whether no flag leaves stacks out.
    pub(crate) fn wants_all(&self) -> bool {
        self.comms.is_none() && self.dsos.is_none() && self.symbols.is_none()
    }

    /// Whether a stack is to be shown. As in perf, filters are about the place
    /// where the processor was, not about its callers.
    pub(crate) fn wants(&self, profile: &Profile, stack: &Stack) -> bool {
        let among = |list: &Option<Vec<String>>, name: &dyn Fn() -> String| {
            list.as_ref().is_none_or(|l| l.contains(&name()))
        };
        let frame = profile.frame(stack.leaf);
        let symbols = &profile.machine.symbols;
        among(&self.comms, &|| profile.machine.comm(stack.comm).to_string())
            && among(&self.dsos, &|| symbols.dso_name(frame.dso).to_string())
            && among(&self.symbols, &|| match frame.symbol {
                Some(s) => symbols.name(s).to_string(),
                None => format!("{:#018x}", frame.addr),
            })
    }

    /// What this means for an event.
    pub(crate) fn shape(&self, number: usize, event: &EventProfile, labels: &Labels) -> Shape {
        let (chains, period) = (event.has_chains(), event.period);
        let mut keys: Vec<Key> = Vec::new();
        for key in self.keys.as_deref().unwrap_or(&USUAL) {
            match key {
                Sort::Key(k) => keys.push(*k),
                Sort::Trace(n) => keys.extend(labels.keys_of(number, *n)),
            }
        }
        let parts = keys.iter().filter_map(|k| match k {
            Key::Label(part) => Some(*part),
            _ => None,
        });
        let orders =
            parts.max().map(|last| (0..=last).map(|part| labels.order(number, part)).collect());
        let asked = |f: &Vec<Show>| !f.contains(&Show::Field(Field::Children));
        let children = chains && self.children.unwrap_or(!self.fields.as_ref().is_some_and(asked));
        let drawing = match chains {
            true => self.drawing.unwrap_or(Drawing::Graph),
            false => Drawing::None,
        };
        let default = if children { ChainOrder::Caller } else { ChainOrder::Callee };
        let order = self.order.unwrap_or(default);
        let mut fields = Vec::new();
        match &self.fields {
            Some(asked) => {
                for show in asked {
                    match show {
                        Show::Field(f) => fields.push(*f),
                        Show::Trace(n) => {
                            fields.extend(labels.keys_of(number, *n).into_iter().map(Field::Key));
                        }
                    }
                }
            }
            None => {
                match children {
                    true => fields.extend([Field::Children, Field::Own]),
                    false => fields.push(Field::Overhead),
                }
                fields.extend(self.nr_samples.then_some(Field::Samples));
                fields.extend(self.total_period.then_some(Field::Period));
                fields.extend(keys.iter().map(|k| Field::Key(*k)));
            }
        }
        let hidden = |f: &Field| match f {
            Field::Key(Key::Comm) => self.comms.as_ref().is_some_and(|l| l.len() == 1),
            Field::Key(Key::Dso) => self.dsos.as_ref().is_some_and(|l| l.len() == 1),
            Field::Key(Key::Symbol) => self.symbols.as_ref().is_some_and(|l| l.len() == 1),
            _ => false,
        };
        // A table without any key would say nothing.
        let is_key = |f: &&Field| matches!(f, Field::Key(_));
        let keep_all = fields.iter().filter(is_key).all(hidden);
        Shape {
            event: number,
            histogram: HistogramOptions {
                keys,
                labels: orders,
                children,
                chains: match drawing {
                    Drawing::None => None,
                    // Every tree has its own 100 %.
                    Drawing::Fractal => Some(0),
                    _ => Some((period as f64 * (self.least / 100.0)) as u64),
                },
                order,
            },
            drawing,
            least: self.least,
            fields: fields.into_iter().filter(|f| keep_all || !hidden(f)).collect(),
        }
    }
}

fn parse_fields(text: &str, trace: &mut Vec<TraceKey>) -> Vec<Show> {
    let words = text.split(',').map(str::trim);
    words
        .map(|word| match word {
            "overhead" => Show::Field(Field::Overhead),
            "overhead_children" => Show::Field(Field::Children),
            "sample" => Show::Field(Field::Samples),
            "period" => Show::Field(Field::Period),
            _ => match sort_key(word, trace) {
                Sort::Key(k) => Show::Field(Field::Key(k)),
                Sort::Trace(n) => Show::Trace(n),
            },
        })
        .collect()
}
