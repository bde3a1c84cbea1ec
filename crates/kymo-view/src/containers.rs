//! Container of a cgroup by its path, as container managers name it.

/// Characters of a container's id that are shown, as their own tools do.
const SHORT_ID: usize = 12;

/// Name or short id of the container whose tasks a cgroup holds, as far as its path shows.
pub fn container_of(path: &str) -> Option<String> {
    let mut above = "";
    let mut found = None;
    for part in path.split('/') {
        // The innermost one counts: containers hold others.
        found = named(part).or_else(|| by_id(above, part)).or(found);
        above = part;
    }
    found
}

/// Name of a container of systemd-nspawn or LXC, or of a virtual machine of systemd-machined.
fn named(part: &str) -> Option<String> {
    let machine = part.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope"));
    let nspawn = part.strip_prefix("systemd-nspawn@").and_then(|s| s.strip_suffix(".service"));
    let lxc = part.strip_prefix("lxc.payload.");
    let name = machine.or(nspawn).or(lxc).filter(|name| !name.is_empty())?;
    // systemd writes a hyphen that is one so.
    Some(name.replace("\\x2d", "-"))
}

/// Short id of a container of Docker, Podman or Kubernetes: `docker-ID.scope`, or a directory of
/// the id.
fn by_id(above: &str, part: &str) -> Option<String> {
    let id = match part.strip_suffix(".scope") {
        Some(scope) => scope.rsplit_once('-')?.1,
        None if matches!(above, "docker" | "libpod") || above.starts_with("pod") => part,
        None => return None,
    };
    let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.get(..SHORT_ID).unwrap_or(id).to_owned())
}

#[cfg(test)]
mod tests {
    use super::container_of;

    #[test]
    fn paths_of_those_who_make_containers() {
        let id = "0123456789abcdef".repeat(4);
        let check = |path: &str, name: Option<&str>| {
            assert_eq!(container_of(&path.replace("ID", &id)).as_deref(), name, "{path}");
        };
        check("/system.slice/docker-ID.scope", Some("0123456789ab"));
        check("/docker/ID/init", Some("0123456789ab"));
        check("/machine.slice/libpod-ID.scope/container", Some("0123456789ab"));
        check("/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope", Some("0123456789ab"));
        check("/kubepods/besteffort/pod12/ID", Some("0123456789ab"));
        check("/machine.slice/machine-web\\x2d1.scope/payload", Some("web-1"));
        check("/machine.slice/systemd-nspawn@db.service/payload", Some("db"));
        check("/lxc.payload.mail/init.scope", Some("mail"));
        // The innermost.
        check("/lxc.payload.mail/docker/ID", Some("0123456789ab"));
        for path in ["/", "", "/user.slice/session-3.scope", "/init.scope", "/docker/buildkit"] {
            check(path, None);
        }
    }
}
