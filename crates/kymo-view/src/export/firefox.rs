//! The Firefox Profiler's processed profile, version 55, which every later version
//! of <https://profiler.firefox.com> reads. It is in `docs-developer` of
//! github.com/firefox-devtools/profiler.
//!
//! Each thread has tables of its own: texts, functions, frames, stacks, samples.
//! They are made and written thread by thread.

use std::io::{self, Write};

use rustc_hash::FxHashMap;

use super::json::{column, or_null, text};
use crate::stacks::{StackMoment, StackTask, Stacks};

const VERSION: u32 = 55;
/// Resources that are libraries.
const LIBRARY: u32 = 1;
/// Numbers of the categories below.
const USER: u32 = 1;
const KERNEL: u32 = 2;

/// Writes the profile.
pub fn write(stacks: &Stacks, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{{")?;
    meta(stacks, out)?;
    libraries(stacks, out)?;
    write!(out, "\"pages\":[],\"profilerOverhead\":[],\"counters\":[],\"threads\":[")?;
    let start = stacks.span.map_or(0, |s| s.0);
    for (number, thread) in threads(stacks).into_iter().enumerate() {
        write!(out, "{}", if number == 0 { "" } else { "," })?;
        Thread::default().write(stacks, &thread, start, out)?;
    }
    writeln!(out, "]}}")
}

fn meta(stacks: &Stacks, out: &mut dyn Write) -> io::Result<()> {
    let event = stacks.events.first();
    let interval = match event {
        Some(e) if e.unit == "nanoseconds" && e.period > 0 => e.period as f64 / 1e6,
        _ => 1.0,
    };
    let product = match event {
        Some(e) if stacks.title.is_empty() => e.name.clone(),
        Some(e) => format!("{} ({})", stacks.title, e.name),
        None => stacks.title.clone(),
    };
    let started = stacks.recorded.unwrap_or(0) as f64 / 1e6;
    write!(out, "\"meta\":{{\"version\":24,\"preprocessedProfileVersion\":{VERSION},")?;
    write!(out, "\"interval\":{interval},\"startTime\":{started:.3},\"processType\":0,")?;
    write!(out, "\"product\":{},\"oscpu\":\"Linux\",\"debug\":false,", text(&product))?;
    write!(out, "\"extensions\":{{\"length\":0,\"baseURL\":[],\"id\":[],\"name\":[]}},")?;
    write!(out, "\"categories\":[")?;
    for (number, (name, color)) in
        [("Other", "grey"), ("User", "yellow"), ("Kernel", "orange")].into_iter().enumerate()
    {
        let comma = if number == 0 { "" } else { "," };
        let sub = "\"subcategories\":[\"Other\"]";
        write!(out, "{comma}{{\"name\":\"{name}\",\"color\":\"{color}\",{sub}}}")?;
    }
    write!(out, "],\"markerSchema\":[],\"pausedRanges\":[],\"symbolicated\":true,")?;
    write!(out, "\"usesOnlyOneStackType\":true,\"sourceCodeIsNotOnSearchfox\":true,")?;
    let units = "\"time\":\"ms\",\"eventDelay\":\"ms\",\"threadCPUDelta\":\"ns\"";
    write!(out, "\"sampleUnits\":{{{units}}}}},")
}

fn libraries(stacks: &Stacks, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "\"libs\":[")?;
    for (number, binary) in stacks.binaries.iter().enumerate() {
        let (name, path) = (text(&binary.name), text(&binary.path));
        let breakpad = binary.build_id.as_deref().map_or(String::new(), breakpad_id);
        write!(out, "{}", if number == 0 { "" } else { "," })?;
        write!(out, "{{\"name\":{name},\"path\":{path},\"debugName\":{name},")?;
        write!(out, "\"debugPath\":{path},\"breakpadId\":\"{breakpad}\",\"codeId\":")?;
        match &binary.build_id {
            Some(id) => write!(out, "{}", text(id))?,
            None => write!(out, "null")?,
        }
        write!(out, ",\"arch\":null}}")?;
    }
    write!(out, "],")
}

/// The first half of a build-id as a GUID of a little-endian machine, and an age.
fn breakpad_id(build_id: &str) -> String {
    let padded = format!("{build_id:0<32}");
    let swapped = |from: usize, to: usize| -> String {
        let digits = padded.get(from..to).unwrap_or_default();
        let pairs = digits.as_bytes().chunks(2).rev();
        pairs.flatten().map(|b| char::from(b.to_ascii_uppercase())).collect()
    };
    let rest = padded.get(16..32).unwrap_or_default().to_ascii_uppercase();
    format!("{}{}{}{rest}0", swapped(0, 8), swapped(8, 12), swapped(12, 16))
}

/// Thread of the export: its task and its samples.
struct Samples<'a> {
    task: &'a StackTask,
    moments: Vec<StackMoment>,
}

/// Names of a thread may change; it is one line all the same.
fn threads(stacks: &Stacks) -> Vec<Samples<'_>> {
    let mut threads: Vec<Samples<'_>> = Vec::new();
    let mut known: FxHashMap<(Option<u32>, Option<u32>, &str), usize> = FxHashMap::default();
    for moment in &stacks.moments {
        let stack = stacks.stacks.get(moment.stack as usize);
        let Some(task) = stack.and_then(|s| stacks.tasks.get(s.task as usize)) else { continue };
        let name = if task.tid.is_some() { "" } else { task.comm.as_str() };
        let at = *known.entry((task.pid, task.tid, name)).or_insert_with(|| {
            threads.push(Samples { task, moments: Vec::new() });
            threads.len() - 1
        });
        if let Some(thread) = threads.get_mut(at) {
            thread.task = task;
            thread.moments.push(*moment);
        }
    }
    threads
}

/// Name of a thread's process: the last one of its first thread, or its number.
fn process_name(stacks: &Stacks, task: &StackTask) -> Option<String> {
    let pid = task.pid.filter(|pid| task.tid.is_some_and(|tid| tid != *pid))?;
    let first = stacks.tasks.iter().rfind(|of| (of.pid, of.tid) == (Some(pid), Some(pid)));
    let name = first.map(|first| first.comm.clone()).filter(|name| !name.is_empty());
    Some(name.unwrap_or_else(|| format!("process {pid}")))
}

/// The tables of a thread.
#[derive(Default)]
struct Thread<'a> {
    texts: Vec<&'a str>,
    text_of: FxHashMap<&'a str, usize>,
    /// Binaries.
    resources: Vec<u32>,
    resource_of: FxHashMap<u32, usize>,
    functions: Vec<u32>,
    function_of: FxHashMap<u32, usize>,
    /// Frames, and how deep each is inlined.
    frames: Vec<(u32, usize)>,
    frame_of: FxHashMap<(u32, usize), usize>,
    /// Parent and frame.
    nodes: Vec<(Option<usize>, usize)>,
    node_of: FxHashMap<u32, usize>,
}

impl<'a> Thread<'a> {
    fn write(
        mut self,
        stacks: &'a Stacks,
        samples: &Samples<'_>,
        start: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let task = samples.task;
        let (pid, tid) = (task.pid.unwrap_or(0), task.tid.or(task.pid).unwrap_or(0));
        let ms = |time: u64| time.saturating_sub(start) as f64 / 1e6;
        let first = samples.moments.first().map_or(0.0, |m| ms(m.time));
        write!(out, "{{\"processType\":\"default\",\"processStartupTime\":{first},")?;
        write!(out, "\"processShutdownTime\":null,\"registerTime\":{first},")?;
        write!(out, "\"unregisterTime\":null,\"pausedRanges\":[],")?;
        let name = if task.comm.is_empty() { "all tasks" } else { &task.comm };
        let process = process_name(stacks, task).unwrap_or_else(|| name.to_owned());
        write!(out, "\"name\":{},\"processName\":{},", text(name), text(&process))?;
        write!(out, "\"isMainThread\":{},\"pid\":\"{pid}\",\"tid\":{tid},", pid == tid)?;
        write!(out, "\"showMarkersInTimeline\":false,")?;
        self.samples(stacks, samples, start, out)?;
        self.tables(stacks, out)?;
        write!(out, "\"markers\":{{\"length\":0,\"category\":[],\"data\":[],\"endTime\":[],")?;
        write!(out, "\"name\":[],\"phase\":[],\"startTime\":[]}}}}")
    }

    fn samples(
        &mut self,
        stacks: &'a Stacks,
        samples: &Samples<'_>,
        start: u64,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let stack = |m: &StackMoment| stacks.stacks.get(m.stack as usize);
        let nodes: Vec<Option<usize>> = samples
            .moments
            .iter()
            .map(|m| stack(m).and_then(|s| self.node(stacks, s.node)))
            .collect();
        let time = stacks.events.first().is_some_and(|e| e.unit == "nanoseconds");
        let kind = if time { "tracing-ms" } else { "samples" };
        write!(out, "\"samples\":{{")?;
        column(out, "stack", nodes.into_iter().map(or_null))?;
        let mut before = start;
        let deltas = samples.moments.iter().map(|m| {
            let delta = m.time.saturating_sub(before) as f64 / 1e6;
            before = m.time.max(before);
            delta
        });
        column(out, "timeDeltas", deltas)?;
        let scale = if time { 1e6 } else { 1.0 };
        column(out, "weight", samples.moments.iter().map(|m| m.weight as f64 / scale))?;
        write!(out, "\"weightType\":\"{kind}\",\"length\":{}}},", samples.moments.len())
    }

    /// The stack of a node, made with all around it.
    fn node(&mut self, stacks: &'a Stacks, node: Option<u32>) -> Option<usize> {
        let mut path = Vec::new();
        let mut at = None;
        for node in stacks.outwards(node) {
            if let Some(known) = self.node_of.get(&node) {
                at = Some(*known);
                break;
            }
            path.push(node);
        }
        for node in path.into_iter().rev() {
            let frame = stacks.nodes.get(node as usize)?.frame;
            let frame = self.frame(stacks, frame, at);
            self.nodes.push((at, frame));
            at = Some(self.nodes.len() - 1);
            self.node_of.insert(node, self.nodes.len() - 1);
        }
        at
    }

    fn frame(&mut self, stacks: &'a Stacks, frame: u32, around: Option<usize>) -> usize {
        let facts = stacks.frames.get(frame as usize);
        // One deeper than the frame it is inlined into.
        let outer = around.and_then(|n| self.nodes.get(n)).and_then(|n| self.frames.get(n.1));
        let depth = match (facts.is_some_and(|f| f.inlined), outer) {
            (true, Some((_, depth))) => depth + 1,
            _ => 0,
        };
        if let Some(known) = self.frame_of.get(&(frame, depth)) {
            return *known;
        }
        if let Some(facts) = facts {
            self.function(stacks, facts.function);
        }
        self.frames.push((frame, depth));
        self.frame_of.insert((frame, depth), self.frames.len() - 1);
        self.frames.len() - 1
    }

    fn function(&mut self, stacks: &'a Stacks, function: u32) {
        if self.function_of.contains_key(&function) {
            return;
        }
        self.function_of.insert(function, self.functions.len());
        self.functions.push(function);
        let Some(facts) = stacks.functions.get(function as usize) else { return };
        self.text(&facts.name);
        facts.file.as_deref().map(|f| self.text(f));
        if let Some(binary) = facts.binary
            && !self.resource_of.contains_key(&binary)
        {
            self.resource_of.insert(binary, self.resources.len());
            self.resources.push(binary);
            stacks.binaries.get(binary as usize).map(|b| self.text(&b.name));
        }
    }

    fn text(&mut self, text: &'a str) -> usize {
        let next = self.texts.len();
        let number = *self.text_of.entry(text).or_insert(next);
        if number == next {
            self.texts.push(text);
        }
        number
    }

    fn tables(&self, stacks: &Stacks, out: &mut dyn Write) -> io::Result<()> {
        write!(out, "\"stackTable\":{{")?;
        column(out, "prefix", self.nodes.iter().map(|n| or_null(n.0)))?;
        column(out, "frame", self.nodes.iter().map(|n| n.1))?;
        write!(out, "\"length\":{}}},", self.nodes.len())?;
        self.frame_table(stacks, out)?;
        self.function_table(stacks, out)?;
        write!(out, "\"resourceTable\":{{")?;
        let name = |b: &u32| {
            let binary = stacks.binaries.get(*b as usize);
            binary.and_then(|b| self.text_of.get(&*b.name)).copied().unwrap_or(0)
        };
        column(out, "lib", &self.resources)?;
        column(out, "name", self.resources.iter().map(name))?;
        column(out, "host", self.resources.iter().map(|_| "null"))?;
        column(out, "type", self.resources.iter().map(|_| LIBRARY))?;
        write!(out, "\"length\":{}}},", self.resources.len())?;
        write!(out, "\"nativeSymbols\":{{\"length\":0,\"address\":[],\"functionSize\":[],")?;
        write!(out, "\"libIndex\":[],\"name\":[]}},")?;
        column(out, "stringArray", self.texts.iter().map(|t| text(t)))
    }

    fn frame_table(&self, stacks: &Stacks, out: &mut dyn Write) -> io::Result<()> {
        let facts = |f: &(u32, usize)| stacks.frames.get(f.0 as usize).copied();
        let function = |f: &(u32, usize)| stacks.functions.get(facts(f)?.function as usize);
        let category = |f: &(u32, usize)| match function(f) {
            Some(f) if f.kernel => KERNEL,
            Some(f) if f.binary.is_some() => USER,
            _ => 0,
        };
        let number = |f: &(u32, usize)| {
            let function = facts(f).and_then(|f| self.function_of.get(&f.function).copied());
            function.unwrap_or(0)
        };
        let frames = || self.frames.iter();
        write!(out, "\"frameTable\":{{")?;
        // Of the kernel, addresses have more digits than JavaScript keeps.
        let address = |f: &(u32, usize)| {
            let own =
                facts(f).filter(|_| function(f).is_some_and(|f| f.binary.is_some() && !f.kernel));
            own.map_or("-1".to_string(), |f| f.addr.to_string())
        };
        column(out, "address", frames().map(address))?;
        column(out, "inlineDepth", frames().map(|f| f.1))?;
        column(out, "category", frames().map(category))?;
        column(out, "subcategory", frames().map(|_| 0))?;
        column(out, "func", frames().map(number))?;
        column(out, "nativeSymbol", frames().map(|_| "null"))?;
        column(out, "innerWindowID", frames().map(|_| 0))?;
        let line = |f: &(u32, usize)| or_null(facts(f).map(|f| f.line).filter(|l| *l > 0));
        column(out, "line", frames().map(line))?;
        column(out, "column", frames().map(|_| "null"))?;
        write!(out, "\"length\":{}}},", self.frames.len())
    }

    fn function_table(&self, stacks: &Stacks, out: &mut dyn Write) -> io::Result<()> {
        let facts = |f: &u32| stacks.functions.get(*f as usize);
        let name = |f: &u32| {
            let name = facts(f).and_then(|f| self.text_of.get(&*f.name));
            name.copied().unwrap_or(0)
        };
        let resource = |f: &u32| {
            let binary = facts(f).and_then(|f| f.binary);
            let number = binary.and_then(|b| self.resource_of.get(&b));
            number.map_or("-1".to_string(), usize::to_string)
        };
        let file = |f: &u32| {
            let file = facts(f).and_then(|f| f.file.as_deref());
            or_null(file.and_then(|f| self.text_of.get(f)).copied())
        };
        let functions = || self.functions.iter();
        write!(out, "\"funcTable\":{{")?;
        column(out, "name", functions().map(name))?;
        column(out, "isJS", functions().map(|_| false))?;
        column(out, "relevantForJS", functions().map(|_| false))?;
        column(out, "resource", functions().map(resource))?;
        column(out, "fileName", functions().map(file))?;
        column(out, "lineNumber", functions().map(|_| "null"))?;
        column(out, "columnNumber", functions().map(|_| "null"))?;
        write!(out, "\"length\":{}}},", self.functions.len())
    }
}

#[cfg(test)]
mod tests {
    use super::breakpad_id;

    #[test]
    fn build_ids_become_guids() {
        // The first three parts are numbers, of which the lowest byte comes first.
        let id = "d4ac1c9d1e9e9e1e6f7c1c9b4a3f2e1d0c0b0a09";
        assert_eq!(breakpad_id(id), "9D1CACD49E1E1E9E6F7C1C9B4A3F2E1D0");
        assert_eq!(breakpad_id("ab"), "000000AB0000000000000000000000000");
    }
}
