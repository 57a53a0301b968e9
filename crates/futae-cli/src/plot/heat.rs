//! Heat maps in SVG: a table whose cells are coloured by their values, each with its value in it.

use super::escaped;
use std::fmt::Write;

/// Ratios by two sizes.
#[derive(Clone, Debug, Default)]
pub struct HeatMap {
    /// Above the map.
    pub title: String,
    /// What the columns are.
    pub x_label: String,
    /// What the rows are.
    pub y_label: String,
    /// The columns' names, from the left.
    pub columns: Vec<String>,
    /// The rows' names, from below.
    pub rows: Vec<String>,
    /// Fractions by row and column; none where there is none.
    pub values: Vec<Vec<Option<f64>>>,
}

/// The size of a cell, and where the first one is.
const WIDTH: f64 = 84.0;
const HEIGHT: f64 = 40.0;
const LEFT: f64 = 120.0;
const TOP: f64 = 48.0;

impl HeatMap {
    /// The map as an SVG document.
    pub fn svg(&self) -> String {
        let width = (LEFT + WIDTH * self.columns.len() as f64 + 24.0).max(560.0);
        let bottom = TOP + HEIGHT * self.rows.len() as f64;
        let height = bottom + 60.0;
        let known = || self.values.iter().flatten().flatten().copied();
        let (low, high) = (known().fold(1.0, f64::min), known().fold(0.0, f64::max));
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\" text-anchor=\"middle\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n<text x=\"{}\" y=\"28\" font-size=\"15\">{}</text>\n",
            width / 2.0,
            escaped(&self.title)
        );
        for (row, name) in self.rows.iter().enumerate() {
            let y = bottom - HEIGHT * (row as f64 + 0.5);
            // Writing to a string cannot fail.
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                escaped(name)
            );
            for (column, label) in self.columns.iter().enumerate() {
                let Some(Some(value)) = self.values.get(row).and_then(|row| row.get(column)) else {
                    continue;
                };
                let share = if high > low {
                    (value - low) / (high - low)
                } else {
                    0.5
                };
                let x = LEFT + WIDTH * column as f64;
                let _ = writeln!(
                    svg,
                    "<g><title>{} {}, {} {}: {:.2} %</title><rect class=\"cell\" x=\"{x}\" y=\"{}\" width=\"{WIDTH}\" \
                     height=\"{HEIGHT}\" fill=\"{}\" stroke=\"#fff\"/><text x=\"{}\" y=\"{}\" fill=\"{}\">{:.2} %</text></g>",
                    escaped(&self.x_label),
                    escaped(label),
                    escaped(&self.y_label),
                    escaped(name),
                    value * 100.0,
                    y - HEIGHT / 2.0,
                    shade(share),
                    x + WIDTH / 2.0,
                    y + 4.0,
                    if share > 0.5 { "#fff" } else { "#222" },
                    value * 100.0
                );
            }
        }
        for (column, name) in self.columns.iter().enumerate() {
            let x = LEFT + WIDTH * (column as f64 + 0.5);
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{}\">{}</text>",
                bottom + 20.0,
                escaped(name)
            );
        }
        let middle = LEFT + WIDTH * self.columns.len() as f64 / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"{middle}\" y=\"{}\">{}</text>\n<text transform=\"translate(20 {}) rotate(-90)\">{}</text>\n</svg>",
            bottom + 44.0,
            escaped(&self.x_label),
            f64::midpoint(TOP, bottom),
            escaped(&self.y_label)
        );
        svg
    }
}

/// From nearly white to a dark blue, on which white is read well.
fn shade(share: f64) -> String {
    let between =
        |light: f64, dark: f64| (light + (dark - light) * share.clamp(0.0, 1.0)).round() as u8;
    let (red, green, blue) = (
        between(232.0, 0.0),
        between(241.0, 73.0),
        between(248.0, 125.0),
    );
    format!("#{red:02x}{green:02x}{blue:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_value_is_in_its_cell() {
        let map = HeatMap {
            title: "a < b".to_owned(),
            columns: vec!["1".to_owned(), "2".to_owned()],
            rows: vec!["3".to_owned(), "4".to_owned()],
            values: vec![vec![Some(0.125), Some(0.5)], vec![None, Some(0.75)]],
            ..HeatMap::default()
        };
        let svg = map.svg();
        assert_eq!(svg.matches("class=\"cell\"").count(), 3);
        for value in ["12.50 %</text>", "50.00 %</text>", "75.00 %</text>"] {
            assert_eq!(svg.matches(value).count(), 1, "{value}");
        }
        assert!(svg.contains("a &lt; b") && svg.ends_with("</svg>\n") && !svg.contains("NaN"));
        assert!(HeatMap::default().svg().contains("</svg>"));
        assert_ne!(shade(0.0), shade(1.0));
    }
}
