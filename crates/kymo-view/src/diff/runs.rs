//! Sums of a run, or of blocks of time of one recording, out of its stacks.

use kymo_compare::{BlockError, FunctionKey, RunSums, StackFrameKey, block_count};
use rustc_hash::FxHashMap;

use crate::stacks::{StackMoment, Stacks};

/// Bins of time that the length of blocks is derived from.
const BINS: usize = 200;
/// Functions whose change over time decides about the length of blocks.
const SERIES: usize = 8;

/// Stacks whose frames are numbered for a [`RunSums`].
pub struct StackSums<'a> {
    stacks: &'a Stacks,
    exact_names: bool,
    off_cpu: bool,
    keeps_stacks: bool,
}

impl<'a> StackSums<'a> {
    /// Creates the sums of samples of code; with `off_cpu` of waits, whose innermost frame is their
    /// cause.
    pub fn new(stacks: &'a Stacks, exact_names: bool, off_cpu: bool) -> StackSums<'a> {
        StackSums { stacks, exact_names, off_cpu, keeps_stacks: false }
    }

    /// Keeps stacks for a call tree, if `keeps`.
    #[must_use]
    pub fn with_stacks(self, keeps: bool) -> StackSums<'a> {
        StackSums { keeps_stacks: keeps, ..self }
    }

    /// Sums of all of it, for this many units of work.
    pub fn run(&self, name: &str, work: f64) -> RunSums {
        let sums = RunSums::new(name, work).with_stacks(self.keeps_stacks);
        let mut numbered = NumberedStacks::new(self, sums);
        for (number, stack) in (0u32..).zip(&self.stacks.stacks) {
            numbered.add(number, stack.weight as f64, stack.samples);
        }
        numbered.sums
    }

    /// Sums of blocks of time, each for a share of `work`, for one recording that stands for many
    /// runs.
    ///
    /// # Errors
    /// If fewer than 20 blocks would be independent.
    pub fn blocks(&self, name: &str, work: f64) -> Result<Vec<RunSums>, BlockError> {
        let moments = &self.stacks.moments;
        let count = block_count(&self.series(moments), moments.len() as u64)?;
        let block = self.bin_of(count);
        let mut blocks: Vec<NumberedStacks<'_>> = (0..count)
            .map(|n| {
                let name = format!("{name}, block {} of {count}", n + 1);
                let sums = RunSums::new(name, work / count as f64);
                NumberedStacks::new(self, sums.with_stacks(self.keeps_stacks))
            })
            .collect();
        for moment in moments {
            if let Some(sums) = blocks.get_mut(block(moment.time)) {
                sums.add(moment.stack, moment.weight as f64, 1);
            }
        }
        Ok(blocks.into_iter().map(|block| block.sums).collect())
    }

    /// Bin of a time, of `count` equal ones between the first and the last sample.
    fn bin_of(&self, count: usize) -> impl Fn(u64) -> usize + use<> {
        let times = self.stacks.moments.first().zip(self.stacks.moments.last());
        let (from, to) = times.map_or((0, 0), |(first, last)| (first.time, last.time));
        let length = u128::from(to.saturating_sub(from)) + 1;
        move |time: u64| {
            let at = u128::from(time.saturating_sub(from)) * count as u128 / length;
            usize::try_from(at).unwrap_or(usize::MAX).min(count.saturating_sub(1))
        }
    }

    /// Weights over time: of everything, and of the innermost functions with the most weight.
    fn series(&self, moments: &[StackMoment]) -> Vec<Vec<f64>> {
        let leaf = |stack: u32| {
            let stack = self.stacks.stacks.get(stack as usize)?;
            let (frame, _) = self.stacks.place(stack.node?)?;
            Some(frame.function)
        };
        let mut weights: FxHashMap<u32, u64> = FxHashMap::default();
        for stack in 0..self.stacks.stacks.len() as u32 {
            let weight = self.stacks.stacks.get(stack as usize).map_or(0, |s| s.weight);
            if let Some(function) = leaf(stack) {
                *weights.entry(function).or_default() += weight;
            }
        }
        let mut heaviest: Vec<(u32, u64)> = weights.into_iter().collect();
        heaviest.sort_by_key(|(function, weight)| (std::cmp::Reverse(*weight), *function));
        heaviest.truncate(SERIES);
        let place: FxHashMap<u32, usize> =
            heaviest.iter().zip(1..).map(|((function, _), at)| (*function, at)).collect();
        let bin = self.bin_of(BINS);
        let mut series = vec![vec![0.0; BINS]; 1 + heaviest.len()];
        for moment in moments {
            let mut add = |at: usize| {
                let slot = series.get_mut(at).and_then(|s| s.get_mut(bin(moment.time)));
                slot.into_iter().for_each(|slot| *slot += moment.weight as f64);
            };
            add(0);
            if let Some(at) = leaf(moment.stack).and_then(|f| place.get(&f)) {
                add(*at);
            }
        }
        series
    }

    /// The frames of a stack, the innermost first, as functions that are compared.
    fn frames(
        &self,
        stack: u32,
        sums: &mut RunSums,
        known: &mut FxHashMap<u32, u32>,
    ) -> Vec<StackFrameKey> {
        let node = self.stacks.stacks.get(stack as usize).and_then(|s| s.node);
        let mut places = self.stacks.outwards(node).filter_map(|node| self.stacks.place(node));
        let mut frames = Vec::new();
        if self.off_cpu {
            let Some((_, cause)) = places.next() else { return frames };
            let mut users = places.filter(|(_, function)| !function.kernel).peekable();
            let cause = cause.name.trim_matches(['[', ']']);
            let name = users.next().map_or_else(
                || format!("[{cause}]"),
                |(_, function)| format!("{} ({cause})", function.name),
            );
            let function = sums.function(FunctionKey { name, binary: String::new() });
            frames.push(StackFrameKey { function, is_inlined: false });
            for (frame, _) in users {
                frames.push(self.frame(frame.function, frame.inlined, sums, known));
            }
            return frames;
        }
        for (frame, _) in places {
            frames.push(self.frame(frame.function, frame.inlined, sums, known));
        }
        frames
    }

    fn frame(
        &self,
        number: u32,
        is_inlined: bool,
        sums: &mut RunSums,
        known: &mut FxHashMap<u32, u32>,
    ) -> StackFrameKey {
        let function = *known.entry(number).or_insert_with(|| {
            let function = self.stacks.functions.get(number as usize);
            let binary = function.and_then(|f| f.binary);
            let binary = binary.and_then(|b| self.stacks.binaries.get(b as usize));
            let binary = binary.map_or("", |b| &b.name);
            sums.function(FunctionKey::new(
                function.map_or("", |f| &f.name),
                binary,
                self.exact_names,
            ))
        });
        StackFrameKey { function, is_inlined }
    }
}

/// Sums with the numbers of functions and the frames of stacks that were met.
struct NumberedStacks<'a> {
    of: &'a StackSums<'a>,
    sums: RunSums,
    functions: FxHashMap<u32, u32>,
    frames: FxHashMap<u32, Vec<StackFrameKey>>,
}

impl<'a> NumberedStacks<'a> {
    fn new(of: &'a StackSums<'a>, sums: RunSums) -> NumberedStacks<'a> {
        NumberedStacks { of, sums, functions: FxHashMap::default(), frames: FxHashMap::default() }
    }

    fn add(&mut self, stack: u32, weight: f64, samples: u64) {
        let NumberedStacks { of, sums, functions, frames } = self;
        let frames = frames.entry(stack).or_insert_with(|| of.frames(stack, sums, functions));
        sums.add_stack(frames, weight, samples);
    }
}
