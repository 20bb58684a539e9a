//! Numbers as text: about three significant digits.

/// About three significant digits, without an exponent: `0.0123`, `1.23`, `123`, `12345`; `∞` for infinity.
pub fn short(value: f64) -> String {
    let size = value.abs();
    if value == f64::INFINITY {
        "∞".to_owned()
    } else if !value.is_finite() {
        "-".to_owned()
    } else if size >= 100.0 || size == 0.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.1 {
        format!("{value:.2}")
    } else {
        format!("{value:.4}")
    }
}

/// A number at an axis: whole where it is, `50` and `0.25`.
pub(crate) fn tick(value: f64) -> String {
    match value == value.round() {
        true => whole(value),
        false => short(value),
    }
}

/// A whole number: `1234`.
pub fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// Two decimal places: `12.34`.
pub fn hundredths(value: f64) -> String {
    format!("{value:.2}")
}

/// A share as a percentage: `41.2 %`.
pub fn percent(share: f64) -> String {
    if share.is_finite() {
        format!("{:.1} %", share * 100.0)
    } else {
        "-".to_owned()
    }
}

/// A time in milliseconds with its unit: `7.5 ms`, `170 ms`, `1.25 s`.
pub fn time_ms(ms: f64) -> String {
    if ms < 1_000.0 {
        format!("{} ms", short(ms))
    } else {
        format!("{} s", short(ms / 1_000.0))
    }
}

/// A ratio: `1.27 ×`.
pub fn times(ratio: f64) -> String {
    format!("{} ×", short(ratio))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_significant_digits() {
        let all: Vec<String> = [0.0, 0.0123, 0.5, 1.2345, 12.345, 12345.6, f64::NAN]
            .map(short)
            .into();
        assert_eq!(short(f64::INFINITY), "∞");
        assert_eq!(all, ["0", "0.0123", "0.50", "1.23", "12.3", "12346", "-"]);
        assert_eq!(
            (percent(0.4123), times(1.2704)),
            ("41.2 %".into(), "1.27 ×".into())
        );
        assert_eq!(
            [tick(50.0), tick(0.25)],
            ["50".to_owned(), "0.25".to_owned()]
        );
        assert_eq!(
            [time_ms(170.2), time_ms(1_254.0)],
            ["170 ms".to_owned(), "1.25 s".to_owned()]
        );
        assert_eq!(
            (whole(12.5), hundredths(0.126)),
            ("12".into(), "0.13".into())
        );
    }
}
