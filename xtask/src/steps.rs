//! The steps of a long task: each is announced, timed, and listed at the end, so
//! that whoever waits can see where the time goes.

use std::time::{Duration, Instant};

use anyhow::Context as _;

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
