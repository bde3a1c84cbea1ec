//! Work for all CPUs: the same function on a thread for each.

use anyhow::bail;

/// Number of threads.
pub(crate) fn count() -> u64 {
    std::thread::available_parallelism().map_or(1, usize::from) as u64
}

/// Runs `work` with the number of each thread; what all of them gave, or the first error.
pub(crate) fn run<T: Send>(
    work: impl Fn(u64) -> anyhow::Result<T> + Sync,
) -> anyhow::Result<Vec<T>> {
    std::thread::scope(|scope| {
        let started: Vec<_> = (0..count())
            .map(|n| {
                scope.spawn({
                    let work = &work;
                    move || work(n)
                })
            })
            .collect();
        let ended: Vec<_> = started.into_iter().map(|thread| thread.join()).collect();
        let results = ended.into_iter().map(|ended| match ended {
            Ok(result) => result,
            Err(_) => bail!("a worker panicked"),
        });
        results.collect()
    })
}
