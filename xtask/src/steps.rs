//! The steps of a long task: each is announced, timed, and listed at the end, so that their
//! durations are visible.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

pub(crate) struct Steps {
    start: Instant,
    done: Vec<(&'static str, Duration)>,
}

impl Steps {
    pub(crate) fn new() -> Steps {
        Steps { start: Instant::now(), done: Vec::new() }
    }

    /// Runs one step; its error carries the step's name.
    pub(crate) fn step<T>(
        &mut self,
        name: &'static str,
        body: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        println!("==> {name}");
        let start = Instant::now();
        let result = body();
        self.done.push((name, start.elapsed()));
        result.with_context(|| format!("step `{name}`"))
    }

    /// Runs a step that has one thread for most of its time beside others.
    pub(crate) fn beside<T, U>(
        &mut self,
        (name, first): (&'static str, impl FnOnce() -> anyhow::Result<T> + Send),
        others: impl FnOnce(&mut Steps) -> anyhow::Result<U>,
    ) -> anyhow::Result<(T, U)>
    where
        T: Send,
    {
        println!("==> {name}, and beside it:");
        std::thread::scope(|scope| {
            let start = Instant::now();
            let thread = scope.spawn(move || (first(), start.elapsed()));
            let others = others(self);
            let Ok((result, time)) = thread.join() else { bail!("step `{name}` panicked") };
            self.done.push((name, time));
            Ok((result.with_context(|| format!("step `{name}`"))?, others?))
        })
    }

    /// The times of the steps so far.
    pub(crate) fn table(&self) -> String {
        self.done
            .iter()
            .chain([&("total", self.start.elapsed())])
            .map(|(name, time)| format!("{:>8.1} s  {name}\n", time.as_secs_f64()))
            .collect()
    }
}
