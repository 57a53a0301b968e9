//! Line charts, as text for a terminal and as SVG.

use std::fmt::Write;

/// One line of a chart.
#[derive(Clone, Debug)]
pub struct Line {
    /// What the legend calls it.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
}

/// A chart with one or more lines over axes that begin at 0, or at a power of ten where x is
/// logarithmic.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// Above the chart.
    pub title: String,
    /// What x is, with its unit.
    pub x_label: String,
    /// What y is, with its unit.
    pub y_label: String,
    /// Whether x is on a logarithmic axis; only points with x above 0 are then shown.
    pub log_x: bool,
    /// The lines.
    pub lines: Vec<Line>,
}

/// From data to a share of the axis, and its ticks.
struct Axis {
    low: f64,
    high: f64,
    log: bool,
    ticks: Vec<f64>,
}

impl Axis {
    fn new(values: impl Iterator<Item = f64> + Clone, log: bool) -> Self {
        let values = values.filter(|&v| v.is_finite() && (!log || v > 0.0));
        let high = values.clone().fold(0.0, f64::max);
        let high = if high > 0.0 { high } else { 1.0 };
        if log {
            let low = values.fold(high, f64::min).log10().floor();
            let high = high.log10().ceil().max(low + 1.0);
            let ticks = (low as i32..=high as i32).map(|power| 10f64.powi(power));
            return Self {
                low,
                high,
                log,
                ticks: ticks.collect(),
            };
        }
        let step = nice_step(high / 5.0);
        let steps = (high / step - 1e-9).ceil().max(1.0);
        Self {
            low: 0.0,
            high: steps * step,
            log,
            ticks: (0..=steps as u32).map(|i| f64::from(i) * step).collect(),
        }
    }

    fn share(&self, value: f64) -> f64 {
        let value = if self.log { value.log10() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }
}

/// The next of 1, 2, 2.5 and 5 times a power of ten.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    let nice = [1.0, 2.0, 2.5, 5.0, 10.0];
    let found = nice.into_iter().find(|n| n * power >= least * 0.999);
    found.unwrap_or(10.0) * power
}

fn tick_text(value: f64) -> String {
    if value != 0.0 && !(1e-3..1e6).contains(&value.abs()) {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

const MARKS: [char; 6] = ['●', '○', '+', '×', '▪', '◇'];
const COLOURS: [&str; 6] = [
    "#1b6ca8", "#c8553d", "#3a7d44", "#7b4b94", "#b8860b", "#555555",
];

impl Plot {
    fn axes(&self) -> (Axis, Axis) {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let x = Axis::new(points.clone().map(|point| point.0), self.log_x);
        (x, Axis::new(points.map(|point| point.1), false))
    }

    fn shown<'a>(&'a self, line: &'a Line) -> impl Iterator<Item = (f64, f64)> + 'a {
        let points = line.points.iter().copied();
        points.filter(|(x, y)| x.is_finite() && y.is_finite() && (!self.log_x || *x > 0.0))
    }

    /// The chart in characters: so many columns and rows of them, axes apart.
    #[must_use]
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
            labels[rows - 1 - row] = tick_text(tick);
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

    /// The chart as an SVG document, for a file of its own.
    #[must_use]
    pub fn svg(&self) -> String {
        const LEFT: f64 = 80.0;
        const TOP: f64 = 50.0;
        const WIDE: f64 = 640.0;
        const HIGH: f64 = 360.0;
        let (x_axis, y_axis) = self.axes();
        let across = |x: f64| LEFT + x_axis.share(x) * WIDE;
        let down = |y: f64| TOP + (1.0 - y_axis.share(y)) * HIGH;
        let (right, bottom) = (LEFT + WIDE, TOP + HIGH);
        let height = bottom + 60.0 + 20.0 * self.lines.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 {height}\" width=\"760\" \
             height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\" fill=\"#222\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"400\" y=\"26\" font-size=\"16\" text-anchor=\"middle\">{}</text>\n",
            escaped(&self.title)
        );
        for &tick in &x_axis.ticks {
            let (x, name) = (across(tick), tick_text(tick));
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                bottom + 18.0
            );
        }
        for &tick in &y_axis.ticks {
            let (y, name) = (down(tick), tick_text(tick));
            let _ = writeln!(
                svg,
                "<path d=\"M{LEFT} {y:.1}H{right}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                LEFT - 8.0,
                y + 4.0
            );
        }
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#222\"/>\n\
             <text x=\"400\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(20 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            bottom + 40.0,
            escaped(&self.x_label),
            TOP + HIGH / 2.0,
            escaped(&self.y_label)
        );
        for (at, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let points: Vec<String> = self
                .shown(line)
                .map(|(x, y)| format!("{:.1},{:.1}", across(x), down(y)))
                .collect();
            let y = bottom + 62.0 + 20.0 * at as f64;
            let _ = writeln!(
                svg,
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>\n\
                 <path d=\"M{LEFT} {:.1}h24\" stroke=\"{colour}\" stroke-width=\"3\"/>\
                 <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                points.join(" "),
                y - 4.0,
                LEFT + 32.0,
                escaped(&line.name)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(log_x: bool) -> Plot {
        let line = |name: &str, points: &[(f64, f64)]| Line {
            name: name.to_owned(),
            points: points.to_vec(),
        };
        Plot {
            title: "a < b & c".to_owned(),
            x_label: "GiB".to_owned(),
            y_label: "ratio".to_owned(),
            log_x,
            lines: vec![
                line("one", &[(0.0, 1.0), (1.0, 0.5), (100.0, 0.0)]),
                line("two", &[(f64::NAN, 1.0)]),
            ],
        }
    }

    #[test]
    fn a_chart_in_characters() {
        let text = plot(false).text(21, 5);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "a < b & c");
        assert_eq!(lines[2], "  1 ┤●", "{text}");
        assert_eq!(lines[6], "  0 ┤                    ●", "{text}");
        assert_eq!(lines[8].split_whitespace().last(), Some("100"));
        assert!(text.contains("● one") && text.contains("○ two"));
    }

    #[test]
    fn a_chart_in_svg() {
        for log_x in [false, true] {
            let svg = plot(log_x).svg();
            assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
            assert!(svg.contains("a &lt; b &amp; c") && !svg.contains("NaN"));
            assert_eq!(svg.matches("<polyline").count(), 2);
            assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        }
        assert!(Plot::default().svg().contains("</svg>"), "nothing to show");
        assert!(!Plot::default().text(40, 10).is_empty());
    }

    #[test]
    fn ticks_are_round_numbers() {
        let axis = Axis::new([0.37, 9.3].into_iter(), false);
        assert_eq!(axis.ticks, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        let axis = Axis::new([0.37, 93.0].into_iter(), true);
        assert_eq!(axis.ticks, [0.1, 1.0, 10.0, 100.0]);
        assert_eq!([0.25, 10.0, 1e-6].map(tick_text), ["0.25", "10", "1e-6"]);
    }
}
