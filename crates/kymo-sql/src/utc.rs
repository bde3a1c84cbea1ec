//! Times as text in UTC.

use kymo_kernel::calendar::format_utc_time;

/// Nanoseconds since 1970 as `2026-11-29T12:00:00.000000000Z`.
pub fn utc_text(nanos: u64) -> String {
    let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let time = format_utc_time("%Y-%m-%dT%H:%M:%S", seconds.cast_signed());
    format!("{time}.{nanos:09}Z")
}

#[cfg(test)]
mod tests {
    use super::utc_text;

    #[test]
    fn days_are_those_of_the_calendar() {
        // By date -u -d @SECONDS.
        let of = |seconds: u64| utc_text(seconds * 1_000_000_000 + 7);
        assert_eq!(of(0), "1970-01-01T00:00:00.000000007Z");
        assert_eq!(of(951_782_399), "2000-02-28T23:59:59.000000007Z");
        assert_eq!(of(951_782_400), "2000-02-29T00:00:00.000000007Z");
        assert_eq!(of(1_709_251_200), "2024-03-01T00:00:00.000000007Z");
        assert_eq!(of(1_798_761_599), "2026-12-31T23:59:59.000000007Z");
        assert_eq!(of(4_102_444_800), "2100-01-01T00:00:00.000000007Z");
    }
}
