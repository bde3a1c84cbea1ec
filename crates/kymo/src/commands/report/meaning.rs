//! What the flags of `kymo report` mean, once it is known what was recorded.

use anyhow::bail;
use kymo_analysis::histogram::{ChainOrder, HistogramOptions, Key};

use super::Args;
use super::fields::Field;

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
    pub(crate) keys: Vec<Key>,
    fields: Option<Vec<Field>>,
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
    /// Only the symbol is sorted by, so that trees need not repeat it.
    pub(crate) symbol_first: bool,
}

/// How the samples of one event are shown.
pub(crate) struct Shape {
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
        "pid" => Key::Pid,
        "tid" => Key::Tid,
        "cpu" => Key::Cpu,
        "parent" => Key::Parent,
        _ => return None,
    })
}

const KEYS: &str = "comm, dso, sym, pid, tid, cpu, parent";

impl Meaning {
    pub(crate) fn of(args: &Args) -> anyhow::Result<Meaning> {
        let fields = match &args.fields {
            Some(text) => Some(parse_fields(text)?),
            None => None,
        };
        let mut keys = Vec::new();
        match (&args.sort, &fields) {
            (Some(text), _) => {
                for word in text.split(',').map(str::trim).filter(|w| *w != "overhead") {
                    match key(word) {
                        Some(k) if !keys.contains(&k) => keys.push(k),
                        Some(_) => {}
                        None => bail!("unknown sort key `{word}`: there are {KEYS}"),
                    }
                }
            }
            (None, Some(fields)) => {
                for f in fields {
                    if let Field::Key(k) = f
                        && !keys.contains(k)
                    {
                        keys.push(*k);
                    }
                }
            }
            (None, None) => keys = vec![Key::Comm, Key::Dso, Key::Symbol],
        }
        let mut meant = Meaning {
            symbol_first: args.sort.as_ref().is_some_and(|s| s.starts_with("sym")),
            keys,
            fields,
            drawing: None,
            order: None,
            least: 0.5,
            children: match (args.children, args.no_children) {
                (_, true) => Some(false),
                (true, false) => Some(true),
                _ => None,
            },
            comms: list(&args.comms),
            dsos: list(&args.dsos),
            symbols: list(&args.symbols),
            percent_limit: args.percent_limit,
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
                number => match number.parse::<f64>() {
                    Ok(n) if n.is_finite() && n >= 0.0 => self.least = n,
                    _ => bail!(
                        "unknown call graph option `{number}`: there are none, graph, fractal, \
                         flat, folded, caller, callee and a least percentage"
                    ),
                },
            }
        }
        Ok(())
    }

    /// Call chains need not even be looked at.
    pub(crate) fn needs_no_chains(&self) -> bool {
        self.drawing == Some(Drawing::None)
            && self.children == Some(false)
            && !self.keys.contains(&Key::Parent)
    }

    /// What this means for an event with or without call chains and a sum of
    /// periods.
    pub(crate) fn shape(&self, chains: bool, period: u64) -> Shape {
        let children = chains
            && self
                .children
                .unwrap_or(!matches!(self.fields, Some(ref f) if !f.contains(&Field::Children)));
        let drawing = match chains {
            true => self.drawing.unwrap_or(Drawing::Graph),
            false => Drawing::None,
        };
        let default = if children { ChainOrder::Caller } else { ChainOrder::Callee };
        let order = self.order.unwrap_or(default);
        let fields = self.fields.clone().unwrap_or_else(|| {
            let mut fields = match children {
                true => vec![Field::Children, Field::Own],
                false => vec![Field::Overhead],
            };
            fields.extend(self.nr_samples.then_some(Field::Samples));
            fields.extend(self.total_period.then_some(Field::Period));
            fields.extend(self.keys.iter().map(|k| Field::Key(*k)));
            fields
        });
        let hidden = |f: &Field| match f {
            Field::Key(Key::Comm) => self.comms.as_ref().is_some_and(|l| l.len() == 1),
            Field::Key(Key::Dso) => self.dsos.as_ref().is_some_and(|l| l.len() == 1),
            Field::Key(Key::Symbol) => self.symbols.as_ref().is_some_and(|l| l.len() == 1),
            _ => false,
        };
        Shape {
            histogram: HistogramOptions {
                keys: self.keys.clone(),
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
            fields: fields.into_iter().filter(|f| !hidden(f)).collect(),
        }
    }
}

fn parse_fields(text: &str) -> anyhow::Result<Vec<Field>> {
    text.split(',')
        .map(str::trim)
        .map(|word| match word {
            "overhead" => Ok(Field::Overhead),
            "overhead_children" => Ok(Field::Children),
            "sample" => Ok(Field::Samples),
            "period" => Ok(Field::Period),
            _ => match key(word) {
                Some(k) => Ok(Field::Key(k)),
                None => bail!(
                    "unknown field `{word}`: there are overhead, overhead_children, sample, \
                     period, {KEYS}"
                ),
            },
        })
        .collect()
}
