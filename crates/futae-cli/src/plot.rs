//! Line charts: as text for a terminal, as SVG for a file or a page, as PDF and PNG.

mod axis;
mod heat;
#[cfg(feature = "pdf")]
pub(crate) mod pdf;
#[cfg(feature = "png")]
pub(crate) mod png;
mod style;
mod svg;
mod text;

pub use axis::Axis;
pub use axis::{axis_unit, size_text, tick_text};
pub use heat::HeatMap;
use style::Marker;
pub use style::{colour, escaped, series_class};

/// One line of a chart.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// What the legend calls it.
    pub name: String,
    /// Its points, by x.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub look: Look,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// A line only: for many points.
    #[default]
    Line,
    /// A line with a mark at each point: for few.
    Marked,
    /// Marks only: for points that stand for themselves.
    Marks,
    /// A line in the colour of the text, behind all others: for what they are held against.
    Reference,
}

/// A place on the x axis that is pointed out.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What the legend calls it.
    pub name: String,
    /// Where it is.
    pub x: f64,
    /// The line that it belongs to.
    pub line: usize,
}

/// How far a point of a line may be off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bar {
    /// The line that it belongs to.
    pub line: usize,
    /// Where the point is.
    pub x: f64,
    /// The same.
    pub y: f64,
    /// Half of the interval's width.
    pub half: f64,
}

/// What values of y are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scale {
    /// Numbers of any size.
    #[default]
    Number,
    /// Fractions, shown in percent.
    Percent,
}

/// A chart with one or more lines over axes that begin at 0, or at a round number where x is
/// logarithmic.
#[derive(Clone, Debug, Default)]
pub struct Plot {
    /// Above the chart.
    pub title: String,
    /// What x is, with its unit.
    pub x_label: String,
    /// The unit of x alone, for what is said of one point.
    pub x_unit: &'static str,
    /// What y is, with its unit.
    pub y_label: String,
    /// How y is shown.
    pub y_scale: Scale,
    /// Whether x is on a logarithmic axis; only points with x above 0 are then shown.
    pub log_x: bool,
    /// The lines.
    pub lines: Vec<Line>,
    /// What is pointed out.
    pub rules: Vec<Rule>,
    /// Intervals around points.
    pub bars: Vec<Bar>,
}

impl Plot {
    fn axes(&self) -> (Axis, Axis) {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let rules = self.rules.iter().map(|rule| rule.x);
        let x = points.clone().map(|point| point.0).chain(rules);
        let tops = self.bars.iter().map(|bar| bar.y + bar.half);
        let y = points.map(|point| point.1).chain(tops);
        (Axis::new(x, self.log_x), Axis::new(y, false))
    }

    fn shown<'a>(&'a self, line: &'a Line) -> impl Iterator<Item = (f64, f64)> + 'a {
        let points = line.points.iter().copied();
        points.filter(|(x, y)| x.is_finite() && y.is_finite() && (!self.log_x || *x > 0.0))
    }

    fn y_text(&self, value: f64) -> String {
        match self.y_scale {
            Scale::Number => tick_text(value),
            Scale::Percent => format!("{} %", tick_text(value * 100.0)),
        }
    }
}

#[cfg(test)]
mod tests;
