//! Terms between the slashes: `event=0x3c,umask=1,name=x`.

use kymo_model::{Attr, near_names};

use super::error::{ParseError, Reason};
use super::{EventSpec, parse};
use crate::pmu::{ConfigWord, Pmu};

/// One term and where it stands in the whole text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Term<'a> {
    pub(super) key: &'a str,
    pub(super) value: Option<&'a str>,
    pub(super) at: usize,
    pub(super) value_at: usize,
}

/// Terms that are perf's own, whatever the PMU.
const COMMON: [&str; 20] = [
    "config",
    "config1",
    "config2",
    "config3",
    "name",
    "period",
    "freq",
    "branch_type",
    "time",
    "call-graph",
    "stack-size",
    "max-stack",
    "inherit",
    "no-inherit",
    "overwrite",
    "no-overwrite",
    "percore",
    "nr",
    "aux-output",
    "aux-sample-size",
];

/// Splits at commas outside single quotes.
pub(super) fn split(text: &str, offset: usize) -> Vec<Term<'_>> {
    let mut terms = Vec::new();
    let (mut start, mut quoted) = (0, false);
    let ends = text.char_indices().chain(std::iter::once((text.len(), ',')));
    for (i, c) in ends {
        match c {
            '\'' => quoted = !quoted,
            ',' if !quoted || i == text.len() => {
                let piece = text.get(start..i).unwrap_or("");
                let lead = piece.len() - piece.trim_start().len();
                let piece = piece.trim();
                let at = offset + start + lead;
                let (key, value) = match piece.split_once('=') {
                    Some((k, v)) => (k, Some(v)),
                    None => (piece, None),
                };
                terms.push(Term { key, value, at, value_at: at + key.len() + 1 });
                start = i + 1;
            }
            _ => {}
        }
    }
    terms
}

/// Puts the terms of one event into it. `whole` is the text errors point into.
pub(super) fn apply(
    event: &mut EventSpec,
    terms: &[Term<'_>],
    pmu: Option<&Pmu>,
    whole: &str,
) -> Result<(), ParseError> {
    let ctx = Context { whole, pmu, terms };
    let mut asked = Vec::new();
    for term in terms {
        if term.key.is_empty() {
            return Err(ctx.malformed(term, "a term is missing here".into()));
        }
        if !ctx.common(event, term)? {
            ctx.of_pmu(event, term, &mut asked)?;
        }
    }
    // Parameters that an alias leaves open (`domain=?`) must have been given.
    for (alias, parameter) in asked {
        if !terms.iter().any(|t| t.key == parameter && t.value.is_some()) {
            return Err(ctx.malformed(&alias, format!("needs the parameter {parameter}=")));
        }
    }
    if event.terms.period.is_some()
        && event.terms.freq.is_some()
        && let Some(term) = terms.iter().find(|t| t.key == "freq")
    {
        return Err(ctx.malformed(term, "period and freq exclude each other".into()));
    }
    Ok(())
}

struct Context<'a> {
    whole: &'a str,
    pmu: Option<&'a Pmu>,
    terms: &'a [Term<'a>],
}

impl<'a> Context<'a> {
    fn malformed(&self, term: &Term<'_>, why: String) -> ParseError {
        let part = match term.value {
            Some(v) => format!("{}={v}", term.key),
            None => term.key.to_owned(),
        };
        parse::error(self.whole, term.at, part, Reason::Malformed(why))
    }

    fn number(&self, term: &Term<'_>) -> Result<u64, ParseError> {
        let text = term.value.unwrap_or("1");
        parse::number(text).ok_or_else(|| {
            let why = format!("the value of {} must be a number", term.key);
            parse::error(self.whole, term.value_at, text.to_owned(), Reason::Malformed(why))
        })
    }

    fn needed(&self, term: &Term<'_>) -> Result<u64, ParseError> {
        if term.value.is_none() {
            return Err(self.malformed(term, "needs a value".into()));
        }
        self.number(term)
    }

    fn narrow<T: TryFrom<u64>>(&self, term: &Term<'_>) -> Result<T, ParseError> {
        let n = self.needed(term)?;
        T::try_from(n).map_err(|_| self.malformed(term, "the value is too large".into()))
    }

    fn text(&self, term: &Term<'_>) -> Result<String, ParseError> {
        match term.value.map(|v| v.trim_matches('\'')) {
            None | Some("") => Err(self.malformed(term, "needs a value".into())),
            Some(v) => Ok(v.to_owned()),
        }
    }

    /// Takes a term of perf's own; `false` if it is none.
    fn common(&self, event: &mut EventSpec, term: &Term<'_>) -> Result<bool, ParseError> {
        let own = &mut event.terms;
        match term.key {
            "config" => event.attr.config = self.needed(term)?,
            "config1" => event.attr.config1 = self.needed(term)?,
            "config2" => event.attr.config2 = self.needed(term)?,
            "config3" => event.attr.config3 = self.needed(term)?,
            "name" => event.name = self.text(term)?,
            "period" => own.period = Some(self.needed(term)?),
            "freq" => own.freq = Some(self.needed(term)?),
            "branch_type" => own.branch_type = Some(self.text(term)?),
            "time" => match self.number(term)? {
                n @ 0..=1 => own.time = Some(n == 1),
                _ => return Err(self.malformed(term, "time must be 0 or 1".into())),
            },
            "call-graph" => own.call_graph = Some(self.text(term)?),
            "stack-size" => own.stack_size = Some(self.needed(term)?),
            "max-stack" => own.max_stack = Some(self.narrow(term)?),
            "inherit" => own.inherit = Some(self.number(term)? != 0),
            "no-inherit" => own.inherit = Some(self.number(term)? == 0),
            "overwrite" => own.overwrite = Some(self.number(term)? != 0),
            "no-overwrite" => own.overwrite = Some(self.number(term)? == 0),
            "percore" => own.percore = self.number(term)? != 0,
            "nr" => own.max_events = Some(self.needed(term)?),
            "aux-output" => own.aux_output = self.number(term)? != 0,
            "aux-sample-size" => own.aux_sample_size = Some(self.narrow(term)?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Takes a term of the PMU: a format, one of its events, a raw number.
    fn of_pmu(
        &self,
        event: &mut EventSpec,
        term: &Term<'a>,
        asked: &mut Vec<(Term<'a>, String)>,
    ) -> Result<(), ParseError> {
        let Some(pmu) = self.pmu else { return Err(self.unknown(term)) };
        if let Some(format) = pmu.format(term.key) {
            let value = self.number(term)?;
            if value > format.max() {
                let why = format!(
                    "the value does not fit {} ({format}); the maximum is {:#x}",
                    term.key,
                    format.max()
                );
                return Err(self.malformed(term, why));
            }
            let word = config_word(&mut event.attr, format.word);
            *word = format.put(*word, value);
            return Ok(());
        }
        if let Some(alias) = pmu.alias(term.key) {
            for inner in split(&alias.terms, 0) {
                self.of_alias(event, pmu, term, &inner, asked)?;
            }
            event.scale = alias.scale;
            event.unit = alias.unit;
            event.snapshot |= alias.snapshot;
            event.per_package |= alias.per_package;
            return Ok(());
        }
        if term.value.is_none()
            && let Some(Ok(config)) = parse::raw(term.key)
        {
            event.attr.config = config;
            return Ok(());
        }
        Err(self.unknown(term))
    }

    /// One term of what a PMU's event stands for. Only formats and config
    /// words occur there.
    fn of_alias(
        &self,
        event: &mut EventSpec,
        pmu: &Pmu,
        outer: &Term<'a>,
        inner: &Term<'_>,
        asked: &mut Vec<(Term<'a>, String)>,
    ) -> Result<(), ParseError> {
        if inner.value == Some("?") {
            asked.push((outer.clone(), inner.key.to_owned()));
            return Ok(());
        }
        let odd = || {
            let why = format!(
                "sysfs defines it as {}={}, which this PMU's formats do not describe",
                inner.key,
                inner.value.unwrap_or("1")
            );
            self.malformed(outer, why)
        };
        // What the user sets beside the alias wins, in whichever order.
        if self.terms.iter().any(|t| t.key == inner.key && t.value.is_some()) {
            return Ok(());
        }
        let value = parse::number(inner.value.unwrap_or("1")).ok_or_else(odd)?;
        let word = match inner.key {
            "config" => Some(ConfigWord::Config),
            "config1" => Some(ConfigWord::Config1),
            "config2" => Some(ConfigWord::Config2),
            "config3" => Some(ConfigWord::Config3),
            _ => None,
        };
        if let Some(word) = word {
            *config_word(&mut event.attr, word) = value;
            return Ok(());
        }
        match inner.key {
            "period" => event.terms.period = Some(value),
            "freq" => event.terms.freq = Some(value),
            key => {
                let format = pmu.format(key).ok_or_else(odd)?;
                if value > format.max() {
                    return Err(odd());
                }
                let word = config_word(&mut event.attr, format.word);
                *word = format.put(*word, value);
            }
        }
        Ok(())
    }

    fn unknown(&self, term: &Term<'_>) -> ParseError {
        let mut names: Vec<String> = COMMON.iter().map(|s| (*s).to_owned()).collect();
        if let Some(pmu) = self.pmu {
            names.extend(pmu.formats().into_keys());
            names.extend(pmu.alias_names());
        }
        let near = near_names(term.key, names.iter().map(String::as_str));
        let reason = Reason::UnknownTerm { pmu: self.pmu.map(|p| p.name.clone()) };
        let mut e = parse::error(self.whole, term.at, term.key.to_owned(), reason);
        e.near = near;
        e
    }
}

fn config_word(attr: &mut Attr, word: ConfigWord) -> &mut u64 {
    match word {
        ConfigWord::Config => &mut attr.config,
        ConfigWord::Config1 => &mut attr.config1,
        ConfigWord::Config2 => &mut attr.config2,
        ConfigWord::Config3 => &mut attr.config3,
    }
}
