//! speedscope's own format: <https://www.speedscope.app/file-format-schema.json>.
//! Each event of each task is a profile; samples stand in the order of time where
//! that is known, equal ones that follow each other put together.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::json::text;
use crate::stacks::{StackMoment, Stacks};

/// Writes the file.
pub fn write(stacks: &Stacks, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",")?;
    write!(out, "\"exporter\":{},", text(concat!("kymo@", env!("CARGO_PKG_VERSION"))))?;
    if !stacks.title.is_empty() {
        write!(out, "\"name\":{},", text(&stacks.title))?;
    }
    write!(out, "\"shared\":{{\"frames\":[")?;
    for (number, function) in stacks.functions.iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(out, "{comma}{{\"name\":{}", text(&function.name))?;
        let binary = function.binary.and_then(|b| stacks.binaries.get(b as usize));
        // What stands for a file where there is no source.
        if let Some(file) = function.file.as_ref().or(binary.map(|b| &b.path)) {
            write!(out, ",\"file\":{}", text(file))?;
        }
        write!(out, "}}")?;
    }
    write!(out, "]}},\"profiles\":[")?;
    for (number, profile) in profiles(stacks).iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(out, "{comma}")?;
        one(stacks, profile, out)?;
    }
    writeln!(out, "]}}")
}

/// An event of a task.
struct Profile {
    task: u32,
    event: u32,
    /// Stacks and weights.
    samples: Vec<(u32, u64)>,
}

/// Those with the greatest weight first: a reader opens the first one.
fn profiles(stacks: &Stacks) -> Vec<Profile> {
    let mut profiles: Vec<Profile> = Vec::new();
    let mut known: FxHashMap<(u32, u32), usize> = FxHashMap::default();
    let mut add = |stack: u32, weight: u64| {
        let Some(s) = stacks.stacks.get(stack as usize) else { return };
        let at = *known.entry((s.task, s.event)).or_insert_with(|| {
            profiles.push(Profile { task: s.task, event: s.event, samples: Vec::new() });
            profiles.len() - 1
        });
        let Some(profile) = profiles.get_mut(at) else { return };
        match profile.samples.last_mut() {
            Some(last) if last.0 == stack => last.1 = last.1.saturating_add(weight),
            _ => profile.samples.push((stack, weight)),
        }
    };
    if stacks.moments.is_empty() {
        stacks.stacks.iter().zip(0..).for_each(|(s, number)| add(number, s.weight))
    } else {
        stacks.moments.iter().for_each(|StackMoment { stack, weight, .. }| add(*stack, *weight))
    }
    let weight = |p: &Profile| p.samples.iter().fold(0u64, |sum, s| sum.saturating_add(s.1));
    profiles.sort_by_cached_key(|p| std::cmp::Reverse(weight(p)));
    profiles
}

fn one(stacks: &Stacks, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let event = stacks.events.get(profile.event as usize);
    let unit = match event.map_or("", |e| e.unit) {
        "nanoseconds" => "nanoseconds",
        _ => "none",
    };
    let name = stacks.tasks.get(profile.task as usize).map_or(String::new(), |t| t.title());
    let name = match event {
        Some(event) if stacks.events.len() > 1 || name.is_empty() => {
            format!("{name} {}", event.name).trim_start().to_string()
        }
        _ => name,
    };
    let end = profile.samples.iter().fold(0u64, |sum, s| sum.saturating_add(s.1));
    write!(out, "{{\"type\":\"sampled\",\"name\":{},\"unit\":\"{unit}\",", text(&name))?;
    write!(out, "\"startValue\":0,\"endValue\":{end},\"samples\":[")?;
    let mut path = Vec::new();
    for (number, (stack, _)) in profile.samples.iter().enumerate() {
        path.clear();
        let node = stacks.stacks.get(*stack as usize).and_then(|s| s.node);
        path.extend(stacks.outwards(node).filter_map(|n| stacks.place(n)).map(|p| p.0.function));
        write!(out, "{}", if number == 0 { "[" } else { ",[" })?;
        for (number, function) in path.iter().rev().enumerate() {
            write!(out, "{}{function}", if number == 0 { "" } else { "," })?;
        }
        write!(out, "]")?;
    }
    write!(out, "],\"weights\":[")?;
    for (number, (_, weight)) in profile.samples.iter().enumerate() {
        write!(out, "{}{weight}", if number == 0 { "" } else { "," })?;
    }
    write!(out, "]}}")
}
