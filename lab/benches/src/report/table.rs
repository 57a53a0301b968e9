//! Tables of text.

/// A title, a header, and rows as long as the header.
pub struct Table {
    title: String,
    header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(title: &str, header: Vec<String>) -> Self {
        Self {
            title: title.to_owned(),
            header,
            rows: Vec::new(),
        }
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.header).chain(&self.rows)
    }

    /// Columns side by side.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.lines().filter_map(|line| line.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..self.header.len()).map(width).collect();
        let mut lines = vec![self.title.clone()];
        lines.extend(self.lines().map(|line| {
            let cells = line.iter().zip(&widths);
            let padded: Vec<String> = cells
                .map(|(cell, width)| format!("{cell:<width$}"))
                .collect();
            format!("  {}", padded.join("  ").trim_end())
        }));
        lines.join("\n")
    }

    /// A table of markdown below its title.
    pub fn markdown(&self) -> String {
        let mut lines = vec![format!("{}:\n", self.title)];
        for (at, line) in self.lines().enumerate() {
            lines.push(format!("| {} |", line.join(" | ")));
            if at == 0 {
                lines.push(format!("|{}", "---|".repeat(line.len())));
            }
        }
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds() {
        let mut table = Table::new("Speeds", vec!["server".into(), "IOPS".into()]);
        table.rows.push(vec!["a µ".into(), "1".into()]);
        assert_eq!(table.text(), "Speeds\n  server  IOPS\n  a µ     1");
        let expected = "Speeds:\n\n| server | IOPS |\n|---|---|\n| a µ | 1 |";
        assert_eq!(table.markdown(), expected);
    }
}
