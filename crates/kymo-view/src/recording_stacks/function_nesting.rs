//! Time in functions, out of what the function-graph tracer recorded: a function
//! counts for what its duration has beyond those that it called.

use rustc_hash::FxHashMap;

/// A function that has begun.
#[derive(Clone, Copy, Debug)]
struct OpenFunction {
    func: u64,
    /// Time in functions that it called.
    called: u64,
}

/// Task whose functions are nested, in an instance; the idle tasks of all CPUs have one
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct NestingOwner {
    pub(super) instance: usize,
    pub(super) tid: u32,
    /// CPU of an idle task.
    pub(super) cpu: u32,
}

/// Functions deeper than the kernel can nest them are not believed.
const DEEPEST: usize = 512;

/// The functions that have begun, and where their ends are missing.
#[derive(Debug, Default)]
pub(super) struct FunctionNesting {
    open: FxHashMap<NestingOwner, Vec<OpenFunction>>,
    /// Ends without a begin: functions that began before the recording did, or lost.
    pub(super) unopened: u64,
    /// Begins without an end.
    pub(super) unended: u64,
}

impl FunctionNesting {
    /// A function begins at a depth.
    pub(super) fn begin(&mut self, owner: NestingOwner, func: u64, depth: usize) {
        let open = self.open.entry(owner).or_default();
        // Ends of deeper ones were lost.
        if open.len() > depth {
            self.unended += (open.len() - depth) as u64;
            open.truncate(depth);
        }
        if open.len() < DEEPEST {
            open.push(OpenFunction { func, called: 0 });
        }
    }

    /// A function ends. Its own time, and all functions around it, the outermost
    /// first and itself at the end.
    pub(super) fn end(&mut self, owner: NestingOwner, func: u64, duration: u64) -> (u64, Vec<u64>) {
        let open = self.open.entry(owner).or_default();
        let at = open.iter().rposition(|o| o.func == func);
        let mut path: Vec<u64> = Vec::new();
        let own = match at {
            Some(at) => {
                self.unended += (open.len() - at - 1) as u64;
                path.extend(open.iter().take(at + 1).map(|o| o.func));
                let called = open.get(at).map_or(0, |o| o.called);
                open.truncate(at);
                duration.saturating_sub(called)
            }
            None => {
                self.unopened += 1;
                path.extend(open.iter().map(|o| o.func));
                path.push(func);
                duration
            }
        };
        if let Some(around) = open.last_mut() {
            around.called = around.called.saturating_add(duration);
        }
        (own, path)
    }

    /// Functions that have no end when the recording has one.
    pub(super) fn still_open(&self) -> u64 {
        self.open.values().map(|o| o.len() as u64).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NestingOwner = NestingOwner { instance: 0, tid: 5, cpu: 0 };

    #[test]
    fn a_function_counts_without_those_it_called() {
        let (mut n, me) = (FunctionNesting::default(), ME);
        n.begin(me, 1, 0);
        n.begin(me, 2, 1);
        assert_eq!(n.end(me, 2, 30), (30, vec![1, 2]));
        n.begin(me, 2, 1);
        assert_eq!(n.end(me, 2, 10), (10, vec![1, 2]));
        n.begin(NestingOwner { tid: 6, ..ME }, 9, 0);
        assert_eq!(n.end(me, 1, 100), (60, vec![1]));
        assert_eq!((n.unopened, n.unended, n.still_open()), (0, 0, 1));
    }

    #[test]
    fn missing_ends_and_begins_are_counted() {
        let (mut n, me) = (FunctionNesting::default(), ME);
        n.begin(me, 1, 0);
        n.begin(me, 2, 1);
        n.begin(me, 3, 1);
        assert_eq!(n.end(me, 1, 100), (100, vec![1]));
        assert_eq!(n.end(me, 4, 7), (7, vec![4]));
        assert_eq!((n.unopened, n.unended), (1, 2));
    }
}
