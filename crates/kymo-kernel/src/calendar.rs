//! Times as text of the calendar: the time zone is that of the machine, the format that of
//! strftime(3).

use std::ffi::CString;
use std::time::{Duration, SystemTime};

/// The time now where the machine is, as `Sat Nov 21 14:42:17 2026`.
pub fn local_time() -> String {
    local_time_of(now().0)
}

/// Formats another time, in seconds since 1970.
pub fn local_time_of(seconds: i64) -> String {
    format_local_time("%a %b %e %H:%M:%S %Y", seconds)
}

/// The time now where the machine is, as `2026112114421705`, down to hundredths: the suffix of
/// perf's names for the files of `--switch-output`.
pub fn local_stamp() -> String {
    let (seconds, nanos) = now();
    format!("{}{:02}", format_local_time("%Y%m%d%H%M%S", seconds), nanos / 10_000_000)
}

/// A time in seconds since 1970, where the machine is, by a format of strftime(3).
pub fn format_local_time(format: &str, seconds: i64) -> String {
    // SAFETY: `tm` is plain data (its pointer may be null), and the call reads and writes only
    // the two locals.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        libc::localtime_r(&raw const seconds, &raw mut tm);
        tm
    };
    format_calendar(format, &tm)
}

/// Formats a time in UTC, in seconds since 1970.
pub fn format_utc_time(format: &str, seconds: i64) -> String {
    // SAFETY: `tm` is plain data (its pointer may be null), and the call reads and writes only
    // the two locals.
    let tm = unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        libc::gmtime_r(&raw const seconds, &raw mut tm);
        tm
    };
    format_calendar(format, &tm)
}

fn format_calendar(format: &str, tm: &libc::tm) -> String {
    let Ok(text) = CString::new(format) else { return String::new() };
    let mut out = vec![0u8; 256 + 8 * format.len()];
    // SAFETY: the call writes at most `out.len()` bytes, and reads the format, which is
    // NUL-terminated, and the time; all of them are live locals.
    let len = unsafe { libc::strftime(out.as_mut_ptr().cast(), out.len(), text.as_ptr(), tm) };
    out.truncate(len);
    String::from_utf8_lossy(&out).into_owned()
}

/// The time since 1970.
pub fn wall_time() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// Seconds and nanoseconds since 1970.
fn now() -> (libc::time_t, u32) {
    let since = wall_time();
    (since.as_secs() as libc::time_t, since.subsec_nanos())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_that_of_date() {
        for seconds in [0, 1_700_000_000, 1_790_000_000] {
            let date = |zone: &[&str], format: &str| {
                let mut date = std::process::Command::new("date");
                date.args(zone).args(["-d", &format!("@{seconds}"), &format!("+{format}")]);
                let out = date.env("LC_ALL", "C").output().unwrap().stdout;
                String::from_utf8(out).unwrap().trim_end().to_owned()
            };
            let format = "%a %b %e %H:%M:%S %Y";
            assert_eq!(local_time_of(seconds), date(&[], format));
            assert_eq!(format_utc_time("%FT%T", seconds), date(&["-u"], "%FT%T"));
        }
        assert_eq!(local_stamp().len(), 16);
    }
}
