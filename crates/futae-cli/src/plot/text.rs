//! Charts in characters.

use super::{Plot, tick_text};
use std::fmt::Write;

const MARKS: [char; 6] = ['●', '○', '+', '×', '▪', '◇'];

impl Plot {
    /// The chart in characters: this many columns and rows of them, axes apart.
    pub fn text(&self, columns: usize, rows: usize) -> String {
        let (columns, rows) = (columns.max(10), rows.max(4));
        let (x_axis, y_axis) = self.axes();
        let mut cells = vec![vec![' '; columns]; rows];
        for (line, mark) in self.lines.iter().zip(MARKS.into_iter().cycle()) {
            for (x, y) in self.shown(line) {
                let column = (x_axis.share(x) * (columns - 1) as f64).round() as usize;
                let row = (y_axis.share(y) * (rows - 1) as f64).round() as usize;
                cells[rows - 1 - row][column] = mark;
            }
        }
        let mut labels = vec![String::new(); rows];
        for &tick in &y_axis.ticks {
            let row = (y_axis.share(tick) * (rows - 1) as f64).round() as usize;
            labels[rows - 1 - row] = self.y_text(tick);
        }
        let width = labels.iter().map(String::len).max().unwrap_or(0);
        let mut text = format!("{}\n{}\n", self.title, self.y_label);
        for (label, row) in labels.iter().zip(&cells) {
            let edge = if label.is_empty() { '│' } else { '┤' };
            let row: String = row.iter().collect();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{label:>width$} {edge}{}", row.trim_end());
        }
        let (mut rule, mut names) = (vec!['─'; columns], vec![' '; columns + 12]);
        let mut free = 0;
        for &tick in &x_axis.ticks {
            let column = (x_axis.share(tick) * (columns - 1) as f64).round() as usize;
            rule[column] = '┴';
            let name = tick_text(tick);
            let begin = column.saturating_sub(name.len() / 2);
            if begin >= free && begin + name.len() <= names.len() {
                for (at, letter) in (begin..).zip(name.chars()) {
                    names[at] = letter;
                }
                free = begin + name.len() + 1;
            }
        }
        let (rule, names): (String, String) = (rule.iter().collect(), names.iter().collect());
        let blank = " ".repeat(width);
        let _ = writeln!(text, "{blank} └{rule}\n{blank}  {}", names.trim_end());
        let _ = writeln!(text, "{blank}  {}", self.x_label);
        for (line, mark) in self.lines.iter().zip(MARKS.into_iter().cycle()) {
            let _ = writeln!(text, "{blank}  {mark} {}", line.name);
        }
        text
    }
}
