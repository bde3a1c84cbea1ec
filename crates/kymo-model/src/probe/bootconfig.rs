//! Probes of the kernel as lines of a boot configuration: the kernel that boots with them
//! defines them itself (the kernel's `Documentation/trace/boottime-trace.rst`; quoting:
//! `Documentation/admin-guide/bootconfig.rst`).

use super::{ProbeDefinition, ProbeKind};

/// Why a probe cannot be in a boot configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BootConfigError {
    /// It is in a program.
    #[error("{0}: a boot configuration has probes of the kernel alone")]
    User(String),
    /// Its event has no name.
    #[error("{0}: an event of a boot configuration needs a name")]
    Unnamed(String),
    /// It is a return probe with a stated limit, or its text has both sorts of quotes.
    #[error("{0}: a boot configuration cannot say this")]
    Unspeakable(String),
}

/// One line an event, `ftrace.event.kprobes.EVENT.probes = "PROBE"[, …]`: the group is always
/// `kprobes`.
///
/// # Errors
/// If a boot configuration cannot define one of them.
pub fn bootconfig_lines(probes: &[ProbeDefinition]) -> Result<Vec<String>, BootConfigError> {
    let mut events: Vec<(&str, Vec<String>)> = Vec::new();
    for probe in probes {
        let name = || probe.full_name();
        if probe.target.is_user() {
            return Err(BootConfigError::User(name()));
        }
        let event = probe.event.as_deref().ok_or_else(|| BootConfigError::Unnamed(name()))?;
        let mut text = probe.target.to_string();
        match probe.kind {
            ProbeKind::Probe => {}
            // The kernel puts `p:` in front, so that the probe point implies the type.
            ProbeKind::Return { max_active: None } if text.ends_with("%return") => {}
            ProbeKind::Return { max_active: None } => text += "%return",
            ProbeKind::Return { .. } => return Err(BootConfigError::Unspeakable(name())),
        }
        for arg in &probe.args {
            text += &format!(" {arg}");
        }
        let quote = match (text.contains('"'), text.contains('\'')) {
            (false, _) => '"',
            (true, false) => '\'',
            (true, true) => return Err(BootConfigError::Unspeakable(name())),
        };
        let value = format!("{quote}{text}{quote}");
        match events.iter_mut().find(|(known, _)| *known == event) {
            Some((_, values)) => values.push(value),
            None => events.push((event, vec![value])),
        }
    }
    let line = |(event, values): (&str, Vec<String>)| {
        format!("ftrace.event.kprobes.{event}.probes = {}", values.join(", "))
    };
    Ok(events.into_iter().map(line).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Result<Vec<String>, BootConfigError> {
        let probes: Vec<ProbeDefinition> =
            texts.iter().map(|text| ProbeDefinition::parse(text).unwrap()).collect();
        bootconfig_lines(&probes)
    }

    #[test]
    fn probes_of_one_event_are_on_one_line() {
        let of = lines(&[
            "p:probe/open do_filp_open+4 name=+0(%si):string",
            "r:probe/ret vfs_read+0 $retval",
            "p:other/open _text+12",
            r#"p:probe/text vfs_read a=\"x""#,
        ]);
        let expected = [
            r#"ftrace.event.kprobes.open.probes = "do_filp_open+4 name=+0(%si):string", "_text+12""#,
            r#"ftrace.event.kprobes.ret.probes = "vfs_read+0%return $retval""#,
            r#"ftrace.event.kprobes.text.probes = 'vfs_read a=\"x"'"#,
        ];
        assert_eq!(of.unwrap(), expected);
    }

    #[test]
    fn what_a_boot_configuration_cannot_say_is_refused() {
        let user = lines(&["p:a/b /bin/true:0x10"]);
        assert_eq!(user, Err(BootConfigError::User("a:b".into())));
        let limited = lines(&["r8:a/b vfs_read"]);
        assert_eq!(limited, Err(BootConfigError::Unspeakable("a:b".into())));
        assert!(matches!(lines(&["p vfs_read"]), Err(BootConfigError::Unnamed(_))));
    }
}
