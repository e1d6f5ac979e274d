//! Times in readable form.

use std::time::{SystemTime, UNIX_EPOCH};

/// Now, in Unix milliseconds.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// An instant as `2026-11-16T19:22:26Z`. UTC needs no table of time zones.
pub(super) fn utc(ms: u64) -> String {
    let (days, seconds) = (ms / 86_400_000, ms / 1000 % 86_400);
    // Years begin in March here, so that a leap day is the last day; an era has 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// A duration in its two largest units: `3 s`, `5 min 2 s`, `2 h 13 min`, `4 d 1 h`.
pub(super) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    let two = |large: u64, name: &str, small: u64, less: &str| match small {
        0 => format!("{large} {name}"),
        _ => format!("{large} {name} {small} {less}"),
    };
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => two(seconds / 60, "min", seconds % 60, "s"),
        3600..86_400 => two(seconds / 3600, "h", seconds / 60 % 60, "min"),
        _ => two(seconds / 86_400, "d", seconds / 3600 % 24, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_match_the_calendar() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_799_999, "2000-02-29T23:59:59Z"),
            (1_709_251_199_000, "2024-02-29T23:59:59Z"),
            (1_794_795_830_442, "2026-11-16T02:23:50Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(utc(ms), text);
        }
    }

    #[test]
    fn durations_have_at_most_two_units() {
        for (ms, text) in [(999, "0 s"), (59_000, "59 s"), (300_000, "5 min"), (302_000, "5 min 2 s")] {
            assert_eq!(span(ms), text);
        }
        assert_eq!((span(7_980_000), span(349_200_000)), ("2 h 13 min".to_owned(), "4 d 1 h".to_owned()));
    }
}
