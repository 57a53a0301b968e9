//! Hit ratios over time, drawn as SVG.

use super::html::escaped;
use crate::history::{Line, STEP_SECONDS};
use std::fmt::Write as _;

/// Colours that those who do not tell red from green can tell apart; `page.css` has as many.
pub(super) const COLOURS: usize = 6;
/// Seconds that are shown.
const SPAN: f64 = 900.0;
/// The drawing, in its own units.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 210.0;
const LEFT: f64 = 40.0;
const RIGHT: f64 = 472.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 184.0;
/// Steps over which one ratio is taken, for a line that is not all teeth.
const SMOOTH: usize = 3;

/// A drawing of ratios, from 0 at the bottom to 1 at the top.
pub(super) struct Frame(String);

impl Frame {
    /// A drawing without lines; `title` is for those who do not see it.
    pub(super) fn new(title: &str) -> Self {
        let mut svg = format!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=img aria-label=\"{}\">\n",
            escaped(title)
        );
        for percent in [0, 25, 50, 75, 100] {
            let y = Self::height(f64::from(percent) / 100.0);
            // A String takes everything, here and below.
            let _ = writeln!(
                svg,
                "<line class=grid x1={LEFT} x2={RIGHT} y1={y:.1} y2={y:.1} /><text x={} y={:.1} text-anchor=end>{percent} %</text>",
                LEFT - 5.0,
                y + 4.0
            );
        }
        Self(svg)
    }

    /// How high a ratio is drawn.
    pub(super) fn height(ratio: f64) -> f64 {
        BOTTOM - ratio.clamp(0.0, 1.0) * (BOTTOM - TOP)
    }

    /// Where something is drawn that is a share of the way from the left to the right.
    pub(super) fn along(share: f64) -> f64 {
        LEFT + share.clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    /// A text under the drawing, at a share of its width.
    pub(super) fn tick(&mut self, share: f64, text: &str) {
        let anchor = match share {
            0.0 => "start",
            share if share >= 1.0 => "end",
            _ => "middle",
        };
        let _ = writeln!(
            self.0,
            "<text x={:.1} y={} text-anchor={anchor}>{}</text>",
            Self::along(share),
            BOTTOM + 18.0,
            escaped(text)
        );
    }

    /// A line of a colour, in runs of points; a run of one point is a dot.
    pub(super) fn line(&mut self, colour: usize, name: &str, runs: &[String]) {
        let (class, name) = (colour % COLOURS, escaped(name));
        let _ = write!(
            self.0,
            "<g class=\"line c{class}\" data-name=\"{name}\"><title>{name}</title>"
        );
        for run in runs {
            let _ = match run.split_once(',') {
                Some((x, y)) if !run.contains(' ') => {
                    write!(self.0, "<circle cx={x} cy={y} r=2 />")
                }
                _ => write!(self.0, "<polyline points=\"{run}\" />"),
            };
        }
        self.0.push_str("</g>\n");
    }

    /// The drawing.
    pub(super) fn svg(self) -> String {
        self.0 + "</svg>\n"
    }
}

/// The chart of these lines until now, in seconds since the start.
pub(super) fn chart(lines: &[&Line], now: f64) -> String {
    let mut frame = Frame::new("Hit ratios of the last 15 minutes");
    for minutes in [15, 10, 5, 0] {
        let text = match minutes {
            15 => "15 minutes ago".to_owned(),
            0 => "now".to_owned(),
            minutes => format!("\u{2212}{minutes}"),
        };
        frame.tick(1.0 - f64::from(minutes) * 60.0 / SPAN, &text);
    }
    for (at, line) in lines.iter().enumerate() {
        let written = |run: Vec<(f64, f64)>| {
            let points = run.iter().map(|(x, y)| format!("{x:.1},{y:.1}"));
            points.collect::<Vec<_>>().join(" ")
        };
        let runs: Vec<_> = runs(line, now).into_iter().map(written).collect();
        frame.line(at, &line.name, &runs);
    }
    frame.svg()
}

/// The points of a line in the drawing, in runs: while nothing is asked for there is no ratio.
fn runs(line: &Line, now: f64) -> Vec<Vec<(f64, f64)>> {
    let mut runs = vec![Vec::new()];
    let points: Vec<_> = line.points.iter().collect();
    for at in 1..points.len() {
        let before = points[at.saturating_sub(SMOOTH)];
        let age = now - points[at].at;
        let asked = points[at].requests > points[at - 1].requests;
        match points[at].ratio_since(before) {
            Some(ratio) if asked && age <= SPAN + STEP_SECONDS => {
                let x = RIGHT - age.clamp(0.0, SPAN) / SPAN * (RIGHT - LEFT);
                if let Some(run) = runs.last_mut() {
                    run.push((x, Frame::height(ratio)));
                }
            }
            _ => runs.push(Vec::new()),
        }
    }
    runs.retain(|run| !run.is_empty());
    runs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Point;

    #[test]
    fn a_line_is_as_high_as_its_ratio_and_broken_where_nothing_was_asked() {
        let point = |at: f64, requests, hits| Point { at, requests, hits };
        let line = Line {
            name: "a<".to_owned(),
            points: [
                point(0.0, 0, 0),
                point(5.0, 10, 5),
                point(10.0, 20, 10),
                point(15.0, 20, 10),
                point(20.0, 30, 20),
            ]
            .into(),
        };
        let runs = runs(&line, 20.0);
        let heights: Vec<Vec<f64>> = runs
            .iter()
            .map(|run| run.iter().map(|point| point.1).collect())
            .collect();
        let half = f64::midpoint(TOP, BOTTOM);
        // The last is of the 15 seconds before it: 15 hits of 20.
        assert_eq!(heights, [vec![half, half], vec![Frame::height(0.75)]]);
        assert!((runs[1][0].0 - RIGHT).abs() < 1e-9);
        let svg = chart(&[&line], 20.0);
        assert!(
            svg.contains("polyline") && svg.contains("circle") && !svg.contains("a<"),
            "{svg}"
        );
    }
}
