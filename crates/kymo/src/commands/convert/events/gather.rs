//! Stacks that are put together event by event, with every name once.

use kymo_view::stacks::{self, Moment, Stacks};
use rustc_hash::FxHashMap;

use crate::commands::convert::model::{Split, Tasks};

/// What is counted: time in functions of the function-graph tracer, or events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Functions,
    Events,
}

/// Whose an event is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Owner<'a> {
    pub(super) comm: &'a [u8],
    pub(super) pid: Option<u32>,
    pub(super) tid: Option<u32>,
}

/// The stacks so far.
pub(super) struct Gather {
    moments: bool,
    made: Stacks,
    names: FxHashMap<(String, Option<u32>), u32>,
    frames: FxHashMap<(u32, u64), u32>,
    kernel: FxHashMap<u64, u32>,
    binaries: FxHashMap<String, u32>,
    tasks: Tasks,
    stacks: FxHashMap<(u32, u32, Option<u32>), u32>,
    /// Distinct addresses of the kernel without a name.
    pub(super) nameless: u64,
}

impl Gather {
    pub(super) fn new(split: Split, moments: bool, unit: &'static str) -> Gather {
        let event = |name: &str, unit| stacks::Event { name: name.into(), unit, period: 0 };
        let mut made = Stacks::default();
        made.events = vec![event("functions", "nanoseconds"), event("events", unit)];
        Gather {
            moments,
            made,
            names: FxHashMap::default(),
            frames: FxHashMap::default(),
            kernel: FxHashMap::default(),
            binaries: FxHashMap::default(),
            tasks: Tasks::new(split),
            stacks: FxHashMap::default(),
            nameless: 0,
        }
    }

    /// The frame of a kind of event.
    pub(super) fn event(&mut self, name: &str) -> u32 {
        self.frame(name, true, None, 0)
    }

    /// The frame of an address of the kernel.
    pub(super) fn kernel(&mut self, addr: u64, name: impl FnOnce() -> Option<String>) -> u32 {
        if let Some(known) = self.kernel.get(&addr) {
            return *known;
        }
        let binary = self.binary("[kernel.kallsyms]");
        let name = name();
        self.nameless += u64::from(name.is_none());
        let text = name.as_deref().unwrap_or("[kernel.kallsyms]");
        let frame = self.frame(text, name.is_some(), Some(binary), addr);
        self.kernel.insert(addr, frame);
        frame
    }

    /// The frame of an address of a program, of which at most the binary is known.
    pub(super) fn user(&mut self, addr: u64, binary: Option<&str>) -> u32 {
        let Some(path) = binary else { return self.frame("[unknown]", false, None, addr) };
        let number = self.binary(path);
        let name = path.rsplit('/').next().unwrap_or(path);
        let bracketed = if name.starts_with('[') { name.to_owned() } else { format!("[{name}]") };
        self.frame(&bracketed, false, Some(number), addr)
    }

    fn binary(&mut self, path: &str) -> u32 {
        if let Some(known) = self.binaries.get(path) {
            return *known;
        }
        let number = self.made.binaries.len() as u32;
        let name = path.rsplit('/').next().unwrap_or(path).to_owned();
        self.made.binaries.push(stacks::Binary { path: path.to_owned(), name, build_id: None });
        self.binaries.insert(path.to_owned(), number);
        number
    }

    fn frame(&mut self, name: &str, known: bool, binary: Option<u32>, addr: u64) -> u32 {
        let next = self.made.functions.len() as u32;
        let function = *self.names.entry((name.to_owned(), binary)).or_insert(next);
        if function == next {
            let kernel =
                binary.is_some() && binary == self.binaries.get("[kernel.kallsyms]").copied();
            let name = name.to_owned();
            self.made.functions.push(stacks::Function { name, known, binary, file: None, kernel });
        }
        let next = self.made.frames.len() as u32;
        let frame = *self.frames.entry((function, addr)).or_insert(next);
        if frame == next {
            self.made.frames.push(stacks::Frame { function, addr, line: 0, inlined: false });
        }
        frame
    }

    fn task(&mut self, owner: &Owner<'_>) -> u32 {
        let comm = || String::from_utf8_lossy(owner.comm).into_owned();
        let (pid, tid) = (owner.pid.unwrap_or(0), owner.tid.unwrap_or(0));
        self.tasks.number(&mut self.made.tasks, comm, pid, tid)
    }

    /// Adds an event; `frames` are those of its stack, the outermost first.
    pub(super) fn add(
        &mut self,
        what: What,
        owner: &Owner<'_>,
        time: u64,
        frames: impl Iterator<Item = u32>,
        weight: u64,
    ) {
        let task = self.task(owner);
        let node = frames.fold(None, |node, frame| Some(self.made.node(node, frame)));
        let event = what as u32;
        let next = self.made.stacks.len() as u32;
        let number = *self.stacks.entry((event, task, node)).or_insert(next);
        if number == next {
            self.made.stacks.push(stacks::Stack { task, event, node, samples: 0, weight: 0 });
        }
        if let Some(stack) = self.made.stacks.get_mut(number as usize) {
            stack.samples += 1;
            stack.weight = stack.weight.saturating_add(weight);
        }
        if self.moments {
            self.made.moments.push(Moment { time, stack: number, weight });
        }
        let (first, last) = self.made.span.get_or_insert((time, time));
        (*first, *last) = ((*first).min(time), (*last).max(time));
    }

    /// What was gathered, without kinds that did not occur. `single`: weights of one
    /// kind only, of functions if there are any; then how many events are left out.
    pub(super) fn done(mut self, single: bool) -> (Stacks, u64) {
        // An event's stack comes behind it, and with it the event.
        self.made.moments.sort_by_key(|m| m.time);
        let of = |what: What| {
            let stacks = self.made.stacks.iter().filter(move |s| s.event == what as u32);
            stacks.map(|s| s.samples).sum::<u64>()
        };
        let (functions, events) = (of(What::Functions), of(What::Events));
        if functions == 0 {
            self.made.events.remove(0);
            self.made.stacks.iter_mut().for_each(|s| s.event = 0);
            return (self.made, 0);
        }
        if events > 0 && !single {
            return (self.made, 0);
        }
        self.made.events.truncate(1);
        let dropped = |s: &stacks::Stack| s.event != What::Functions as u32;
        let drop: Vec<bool> = self.made.stacks.iter().map(dropped).collect();
        self.made.moments.retain(|m| drop.get(m.stack as usize) == Some(&false));
        for stack in self.made.stacks.iter_mut().filter(|s| dropped(s)) {
            (stack.event, stack.samples, stack.weight) = (0, 0, 0);
        }
        (self.made, events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> Gather {
        let mut g = Gather::new(Split::Comm, true, "count");
        let owner = Owner { comm: b"cat", pid: Some(4), tid: Some(4) };
        let frames = [g.kernel(16, || Some("read".into())), g.event("a:b")];
        g.add(What::Events, &owner, 20, frames.into_iter(), 1);
        g.add(What::Functions, &owner, 10, frames.into_iter().take(1), 700);
        g
    }

    #[test]
    fn weights_of_one_kind_are_kept_where_they_cannot_be_mixed() {
        let (both, left) = some().done(false);
        assert_eq!((both.events.len(), both.moments.len(), left), (2, 2, 0));
        assert!(both.moments.is_sorted_by_key(|m| m.time));
        let (one, left) = some().done(true);
        assert_eq!((one.events.len(), one.moments.len(), left), (1, 1, 1));
        assert_eq!(one.events[0].name, "functions");
        assert_eq!(one.stacks.iter().map(|s| s.weight).sum::<u64>(), 700);
        assert_eq!(one.span, Some((10, 20)));
    }

    #[test]
    fn events_alone_are_the_first_kind() {
        let mut g = Gather::new(Split::Tid, false, "bytes");
        let frame = g.user(7, Some("/usr/lib/libc.so.6"));
        g.add(What::Events, &Owner::default(), 3, std::iter::once(frame), 5);
        let (made, _) = g.done(true);
        assert_eq!((made.events.len(), made.stacks[0].event), (1, 0));
        assert_eq!(made.functions[0].name, "[libc.so.6]");
        assert_eq!((made.tasks[0].pid, made.tasks[0].tid), (Some(0), Some(0)));
    }
}
