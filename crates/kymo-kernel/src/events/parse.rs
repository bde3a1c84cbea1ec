//! The grammar of one `-e` argument: lists, groups, and which kind of event a
//! name is.
//!
//! ```text
//! list   = item {"," item}
//! item   = [name] "{" list "}" [":" modifiers]  |  event
//! event  = fixed [":" modifiers]                  cycles:u  LLC-loads  r1a8
//!        | fixed "/" terms "/" [modifiers]        cs/period=3/u
//!        | pmu "/" [terms] "/" [modifiers]        cpu/event=0x3c,umask=1/k
//!        | alias [":" modifiers]                  an event that a PMU names
//!        | "mem:" addr ["/" len] [":" rwx] [":" modifiers]
//!        | "vmstat:" glob
//!        | system ":" name [":" modifiers]        tracepoints; both may be globs
//!        | system ":" name "/" terms "/" [modifiers]
//! ```

use kymo_model::{AttrFlags, EventType};

use super::catalog::Catalog;
use super::error::{ParseError, Reason};
use super::{CounterSource, EventSpec, modifiers, terms};
use crate::tracefs::TracefsError;

/// No argument names more events than this; `*:*` gives about 2,300.
const MOST_EVENTS: usize = 1 << 16;

pub(super) fn error(text: &str, at: usize, part: impl Into<String>, reason: Reason) -> ParseError {
    ParseError { text: text.to_owned(), at, part: part.into(), reason, near: Vec::new() }
}

/// A decimal number, or hexadecimal after `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u64::from_str_radix(hex, 16).ok()
        }
        Some(_) => None,
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

/// `rNNN` in hexadecimal; `None` if the word is something else.
pub(super) fn raw(word: &str) -> Option<Result<u64, String>> {
    let digits = word.strip_prefix('r')?;
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    Some(
        u64::from_str_radix(digits, 16)
            .map_err(|_| "a raw event has at most 16 hexadecimal digits".to_owned()),
    )
}

pub(super) fn parse(catalog: &Catalog, text: &str) -> Result<Vec<EventSpec>, ParseError> {
    let mut parser = Parser { catalog, text, pos: 0, out: Vec::new(), group: None };
    parser.list()?;
    Ok(parser.out)
}

struct Parser<'a> {
    catalog: &'a Catalog,
    text: &'a str,
    pos: usize,
    out: Vec<EventSpec>,
    /// Number, start in `out` and place of the opening brace of the open group.
    group: Option<(u32, usize, usize)>,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        self.text.get(self.pos..).unwrap_or("")
    }

    fn skip_space(&mut self) {
        self.pos += self.rest().len() - self.rest().trim_start().len();
    }

    fn malformed(&self, at: usize, part: &str, why: impl Into<String>) -> ParseError {
        error(self.text, at, part, Reason::Malformed(why.into()))
    }

    /// A piece of the text, with where it starts.
    fn slice(&self, from: usize, to: usize) -> &'a str {
        self.text.get(from..to).unwrap_or("")
    }

    fn list(&mut self) -> Result<(), ParseError> {
        loop {
            self.skip_space();
            self.item()?;
            self.skip_space();
            if self.group.is_some() && self.rest().starts_with('}') {
                self.close()?;
                self.skip_space();
            }
            match (self.rest().chars().next(), self.group) {
                (None, None) => return Ok(()),
                (None, Some((_, _, at))) => {
                    return Err(self.malformed(at, "{", "the group is not closed with '}'"));
                }
                (Some(','), _) => self.pos += 1,
                (Some(c), _) => {
                    let why = if c == '}' { "no group is open" } else { "not expected here" };
                    return Err(self.malformed(self.pos, &c.to_string(), why));
                }
            }
        }
    }

    fn item(&mut self) -> Result<(), ParseError> {
        let start = self.pos;
        let end = self.event_end()?;
        let word = self.slice(start, end);
        self.pos = end;
        if self.rest().starts_with('{') {
            // perf lets a group have a name, which means nothing.
            if self.group.is_some() {
                return Err(self.malformed(end, "{", "a group cannot hold a group"));
            }
            self.pos += 1;
            self.group = Some((self.catalog.new_group(), self.out.len(), end));
            self.skip_space();
            return self.item();
        }
        let word = word.trim_end();
        if word.is_empty() {
            return Err(self.malformed(start, "", "an event name is missing"));
        }
        let from = self.out.len();
        self.event(word, start)?;
        if self.out.len() > MOST_EVENTS {
            return Err(self.malformed(start, word, "matches more than 65,536 events"));
        }
        if let Some((number, first, _)) = self.group {
            let leads = from == first;
            for (i, event) in self.out.iter_mut().enumerate().skip(from) {
                event.group = Some(number);
                if !leads || i > from {
                    // These two concern the group as a whole: only its leader has them.
                    event.attr.flags &= !(AttrFlags::PINNED | AttrFlags::EXCLUSIVE);
                }
            }
        }
        Ok(())
    }

    /// Takes the closing brace and the group's modifiers.
    fn close(&mut self) -> Result<(), ParseError> {
        self.pos += 1;
        let Some((_, first, _)) = self.group.take() else { return Ok(()) };
        self.skip_space();
        let Some(after) = self.rest().strip_prefix(':') else { return Ok(()) };
        let start = self.pos + 1;
        let len = after.find([',', '{', '}']).unwrap_or(after.len());
        let text = self.slice(start, start + len).trim_end();
        self.check_modifiers(text, start)?;
        for (i, event) in self.out.iter_mut().enumerate().skip(first) {
            modifiers::apply(event, text, true, i == first);
        }
        self.pos = start + len;
        Ok(())
    }

    fn check_modifiers(&self, text: &str, at: usize) -> Result<(), ParseError> {
        if text.is_empty() {
            return Err(self.malformed(at, "", "modifiers are missing after the colon"));
        }
        modifiers::check(text).map_err(|(offset, wrong)| {
            let part: String = text.get(offset..).unwrap_or("").chars().take(1).collect();
            error(self.text, at + offset, part, Reason::Malformed(wrong.to_string()))
        })
    }

    /// End of the event that starts here: commas between slashes are its own.
    fn event_end(&self) -> Result<usize, ParseError> {
        let memory = self.rest().starts_with("mem:");
        let (mut slash, mut quoted) = (None, false);
        for (i, c) in self.rest().char_indices() {
            match c {
                '/' if !memory && !quoted => slash = if slash.is_some() { None } else { Some(i) },
                '\'' if slash.is_some() => quoted = !quoted,
                ',' | '{' | '}' if slash.is_none() => return Ok(self.pos + i),
                _ => {}
            }
        }
        match slash {
            Some(i) => Err(self.malformed(self.pos + i, "/", "the terms are not closed with '/'")),
            None => Ok(self.text.len()),
        }
    }

    /// One event: `word` stands at `at`.
    fn event(&mut self, word: &'a str, at: usize) -> Result<(), ParseError> {
        if word.starts_with("mem:") {
            return self.breakpoint(word, at);
        }
        if let Some(slash) = word.find('/') {
            return self.with_terms(word, at, slash);
        }
        if let Some(mut events) = self.without_terms(word, word, at)? {
            self.out.append(&mut events);
            return Ok(());
        }
        let Some((left, right)) = word.split_once(':') else {
            return Err(self.unknown(word, at));
        };
        if let Some(mut events) = self.without_terms(left, word, at)? {
            self.check_modifiers(right, at + left.len() + 1)?;
            for event in &mut events {
                modifiers::apply(event, right, false, true);
            }
            self.out.append(&mut events);
            return Ok(());
        }
        if left == "vmstat" {
            return self.vmstat(right, word, at);
        }
        let (name, mods) = match right.split_once(':') {
            Some((name, mods)) => (name, Some(mods)),
            None => (right, None),
        };
        let part = self.slice(at, at + left.len() + 1 + name.len());
        let mut events = self.tracepoints(left, name, part, at)?;
        if let Some(mods) = mods {
            self.check_modifiers(mods, at + part.len() + 1)?;
            for event in &mut events {
                modifiers::apply(event, mods, false, true);
            }
        }
        self.out.append(&mut events);
        Ok(())
    }

    /// A fixed name, or a name that PMUs in sysfs give to one of their events.
    /// The event's own name is `whole`.
    fn without_terms(
        &self,
        word: &str,
        whole: &str,
        at: usize,
    ) -> Result<Option<Vec<EventSpec>>, ParseError> {
        match self.catalog.fixed(word) {
            Some(Ok(mut event)) => {
                // perf names cache events without their modifiers.
                if event.attr.kind != EventType::HW_CACHE {
                    whole.clone_into(&mut event.name);
                }
                return Ok(Some(self.per_core_kind(event, word)));
            }
            Some(Err(why)) => return Err(self.malformed(at, word, why)),
            None => {}
        }
        if word.is_empty() || word.contains([':', '*', '?']) {
            return Ok(None);
        }
        let mut events = Vec::new();
        for pmu in self.catalog.pmus().iter().filter(|p| p.alias(word).is_some()) {
            let mut event = of_pmu(pmu, whole);
            terms::apply(&mut event, &terms::split(word, at), Some(pmu), self.text)?;
            events.push(event);
        }
        Ok((!events.is_empty()).then_some(events))
    }

    /// On a machine with several kinds of core, one event for each kind: the
    /// upper half of `config` names the PMU. Its name is perf's, `cpu_core/cycles/`.
    fn per_core_kind(&self, event: EventSpec, base: &str) -> Vec<EventSpec> {
        let raw = event.attr.kind == EventType::RAW;
        if !raw && !matches!(event.attr.kind, EventType::HARDWARE | EventType::HW_CACHE) {
            return vec![event];
        }
        let pmus = self.catalog.pmus().hybrid();
        if pmus.is_empty() {
            return vec![event];
        }
        let named = event.name != base && !event.name.starts_with(&format!("{base}/"));
        pmus.into_iter()
            .map(|pmu| {
                let mut event = event.clone();
                if raw {
                    event.attr.kind = EventType(pmu.kind);
                } else {
                    event.attr.config |= u64::from(pmu.kind) << 32;
                }
                if let Some(mods) = event.name.strip_prefix(&format!("{base}:")) {
                    event.name = format!("{}/{base}/{mods}", pmu.name);
                } else if !named {
                    event.name = format!("{}/{base}/", pmu.name);
                }
                event.cpus = pmu.cpus();
                event.pmu = Some(pmu.name.clone());
                event
            })
            .collect()
    }

    /// `base/terms/modifiers`; `slash` is the first slash's place in `word`.
    fn with_terms(&mut self, word: &'a str, at: usize, slash: usize) -> Result<(), ParseError> {
        let base = word.get(..slash).unwrap_or("");
        let after = word.get(slash + 1..).unwrap_or("");
        let Some(close) = closing_slash(after) else {
            return Err(self.malformed(at + slash, "/", "the terms are not closed with '/'"));
        };
        let inner = after.get(..close).unwrap_or("");
        let terms_at = at + slash + 1;
        let tail = after.get(close + 1..).unwrap_or("");
        let (mods, mods_at) = match tail.strip_prefix(':') {
            Some(mods) => (mods, terms_at + close + 2),
            None => (tail, terms_at + close + 1),
        };
        if !tail.is_empty() {
            self.check_modifiers(mods, mods_at)?;
        }
        let list = if inner.trim().is_empty() { Vec::new() } else { terms::split(inner, terms_at) };

        let mut events = Vec::new();
        match self.catalog.fixed(base) {
            Some(Ok(mut event)) => {
                word.clone_into(&mut event.name);
                terms::apply(&mut event, &list, None, self.text)?;
                events = self.per_core_kind(event, base);
            }
            Some(Err(why)) => return Err(self.malformed(at, base, why)),
            None => {
                for pmu in self.catalog.pmus().matching(base) {
                    let mut event = of_pmu(pmu, word);
                    terms::apply(&mut event, &list, Some(pmu), self.text)?;
                    events.push(event);
                }
            }
        }
        if events.is_empty()
            && let Some((system, name)) = base.split_once(':')
        {
            events = self.tracepoints(system, name, base, at)?;
            for event in &mut events {
                terms::apply(event, &list, None, self.text)?;
            }
        }
        if events.is_empty() {
            let pmus = self.catalog.pmus();
            let mut e = error(self.text, at, base, Reason::UnknownPmu);
            e.near = kymo_model::near_names(base, pmus.iter().map(|p| p.name.as_str()));
            return Err(e);
        }
        for event in &mut events {
            modifiers::apply(event, mods, false, true);
        }
        self.out.append(&mut events);
        Ok(())
    }

    /// `mem:ADDR[/LEN][:rwx][:modifiers]`.
    fn breakpoint(&mut self, word: &str, at: usize) -> Result<(), ParseError> {
        let body = word.get(4..).unwrap_or("");
        let mut parts = body.split(':');
        let place = parts.next().unwrap_or("");
        let (addr, len) = match place.split_once('/') {
            Some((a, l)) => (a, Some(l)),
            None => (place, None),
        };
        let here = at + 4;
        let Some(address) = number(addr).filter(|_| !addr.is_empty()) else {
            let why = "the address of a breakpoint must be a number, as in mem:0x1000/4:rw";
            return Err(self.malformed(here, addr, why));
        };
        let rest: Vec<&str> = parts.collect();
        let (access, mods) = match rest.as_slice() {
            [] => (None, None),
            [one] if is_access(one) => (Some(*one), None),
            [one] => (None, Some(*one)),
            [access, mods] => (Some(*access), Some(*mods)),
            _ => return Err(self.malformed(at, word, "a breakpoint has at most three parts")),
        };
        let mut bp_type = 0;
        let access_at = here + place.len() + 1;
        for (i, c) in access.unwrap_or("rw").char_indices() {
            let bit = match c {
                'r' => 1,
                'w' => 2,
                'x' => 4,
                _ => {
                    let why = "breakpoint access is any of r, w and x";
                    return Err(self.malformed(access_at + i, &c.to_string(), why));
                }
            };
            if bp_type & bit != 0 {
                let why = "breakpoint access is given twice";
                return Err(self.malformed(access_at + i, &c.to_string(), why));
            }
            bp_type |= bit;
        }
        let bp_len = match len {
            // A watch on execution covers a long, one on data four bytes; so in perf.
            None if bp_type == 4 => size_of::<usize>() as u64,
            None => 4,
            Some(l) => match number(l) {
                Some(n @ 1..=8) => n,
                _ => {
                    let why = "the length of a breakpoint must be 1 to 8";
                    return Err(self.malformed(here + addr.len() + 1, l, why));
                }
            },
        };
        let mut event = EventSpec::legacy(word, EventType::BREAKPOINT, 0);
        event.attr.bp_type = bp_type;
        event.attr.config1 = address;
        event.attr.config2 = bp_len;
        event.attr.sample_period = 1;
        if let Some(mods) = mods {
            self.check_modifiers(mods, at + word.len() - mods.len())?;
            modifiers::apply(&mut event, mods, false, true);
        }
        self.out.push(event);
        Ok(())
    }

    fn vmstat(&mut self, name: &str, word: &str, at: usize) -> Result<(), ParseError> {
        let names = self.catalog.vmstat_names();
        let glob = self.glob(name, at + "vmstat:".len())?;
        let before = self.out.len();
        for counter in names.iter().filter(|n| glob.as_ref().map_or(*n == name, |g| g.is_match(n)))
        {
            let source = CounterSource::Vmstat(counter.clone());
            self.out.push(EventSpec::other(&format!("vmstat:{counter}"), source));
        }
        if self.out.len() > before {
            return Ok(());
        }
        if names.is_empty() {
            return Err(self.malformed(at, word, "/proc/vmstat cannot be read"));
        }
        let reason = if glob.is_some() { Reason::NothingMatches } else { Reason::UnknownEvent };
        let mut e = error(self.text, at, word, reason);
        let near = kymo_model::near_names(name, names.iter().map(String::as_str));
        e.near = near.iter().map(|n| format!("vmstat:{n}")).collect();
        Err(e)
    }

    /// A matcher if the text is a glob.
    fn glob(&self, text: &str, at: usize) -> Result<Option<globset::GlobMatcher>, ParseError> {
        if !text.contains(['*', '?', '[']) {
            return Ok(None);
        }
        match globset::Glob::new(text) {
            Ok(glob) => Ok(Some(glob.compile_matcher())),
            Err(e) => Err(self.malformed(at, text, format!("bad glob: {}", e.kind()))),
        }
    }

    /// Tracepoints by name or glob. A glob for the system leaves the `ftrace`
    /// system out, whose entries are record formats of the tracers, not places
    /// in the kernel; written out it is taken.
    fn tracepoints(
        &self,
        system: &str,
        name: &str,
        part: &str,
        at: usize,
    ) -> Result<Vec<EventSpec>, ParseError> {
        if system.is_empty() || name.is_empty() {
            return Err(self.malformed(at, part, "a tracepoint has the form SYSTEM:NAME"));
        }
        let (systems, names) = (self.glob(system, at)?, self.glob(name, at + system.len() + 1)?);
        let fail = |e| error(self.text, at, part, Reason::Tracefs(Box::new(e)));
        let tracefs = self.catalog.tracefs().map_err(fail)?;
        if systems.is_none() && names.is_none() {
            return match tracefs.event_id(system, name) {
                Ok(id) => Ok(vec![tracepoint(system, name, id)]),
                Err(TracefsError::NoEvent { .. }) => Err(self.unknown(part, at)),
                Err(e) => Err(fail(e)),
            };
        }
        let chosen: Vec<String> = match &systems {
            Some(glob) => tracefs
                .systems()
                .map_err(fail)?
                .into_iter()
                .filter(|s| s != "ftrace" && glob.is_match(s))
                .collect(),
            None => vec![system.to_owned()],
        };
        let mut events = Vec::new();
        for system in &chosen {
            let list = match tracefs.events(system) {
                Ok(list) => list,
                Err(e @ TracefsError::Denied { .. }) => return Err(fail(e)),
                Err(_) => continue,
            };
            for event in &list {
                if names.as_ref().map_or(event == name, |g| g.is_match(event))
                    && let Ok(id) = tracefs.event_id(system, event)
                {
                    events.push(tracepoint(system, event, id));
                }
            }
        }
        if events.is_empty() {
            let mut e = error(self.text, at, part, Reason::NothingMatches);
            e.near = self.catalog.near(part);
            return Err(e);
        }
        Ok(events)
    }

    /// The error for a name that is nothing; if tracepoints could not be
    /// looked up, the error says that.
    fn unknown(&self, word: &str, at: usize) -> ParseError {
        let reason = match (word.contains(':'), self.catalog.tracefs()) {
            (true, Err(e)) => Reason::Tracefs(Box::new(e)),
            _ => Reason::UnknownEvent,
        };
        let mut e = error(self.text, at, word, reason);
        e.near = self.catalog.near(word);
        // `cyclse:u` is a misspelt event with a modifier, not a tracepoint.
        if e.near.is_empty()
            && let Some((left, right)) = word.split_once(':')
            && modifiers::is_modifier_text(right)
        {
            e.near = self.catalog.near(left);
            if !e.near.is_empty() {
                (e.part, e.reason) = (left.to_owned(), Reason::UnknownEvent);
            }
        }
        e
    }
}

fn is_access(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| matches!(b, b'r' | b'w' | b'x'))
}

/// Position of the slash that ends the terms, ignoring those in quoted values.
fn closing_slash(text: &str) -> Option<usize> {
    let mut quoted = false;
    text.char_indices().find_map(|(i, c)| {
        quoted ^= c == '\'';
        (c == '/' && !quoted).then_some(i)
    })
}

fn of_pmu(pmu: &crate::pmu::Pmu, name: &str) -> EventSpec {
    let mut event = EventSpec::legacy(name, EventType(pmu.kind), 0);
    event.cpus = pmu.cpus();
    event.pmu = Some(pmu.name.clone());
    event
}

fn tracepoint(system: &str, name: &str, id: u64) -> EventSpec {
    let mut event = EventSpec::legacy(&format!("{system}:{name}"), EventType::TRACEPOINT, id);
    event.attr.sample_period = 1;
    event.tracepoint = Some((system.to_owned(), name.to_owned()));
    event
}
