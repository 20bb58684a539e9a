//! Plain tables for terminals and pipes.

/// Lays rows out in columns under `header`; columns are as wide as what they hold.
pub(super) fn render<const N: usize>(header: [&str; N], rows: &[[String; N]]) -> String {
    let mut widths = header.map(|cell| cell.chars().count());
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let header = header.map(str::to_owned);
    for row in std::iter::once(&header).chain(rows) {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A value that may be unknown.
pub(super) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// A share from 0 to 1 as a percentage.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_lines_end_where_their_text_does() {
        let rows = [["a".into(), "1".into()], ["größer".into(), String::new()]];
        assert_eq!(
            render(["name", "n"], &rows),
            "name    n\na       1\ngrößer\n"
        );
    }
}
