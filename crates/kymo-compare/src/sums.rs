//! Sums of one run: weight and samples of each function, alone and with all that it called.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::names::{normalize_binary, normalize_name};

/// Identity of a function across runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FunctionKey {
    /// Name, without what the compiler appends unless exact names are compared.
    pub name: String,
    /// Binary, without its version.
    pub binary: String,
}

impl FunctionKey {
    /// Key of a function as a recording names it.
    pub fn new(name: &str, binary: &str, exact_names: bool) -> FunctionKey {
        if exact_names {
            return FunctionKey { name: name.to_owned(), binary: binary.to_owned() };
        }
        FunctionKey {
            name: normalize_name(name).into_owned(),
            binary: normalize_binary(binary).to_owned(),
        }
    }
}

/// A frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StackFrameKey {
    /// Number of the function.
    pub function: u32,
    /// The function was inlined here.
    pub is_inlined: bool,
}

/// Sums of a function in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FunctionSum {
    /// Weight of samples in the function.
    pub own: f64,
    /// Weight of samples in it and in all that it called.
    pub total: f64,
    /// Samples in the function.
    pub own_samples: u64,
    /// Samples in it and in all that it called.
    pub total_samples: u64,
    /// Samples in copies of the function that were inlined elsewhere.
    pub inlined_samples: u64,
}

/// Sums of a run.
#[derive(Clone, Debug, Default)]
pub struct RunSums {
    /// File or block.
    pub name: String,
    /// Units of work that the sums are of; not 0.
    pub work: f64,
    /// Weight of all samples.
    pub whole: f64,
    /// All samples.
    pub samples: u64,
    pub(crate) keys: Vec<FunctionKey>,
    pub(crate) sums: Vec<FunctionSum>,
    /// Weight in a function by direct caller.
    pub(crate) callers: FxHashMap<(u32, u32), f64>,
    /// Weight by stack, the innermost frame first, where stacks are kept.
    pub(crate) stacks: Option<FxHashMap<Box<[u32]>, f64>>,
    numbers: FxHashMap<FunctionKey, u32>,
    seen: FxHashSet<u32>,
}

impl RunSums {
    /// Sums of nothing.
    pub fn new(name: impl Into<String>, work: f64) -> RunSums {
        RunSums { name: name.into(), work, ..RunSums::default() }
    }

    /// Keeps stacks, for a call tree, if `keeps`.
    #[must_use]
    pub fn with_stacks(self, keeps: bool) -> RunSums {
        RunSums { stacks: keeps.then(FxHashMap::default), ..self }
    }

    /// Number of a function.
    pub fn function(&mut self, key: FunctionKey) -> u32 {
        let next = self.keys.len() as u32;
        let number = *self.numbers.entry(key.clone()).or_insert(next);
        if number == next {
            self.keys.push(key);
            self.sums.push(FunctionSum::default());
        }
        number
    }

    /// Adds a stack, the innermost frame first.
    pub fn add_stack(&mut self, frames: &[StackFrameKey], weight: f64, samples: u64) {
        self.whole += weight;
        self.samples += samples;
        let Some(leaf) = frames.first() else { return };
        if let Some(stacks) = &mut self.stacks {
            let stack: Box<[u32]> = frames.iter().map(|frame| frame.function).collect();
            *stacks.entry(stack).or_default() += weight;
        }
        if let Some(sum) = self.sums.get_mut(leaf.function as usize) {
            sum.own += weight;
            sum.own_samples += samples;
        }
        if let Some(caller) = frames.iter().find(|f| f.function != leaf.function) {
            *self.callers.entry((leaf.function, caller.function)).or_default() += weight;
        }
        self.seen.clear();
        for frame in frames {
            let Some(sum) = self.sums.get_mut(frame.function as usize) else { continue };
            if self.seen.insert(frame.function) {
                sum.total += weight;
                sum.total_samples += samples;
                sum.inlined_samples += if frame.is_inlined { samples } else { 0 };
            }
        }
    }

    /// Sets the sums of a function that were made before.
    pub fn set_sum(&mut self, key: FunctionKey, sum: FunctionSum) {
        let number = self.function(key);
        if let Some(slot) = self.sums.get_mut(number as usize) {
            *slot = sum;
        }
    }

    /// Functions and their sums.
    pub fn functions(&self) -> impl Iterator<Item = (&FunctionKey, &FunctionSum)> {
        self.keys.iter().zip(&self.sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recursive_function_counts_once_in_total() {
        let mut run = RunSums::new("a", 1.0);
        let mut frame = |name: &str| StackFrameKey {
            function: run.function(FunctionKey::new(name, "a", false)),
            is_inlined: false,
        };
        let (f, main) = (frame("f.isra.0"), frame("main"));
        assert_eq!(frame("f").function, f.function);
        run.add_stack(&[f, f, main], 10.0, 1);
        run.add_stack(&[main], 5.0, 1);
        let sums: Vec<_> = run.functions().map(|(k, s)| (&*k.name, s.own, s.total)).collect();
        assert_eq!(sums, [("f", 10.0, 10.0), ("main", 5.0, 15.0)]);
        assert_eq!((run.whole, run.samples), (15.0, 2));
        assert_eq!(run.callers.get(&(f.function, main.function)), Some(&10.0));
    }
}
