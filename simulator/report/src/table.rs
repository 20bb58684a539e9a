//! Tables for a terminal.

/// Lines of columns, the first flush left, numbers flush right, with a rule below the first line.
#[must_use]
pub fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let widths: Vec<usize> = (0..N)
        .map(|column| {
            rows.iter()
                .filter_map(|row| row.get(column))
                .map(String::len)
                .max()
                .unwrap_or(0)
        })
        .collect();
    let mut table = String::new();
    for (index, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match column {
                0 => line.push_str(&format!("{cell:<width$}")),
                _ => line.push_str(&format!("  {cell:>width$}")),
            }
        }
        table.push_str(line.trim_end());
        table.push('\n');
        if index == 0 {
            table.push_str(&"-".repeat(line.len()));
            table.push('\n');
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["name", "ms"], ["a", "12.5"], ["long", "7"]].map(|row| row.map(String::from));
        let table = columns(&rows);
        assert_eq!(table, "name    ms\n----------\na     12.5\nlong     7\n");
    }
}
