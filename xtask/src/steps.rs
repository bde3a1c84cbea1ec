//! The steps of a long task: each is announced, timed, and listed at the end, so that their
//! durations are visible.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

#[derive(Default)]
pub(crate) struct Steps {
    done: Vec<(&'static str, Duration)>,
}

impl Steps {
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

    /// Runs two steps beside each other, of which the first has one thread for most of its time.
    pub(crate) fn beside<T, U>(
        &mut self,
        first: (&'static str, impl FnOnce() -> anyhow::Result<T> + Send),
        second: (&'static str, impl FnOnce() -> anyhow::Result<U>),
    ) -> anyhow::Result<(T, U)>
    where
        T: Send,
    {
        println!("==> {}, and beside it:", first.0);
        std::thread::scope(|scope| {
            let start = Instant::now();
            let thread = scope.spawn(move || (first.1(), start.elapsed()));
            let second = self.step(second.0, second.1);
            let Ok((result, time)) = thread.join() else { bail!("step `{}` panicked", first.0) };
            self.done.push((first.0, time));
            Ok((result.with_context(|| format!("step `{}`", first.0))?, second?))
        })
    }

    /// The times of the steps so far.
    pub(crate) fn table(&self) -> String {
        let total: Duration = self.done.iter().map(|(_, time)| *time).sum();
        self.done
            .iter()
            .chain([&("total", total)])
            .map(|(name, time)| format!("{:>8.1} s  {name}\n", time.as_secs_f64()))
            .collect()
    }
}
