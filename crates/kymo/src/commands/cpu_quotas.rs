//! CPU quotas of cgroups beside answers about what tasks wait for.

use kymo_kernel::cpu_quota::{QuotaWatch, ThrottledCgroup, cgroups_of_task};
use kymo_model::{Note, NoteKind, counted};

/// Starts to watch the CPU quotas of these tasks' cgroups; of all cgroups if there are none.
pub(crate) fn watch_quotas(pids: &[u32], tids: &[u32]) -> QuotaWatch {
    QuotaWatch::of_tasks(&[pids, tids].concat())
}

/// Notes on cgroups that were throttled by their CPU quotas: few recorded events show which waits
/// these are.
pub(crate) fn quota_notes(cgroups: &[ThrottledCgroup]) -> Vec<Note> {
    /// Cgroups with notes of their own.
    const NAMED: usize = 3;
    let note = |cgroup: &ThrottledCgroup| {
        let fact = format!(
            "cgroup {} was throttled by its CPU quota in {}, for {:.3} ms (all its CPUs together): \
             its tasks that waited for a CPU may have waited for that instead of for other tasks",
            cgroup.path,
            counted(cgroup.times, "period", "periods"),
            cgroup.nanos as f64 / 1e6
        );
        Note::doubt(NoteKind::Throttled, fact, None)
    };
    let mut notes: Vec<Note> = cgroups.iter().take(NAMED).map(note).collect();
    let others = cgroups.iter().skip(NAMED);
    let (more, nanos) = (others.clone().count() as u64, others.map(|c| c.nanos).sum::<u64>());
    if more > 0 {
        let others = counted(more, "more cgroup was", "more cgroups were");
        let fact = format!("{others} throttled by CPU quotas, for {:.3} ms", nanos as f64 / 1e6);
        notes.push(Note::doubt(NoteKind::Throttled, fact, None));
    }
    notes
}

/// Note that a recording without stacks does not show whether a CPU quota kept tasks from running:
/// where the longest wait for a CPU has room for that. `live` is the command that shows it.
pub(crate) fn unseen_quota_note(longest: Option<u64>, live: &str) -> Option<Note> {
    /// Shortest wait that may be for the next period of a quota, in nanoseconds; see
    /// `OffCpuCause::of_ended`.
    const LEAST: u64 = 10_000_000;
    let fact = "waits of 10 ms or more may be for the next period of a CPU quota, which switches \
                without stacks do not show";
    let advice = format!("{live} names cgroups that are throttled");
    let is_long = longest.is_some_and(|longest| longest >= LEAST);
    is_long.then(|| Note::choice(NoteKind::Events, fact, Some(advice)))
}

/// Whether a task may be in one of these cgroups; a task that has ended may.
pub(crate) fn may_be_of(cgroups: &[ThrottledCgroup], tid: u32) -> bool {
    let own = cgroups_of_task(tid);
    let is_within = |path: &String| cgroups.iter().any(|cgroup| cgroup.contains(path));
    !cgroups.is_empty() && (own.is_empty() || own.iter().any(is_within))
}
