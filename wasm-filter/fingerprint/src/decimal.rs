//! Writing decimal numbers without the standard library's formatting, which is slow in a sandbox; every request writes several.

use alloc::string::String;

/// The most digits of a `u64`.
const DIGITS_MAX: usize = 20;

/// Appends a number.
pub(crate) fn push(text: &mut String, mut number: u64) {
    let mut digits = [0; DIGITS_MAX];
    let mut start = DIGITS_MAX;
    for (place, digit) in digits.iter_mut().enumerate().rev() {
        *digit = (number % 10) as u8;
        start = place;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    for digit in digits.iter().skip(start) {
        text.push(char::from(b'0' + digit));
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn numbers_are_written_as_the_standard_library_writes_them() {
        for number in [0, 1, 9, 10, 99, 100, 1_234_567_890, u64::MAX] {
            let mut text = String::from("x");
            push(&mut text, number);
            assert_eq!(text, "x".to_string() + &number.to_string());
        }
    }
}
