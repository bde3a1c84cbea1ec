//! Addresses of servers.

use crate::error::FetchError;

/// The parts of an address that a request needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) secure: bool,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// With the leading slash, with the query.
    pub(crate) path: String,
}

impl Url {
    pub(crate) fn parse(text: &str) -> Result<Url, FetchError> {
        let fail = |why| FetchError::Url { url: text.to_owned(), why };
        let (scheme, rest) = text.split_once("://").ok_or(fail("it has no scheme"))?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(fail("unsupported URL scheme")),
        };
        // Whatever could end a line of the request must not be in it.
        if rest.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(fail("it holds blanks or control characters"));
        }
        let rest = rest.split('#').next().unwrap_or(rest);
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        if authority.contains('@') {
            return Err(fail("user names in addresses are not supported"));
        }
        let (host, port) = match authority.rsplit_once(':') {
            // The colons of an IPv6 address stand in brackets.
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| fail("its port is no number"))?)
            }
            _ => (authority, if secure { 443 } else { 80 }),
        };
        if host.is_empty() {
            return Err(fail("it names no host"));
        }
        Ok(Url { secure, host: host.to_owned(), port, path })
    }

    /// The address that a redirection from this one means.
    pub(crate) fn join(&self, location: &str) -> Result<Url, FetchError> {
        if location.contains("://") {
            return Url::parse(location);
        }
        let scheme = if self.secure { "https" } else { "http" };
        if let Some(rest) = location.strip_prefix("//") {
            return Url::parse(&format!("{scheme}://{rest}"));
        }
        let base = match location.starts_with('/') {
            true => "",
            false => self.path.rsplit_once('/').map_or("", |(directory, _)| directory),
        };
        let slash = if location.starts_with('/') { "" } else { "/" };
        Url::parse(&format!("{scheme}://{}{base}{slash}{location}", self.authority()))
    }

    /// Host and port, as the line `Host:` has them.
    pub(crate) fn authority(&self) -> String {
        match (self.secure, self.port) {
            (true, 443) | (false, 80) => self.host.clone(),
            _ => format!("{}:{}", self.host, self.port),
        }
    }

    /// The host without the brackets of an IPv6 address.
    pub(crate) fn bare_host(&self) -> &str {
        self.host.trim_start_matches('[').trim_end_matches(']')
    }
}

/// A path as part of an address.
pub(crate) fn escaped(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for b in path.bytes() {
        match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                out.push(char::from(b));
            }
            _ => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let url = |t: &str| {
            Url::parse(t).map(|u| (u.secure, u.host, u.port, u.path)).map_err(|e| e.to_string())
        };
        let ok = |s, h: &str, p, path: &str| Ok((s, h.to_owned(), p, path.to_owned()));
        assert_eq!(url("http://a.b"), ok(false, "a.b", 80, "/"));
        assert_eq!(url("HTTPS://a.b/x/y?z#f"), ok(true, "a.b", 443, "/x/y?z"));
        assert_eq!(url("http://[::1]:8002/"), ok(false, "[::1]", 8002, "/"));
        assert_eq!(url("http://[::1]"), ok(false, "[::1]", 80, "/"));
        for bad in ["a.b", "ftp://x/", "http://", "http://x:y/", "http://x/a b", "http://u@x/"] {
            assert!(url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn redirections_may_be_relative() {
        let from = Url::parse("http://h:81/a/b").unwrap();
        let to = |l| {
            let u = from.join(l).unwrap();
            format!("{} {} {}", u.secure, u.authority(), u.path)
        };
        assert_eq!(to("/c"), "false h:81 /c");
        assert_eq!(to("c"), "false h:81 /a/c");
        assert_eq!(to("//g/c"), "false g /c");
        assert_eq!(to("https://g/c"), "true g /c");
        assert_eq!(escaped("/a b/c++.h"), "/a%20b/c%2B%2B.h");
    }
}
