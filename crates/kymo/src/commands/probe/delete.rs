//! `--del`: events of the running kernel's probes are removed, by glob.

use anyhow::bail;
use kymo_kernel::probe_events::{ListedProbe, ProbeError};
use kymo_model::glob::glob_match;

use super::Args;
use super::users::keepers;
use crate::commands::tracing;

/// Whether `[GROUP:]EVENT` as a glob means an event.
pub(super) fn means(glob: &str, probe: &ListedProbe) -> bool {
    match glob.split_once(':') {
        Some((group, name)) => {
            glob_match(group, &probe.definition.group) && glob_match(name, probe.event())
        }
        None => glob_match(glob, probe.event()),
    }
}

/// `--del`.
pub(super) fn delete(args: &Args) -> anyhow::Result<()> {
    let tracefs = tracing::open()?;
    let all = tracefs.probes()?;
    let mut done: Vec<(String, String)> = Vec::new();
    let mut failed = Vec::new();
    for glob in &args.del {
        let glob = glob.replacen('/', ":", 1);
        let mut any = false;
        for probe in all.iter().filter(|p| means(&glob, p)) {
            let (group, event) = (&probe.definition.group, probe.event());
            any = true;
            let key = (group.clone(), event.to_owned());
            if done.contains(&key) {
                continue;
            }
            done.push(key);
            let name = format!("{group}:{event}");
            if !args.dry_run
                && let Err(e) = tracefs.remove_probe(probe.file, group, event)
            {
                failed.push(if is_busy(&e) {
                    format!("{name}: {}", keepers(&tracefs, probe))
                } else {
                    format!("{name}: {e}")
                });
                continue;
            }
            if !args.quiet {
                let what = if args.dry_run { "Would remove" } else { "Removed" };
                outln!("{what} event: {name}");
            }
        }
        if !any {
            bail!("{glob} matches no probe; kymo probe --list shows them");
        }
    }
    if !failed.is_empty() {
        bail!("not removed: {}", failed.join("\n"));
    }
    Ok(())
}

/// Whether something could not be removed because it is in use.
fn is_busy(error: &ProbeError) -> bool {
    matches!(error, ProbeError::Refused { error, .. } if error.kind() == std::io::ErrorKind::ResourceBusy)
}
