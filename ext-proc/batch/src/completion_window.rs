//! The time in which a batch must be complete.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The longest window, in seconds: OpenAI's only one.
const SECONDS_MAX: u32 = 24 * 3_600;

/// The time in which a batch must be complete: `24h` as in OpenAI's API, or less, such as `90m` or `600s`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CompletionWindow {
    seconds: u32,
}

/// A completion window that is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no completion window: write `24h`, or a shorter time such as `90m` or `600s`, of at least one second"
)]
pub struct CompletionWindowError(String);

impl CompletionWindow {
    /// OpenAI's window.
    pub const DAY: Self = Self {
        seconds: SECONDS_MAX,
    };

    /// Creates a window of whole seconds, within the bounds.
    pub(crate) fn from_seconds(seconds: i64) -> Self {
        let seconds = seconds.clamp(1, i64::from(SECONDS_MAX));
        Self {
            seconds: u32::try_from(seconds).unwrap_or(SECONDS_MAX),
        }
    }

    /// Length in seconds.
    #[must_use]
    pub fn seconds(self) -> i64 {
        i64::from(self.seconds)
    }

    /// Length in milliseconds.
    #[must_use]
    pub fn milliseconds(self) -> i64 {
        self.seconds() * 1_000
    }
}

impl FromStr for CompletionWindow {
    type Err = CompletionWindowError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || CompletionWindowError(text.chars().take(32).collect());
        let (number, unit) = text
            .char_indices()
            .next_back()
            .map(|(at, unit)| (text.get(..at).unwrap_or_default(), unit))
            .ok_or_else(error)?;
        let unit_s = match unit {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            _ => return Err(error()),
        };
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        let number: Option<u32> = number.parse().ok().filter(|_| is_number);
        let seconds = number.and_then(|number| number.checked_mul(unit_s));
        match seconds {
            Some(seconds @ 1..=SECONDS_MAX) => Ok(Self { seconds }),
            _ => Err(error()),
        }
    }
}

impl fmt::Display for CompletionWindow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.seconds {
            seconds if seconds % 3_600 == 0 => write!(formatter, "{}h", seconds / 3_600),
            seconds if seconds % 60 == 0 => write!(formatter, "{}m", seconds / 60),
            seconds => write!(formatter, "{seconds}s"),
        }
    }
}

impl Serialize for CompletionWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CompletionWindow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn windows_of_a_day_and_less_are_read() {
        for (text, seconds) in [("24h", 86_400), ("90m", 5_400), ("600s", 600), ("1s", 1)] {
            let window: CompletionWindow = text.parse().unwrap();
            assert_eq!(window.seconds(), seconds);
        }
        assert_eq!(
            "3600s".parse::<CompletionWindow>().unwrap().to_string(),
            "1h"
        );
        for text in [
            "",
            "h",
            "24",
            "0s",
            "25h",
            "-1h",
            "+1h",
            "1.5h",
            "24 h",
            "1d",
            "99999999999h",
            "ä",
        ] {
            assert!(text.parse::<CompletionWindow>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_window_survives_its_text(seconds in 1..=SECONDS_MAX) {
            let window = CompletionWindow { seconds };
            prop_assert_eq!(window.to_string().parse(), Ok(window));
        }

        #[test]
        fn any_text_is_read_or_refused(text in ".{0,12}") {
            let _ = text.parse::<CompletionWindow>();
        }
    }
}
