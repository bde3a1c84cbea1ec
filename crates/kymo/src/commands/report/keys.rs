//! What the events of a trace.dat or of CTF traces are grouped by.

use anyhow::bail;
use kymo_files::ctf::Ctf;
use kymo_format::Field;

use super::ctf;
use kymo_events::trace_dat::{FormatTable, KnownEvent};

/// A key of `--sort`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Event,
    Comm,
    Pid,
    Cpu,
    Instance,
    /// The kernel stack, where the event has one.
    Stack,
    /// A field, of one event or of all that have it.
    Field {
        event: Option<String>,
        name: String,
    },
}

impl Key {
    /// Heading of its column.
    pub(super) fn title(&self) -> String {
        match self {
            Key::Event => "Event".into(),
            Key::Comm => "Command".into(),
            Key::Pid => "Pid".into(),
            Key::Cpu => "CPU".into(),
            Key::Instance => "Instance".into(),
            Key::Stack => "Stack".into(),
            Key::Field { event: Some(event), name } => format!("{event}.{name}"),
            Key::Field { event: None, name } => name.clone(),
        }
    }

    /// Name in JSON.
    pub(super) fn name(&self) -> String {
        match self {
            Key::Field { .. } => self.title(),
            other => other.title().to_lowercase().replace("command", "comm"),
        }
    }

    /// The field of this key in an event's format.
    pub(super) fn field<'k>(&self, known: &'k KnownEvent) -> Option<&'k Field> {
        let Key::Field { event, name } = self else { return None };
        let of_event = |e: &String| *e == known.full_name || *e == known.format.name;
        event.as_ref().is_none_or(of_event).then(|| known.format.field(name))?
    }
}

/// Reads `--sort`.
pub(super) fn parse(text: &str) -> anyhow::Result<Vec<Key>> {
    let mut keys = Vec::new();
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        let key = match word {
            "event" => Key::Event,
            "comm" => Key::Comm,
            "pid" | "tid" => Key::Pid,
            "cpu" => Key::Cpu,
            "instance" => Key::Instance,
            "stack" => Key::Stack,
            _ => match word.rsplit_once('.') {
                Some((event, name)) => {
                    Key::Field { event: Some(event.to_owned()), name: name.to_owned() }
                }
                None => Key::Field { event: None, name: word.to_owned() },
            },
        };
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    if keys.is_empty() {
        bail!("--sort names no key");
    }
    Ok(keys)
}

/// Fields must exist in some event; otherwise it is a slip of the fingers.
pub(super) fn check(
    keys: &[Key],
    kernels: &[FormatTable<'_>],
    programs: Option<&Ctf>,
) -> anyhow::Result<()> {
    if !keys.iter().any(|k| matches!(k, Key::Field { .. })) {
        return Ok(());
    }
    let known: Vec<&KnownEvent> =
        kernels.iter().flat_map(FormatTable::iter).filter_map(Result::ok).collect();
    for key in keys {
        let Key::Field { event, name } = key else { continue };
        let found = known.iter().any(|k| key.field(k).is_some())
            || programs.is_some_and(|ctf| ctf::has(ctf, key));
        if found {
            continue;
        }
        let Some(e) = event else {
            bail!(
                "--sort: no event has a field `{name}`, nor a context; other keys are event, comm, \
                 pid, cpu, instance, stack"
            )
        };
        let of_kernel = || {
            let known = known.iter().find(|k| *e == k.format.name || *e == k.full_name)?;
            Some(known.format.own_fields().map(|f| f.name.clone()).collect::<Vec<_>>())
        };
        let Some(names) = of_kernel().or_else(|| ctf::names(programs?, e)) else {
            bail!("--sort {e}.{name}: the recording has no event `{e}`")
        };
        bail!("--sort {e}.{name}: {e} has no such field; it has {}", names.join(", "))
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_keys_once() {
        let keys = parse("event,comm, event,sched:sched_switch.next_comm,ret").unwrap();
        let titles: Vec<_> = keys.iter().map(Key::title).collect();
        assert_eq!(titles, ["Event", "Command", "sched:sched_switch.next_comm", "ret"]);
        let names: Vec<_> = keys.iter().map(Key::name).collect();
        assert_eq!(names, ["event", "comm", "sched:sched_switch.next_comm", "ret"]);
        assert!(parse(" , ").is_err());
    }
}
