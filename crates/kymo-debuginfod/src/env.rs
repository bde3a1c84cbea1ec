//! Environment variables of the user; their names and meanings are libdebuginfod's.

use std::path::PathBuf;
use std::time::Duration;

/// Servers and timeouts.
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// Servers, in the order in which they are asked.
    pub servers: Vec<String>,
    /// Directory of the cache.
    pub cache: PathBuf,
    /// Time within which an answer must begin, and in which at least
    /// [`LEAST_BYTES`](ClientConfig::LEAST_BYTES) of a file must come.
    pub timeout: Duration,
    /// Time for a whole file, if there is a limit.
    pub longest: Option<Duration>,
    /// Bytes of the largest file that is taken.
    pub largest: u64,
    /// Time for which a file that no server had is not requested again.
    pub misses: Duration,
}

impl ClientConfig {
    /// Less than this within the time-out is too slow.
    pub const LEAST_BYTES: u64 = 100_000;
    /// Without `DEBUGINFOD_TIMEOUT`.
    pub const TIMEOUT: Duration = Duration::from_secs(15);
    /// Without `DEBUGINFOD_MAXSIZE`.
    pub const LARGEST: u64 = 4 << 30;
    const MISSES: Duration = Duration::from_secs(600);

    /// Reads the variables of the process. `None` without `DEBUGINFOD_URLS`:
    /// then nothing is ever asked for.
    pub fn from_env() -> Option<ClientConfig> {
        ClientConfig::from(|name| std::env::var(name).ok())
    }

    /// Configuration with these servers in place of those of `DEBUGINFOD_URLS`.
    pub fn of_servers(urls: &str) -> Option<ClientConfig> {
        ClientConfig::from(|name| match name {
            "DEBUGINFOD_URLS" => Some(urls.to_owned()),
            _ => std::env::var(name).ok(),
        })
    }

    fn from(var: impl Fn(&str) -> Option<String>) -> Option<ClientConfig> {
        let servers: Vec<String> = var("DEBUGINFOD_URLS")?
            .split_whitespace()
            // A word about signatures, no server.
            .filter(|word| !word.starts_with("ima:"))
            .map(|url| url.trim_end_matches('/').to_owned())
            .collect();
        if servers.is_empty() {
            return None;
        }
        let number = |name| var(name)?.trim().parse::<u64>().ok().filter(|n| *n > 0);
        let cache = cache_directory(&var)?;
        let kept = std::fs::read_to_string(cache.join("cache_miss_s")).ok();
        let misses = kept.and_then(|t| t.trim().parse().ok()).map(Duration::from_secs);
        Some(ClientConfig {
            servers,
            cache,
            timeout: number("DEBUGINFOD_TIMEOUT")
                .map_or(ClientConfig::TIMEOUT, Duration::from_secs),
            longest: number("DEBUGINFOD_MAXTIME").map(Duration::from_secs),
            largest: number("DEBUGINFOD_MAXSIZE").unwrap_or(ClientConfig::LARGEST),
            misses: misses.unwrap_or(ClientConfig::MISSES),
        })
    }
}

fn cache_directory(var: &impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let set = |name| var(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    if let Some(named) = set("DEBUGINFOD_CACHE_PATH") {
        return Some(named);
    }
    let home = set("HOME");
    // What older versions of the library left is used on.
    if let Some(old) = home.as_ref().map(|h| h.join(".debuginfod_client_cache"))
        && old.is_dir()
    {
        return Some(old);
    }
    let caches = set("XDG_CACHE_HOME").or_else(|| Some(home?.join(".cache")))?;
    Some(caches.join("debuginfod_client"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_servers_nothing_is_asked() {
        let with = |urls: &str| {
            let urls = urls.to_owned();
            ClientConfig::from(move |name| match name {
                "DEBUGINFOD_URLS" => Some(urls.clone()),
                "HOME" => Some("/nowhere".into()),
                "DEBUGINFOD_TIMEOUT" => Some("7".into()),
                _ => None,
            })
        };
        assert!(with("").is_none());
        assert!(with(" ima:enforcing ").is_none());
        let config = with("ima:ignore http://a/ https://b/c").unwrap();
        assert_eq!(config.servers, ["http://a", "https://b/c"]);
        assert_eq!(config.cache, PathBuf::from("/nowhere/.cache/debuginfod_client"));
        assert_eq!(config.timeout, Duration::from_secs(7));
    }
}
