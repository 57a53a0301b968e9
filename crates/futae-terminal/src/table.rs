//! Plain tables for people.

use std::fmt::Write;

/// Rows of cells, the first row being the header; the first column to the left, the others to
/// the right.
#[derive(Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these column heads.
    pub fn new<const N: usize>(heads: [&str; N]) -> Self {
        Self {
            rows: vec![heads.iter().map(|&head| head.to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// The table as text, one line a row, a rule under the header.
    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for (at, row) in self.rows.iter().enumerate() {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                // Writing to a string cannot fail.
                let _ = match column {
                    0 => write!(text, "{cell:<width$}"),
                    _ => write!(text, "  {cell:>width$}"),
                };
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
            if at == 0 {
                let rule = widths.iter().sum::<usize>() + 2 * (columns.max(1) - 1);
                text.push_str(&"─".repeat(rule));
                text.push('\n');
            }
        }
        text
    }
}

/// A ratio as a percentage, `–` where it is undefined.
pub fn percent(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0))
}

/// A count with thin groups of three digits.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(["policy", "hits"]);
        table.row(["lru".to_owned(), "7".to_owned()]);
        table.row(["exclusive".to_owned(), "1,234".to_owned()]);
        let text = table.render();
        let rule = "─".repeat(16);
        assert_eq!(
            text,
            format!("policy      hits\n{rule}\nlru            7\nexclusive  1,234\n")
        );
    }

    #[test]
    fn numbers_are_grouped_and_undefined_ratios_shown_as_such() {
        assert_eq!(
            [count(0), count(999), count(1_234_567)],
            ["0", "999", "1,234,567"]
        );
        assert_eq!([percent(None), percent(Some(0.5714))], ["–", "57.1 %"]);
    }
}
