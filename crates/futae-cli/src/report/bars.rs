//! Bar charts of ratios.

use crate::plot::{Axis, colour, escaped, series_class, tick_text};
use std::fmt::Write;

/// A bar.
pub struct Bar {
    /// What it stands for.
    pub name: String,
    /// A fraction from 0 to 1; none where nothing was asked for.
    pub ratio: Option<f64>,
    /// Which colour it has; none for what is not a cache.
    pub line: Option<usize>,
}

/// Bars over one axis.
pub struct Bars {
    /// What they have in common; not shown where it is empty.
    pub title: String,
    /// What the ratio is.
    pub label: &'static str,
    /// The bars, from the top.
    pub bars: Vec<Bar>,
}

const NAME_LETTERS: usize = 34;
const LETTER: f64 = 7.0;
const ROW: f64 = 26.0;
const WIDTH: f64 = 720.0;
const NARROW: f64 = 350.0;

impl Bars {
    /// The largest ratio.
    pub fn largest(&self) -> f64 {
        let ratios = self.bars.iter().filter_map(|bar| bar.ratio);
        ratios.fold(0.0, f64::max)
    }

    /// The chart, over an axis up to `largest`. Narrow ones stand side by side.
    pub fn figure(&self, largest: f64, is_narrow: bool) -> String {
        let width = if is_narrow { NARROW } else { WIDTH };
        let letters = self.bars.iter().map(|bar| short(&bar.name).chars().count());
        let left = 14.0 + LETTER * letters.max().unwrap_or(0) as f64;
        let (right, top) = (width - 62.0, if self.title.is_empty() { 6.0 } else { 28.0 });
        let bottom = top + ROW * self.bars.len() as f64 + 4.0;
        let height = bottom + 42.0;
        let axis = Axis::new(std::iter::once(largest), false);
        let across = |ratio: f64| left + axis.share(ratio) * (right - left);
        let mut svg = format!(
            "<svg class=\"plot bars\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
             aria-label=\"{} {}\" font-size=\"13\">\n",
            escaped(&self.title),
            self.label
        );
        // Writing to a string cannot fail.
        if !self.title.is_empty() {
            let title = escaped(&self.title);
            let _ = writeln!(svg, "<text class=\"head\" x=\"8\" y=\"18\">{title}</text>");
        }
        let every = if is_narrow { 2 } else { 1 };
        for &tick in axis.ticks.iter().step_by(every) {
            let (x, name) = (across(tick), tick_text(100.0 * tick));
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} {top}V{bottom}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name} %</text>",
                bottom + 16.0
            );
        }
        for (at, bar) in self.bars.iter().enumerate() {
            let y = top + ROW * at as f64 + 4.0;
            let (class, colour) = match bar.line {
                Some(line) => (series_class(line), colour(line)),
                None => ("store".to_owned(), "#999999"),
            };
            let ratio = bar.ratio.unwrap_or(0.0);
            let shown = match bar.ratio {
                Some(ratio) => format!("{:.1} %", 100.0 * ratio),
                None => "–".to_owned(),
            };
            let _ = writeln!(
                svg,
                "<g class=\"bar {class}\" data-ratio=\"{ratio}\"><title>{}: {shown}</title>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>\
                 <rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.2}\" height=\"18\" \
                 fill=\"{colour}\"/><text x=\"{:.1}\" y=\"{:.1}\">{shown}</text></g>",
                escaped(&bar.name),
                left - 8.0,
                y + 13.5,
                escaped(&short(&bar.name)),
                across(ratio) - left,
                across(ratio) + 6.0,
                y + 13.5,
            );
        }
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M{left:.1} {top}V{bottom}\" stroke=\"#222\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n</svg>",
            f64::midpoint(left, right),
            bottom + 36.0,
            self.label
        );
        svg
    }
}

/// A name that leaves room for its bar.
fn short(name: &str) -> String {
    if name.chars().count() <= NAME_LETTERS {
        return name.to_owned();
    }
    let begin: String = name.chars().take(NAME_LETTERS - 1).collect();
    format!("{begin}…")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bar_is_drawn_and_no_name_is_markup() {
        let bar = |name: &str, ratio| Bar {
            name: name.to_owned(),
            ratio,
            line: Some(1),
        };
        let bars = Bars {
            title: "<i>".to_owned(),
            label: "hit ratio",
            bars: vec![bar("<script>", Some(0.5)), bar(&"x".repeat(90), None)],
        };
        assert_eq!(bars.largest(), 0.5);
        let figure = bars.figure(0.5, false);
        assert_eq!(figure.matches("<rect").count(), 2);
        assert!(
            figure.contains("50.0 %") && figure.contains(">–<"),
            "{figure}"
        );
        assert!(
            !figure.contains("<script") && !figure.contains("<i>"),
            "{figure}"
        );
        assert!(!figure.contains("NaN"));
    }
}
