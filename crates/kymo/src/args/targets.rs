//! Options that select tasks: `-p`, `-t`, `-u`, `-G`, of which one may be given.

use anyhow::bail;
use kymo_kernel::target;
use kymo_model::{Note, NoteKind};
use kymo_record::Target;

/// Refuses to choose tasks by number where the kernel's events have other numbers than processes
/// here: the result would be empty, or of others. `way_out`: what chooses none.
pub(crate) fn kernel_numbers(way_out: Option<&str>) -> anyhow::Result<()> {
    if target::has_kernel_pids() {
        return Ok(());
    }
    let or = way_out.map_or_else(String::new, |way_out| format!("; or {way_out}"));
    bail!(
        "processes have other numbers in this pid namespace than in the kernel's events, which \
         cannot be separated by task here: start kymo in the first one (nsenter -t 1 -p, docker \
         run --pid=host){or}"
    )
}

/// Note on the ids in the kernel's events, where processes have other numbers here.
pub(crate) fn note_kernel_numbers() -> Option<Note> {
    let fact = "task ids in the kernel's events are those of the first pid namespace: processes \
                have other numbers in this pid namespace";
    let advice = "start kymo in the first one (nsenter -t 1 -p, docker run --pid=host)".to_owned();
    (!target::has_kernel_pids()).then(|| Note::choice(NoteKind::Scope, fact, Some(advice)))
}

/// The processes, threads or cgroups that were named; none if none were.
pub(crate) fn named_target(
    pids: Option<&str>,
    tids: Option<&str>,
    user: Option<&str>,
    cgroups: &[String],
) -> anyhow::Result<Option<Target>> {
    let given = [pids.is_some(), tids.is_some(), user.is_some(), !cgroups.is_empty()];
    if given.iter().filter(|g| **g).count() > 1 {
        bail!("give one of -p, -t, -u and -G");
    }
    Ok(if let Some(pids) = pids {
        Some(Target::Processes(target::parse_ids(pids)?))
    } else if let Some(tids) = tids {
        Some(Target::Threads(target::parse_ids(tids)?))
    } else if let Some(user) = user {
        let pids = target::processes_of_user(target::user_id(user)?)?;
        if pids.is_empty() {
            bail!("user {user} has no processes");
        }
        Some(Target::Processes(pids))
    } else if !cgroups.is_empty() {
        Some(Target::Cgroups(cgroups.to_vec()))
    } else {
        None
    })
}
