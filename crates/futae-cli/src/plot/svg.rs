//! Charts in SVG: drawn once, for a document of their own or for a place in a page.
//!
//! Colours are attributes, which the style sheet of a page may override by class: `s0` to `s7` for
//! the lines, `ref` for those of reference, `grid`, `axis`.

use super::style::{colour, dashes};
use super::{Axis, Look, Marker, Plot, escaped, series_class, tick_text};
use std::fmt::Write;

/// The size of the drawing and where the axes are in it.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = WIDTH - 22.0;
const TOP: f64 = 16.0;
const BOTTOM: f64 = 356.0;
const HEIGHT: f64 = BOTTOM + 56.0;
/// Of the document around it.
const TITLE_HEIGHT: f64 = 36.0;
const LEGEND_ROW: f64 = 20.0;
const MIDDLE: f64 = f64::midpoint(LEFT, RIGHT);

/// A plot with its axes settled.
struct Drawing<'a> {
    plot: &'a Plot,
    x_axis: Axis,
    y_axis: Axis,
    svg: String,
}

/// A piece of SVG. Writing to a string cannot fail.
macro_rules! add {
    ($svg:expr, $($arguments:tt)*) => {{
        let _ = writeln!($svg, $($arguments)*);
    }};
}

impl Plot {
    /// The chart as an SVG document, for a file of its own, with title and legend.
    pub fn svg(&self) -> String {
        let rows = (self.lines.len() + self.rules.len()) as f64;
        let height = TITLE_HEIGHT + HEIGHT + LEGEND_ROW * rows + 8.0;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"13\" \
             fill=\"#222\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
             <text x=\"{MIDDLE}\" y=\"24\" font-size=\"16\" text-anchor=\"middle\">{}</text>\n\
             <g transform=\"translate(0 {TITLE_HEIGHT})\">\n{}</g>\n",
            escaped(&self.title),
            self.drawn()
        );
        let lines = self.lines.iter().enumerate();
        let lines = lines.map(|(at, line)| (at, line.look, &line.name));
        let rules = self.rules.iter();
        let rules = rules.map(|rule| (rule.line, Look::Line, &rule.name));
        for (row, (line, look, name)) in lines.chain(rules).enumerate() {
            let is_rule = row >= self.lines.len();
            let y = TITLE_HEIGHT + HEIGHT + LEGEND_ROW * (row as f64 + 0.5);
            add!(
                svg,
                "<g transform=\"translate({LEFT} {y})\">{}\
                 <text x=\"38\" y=\"4\">{}</text></g>",
                swatch(line, look, is_rule),
                escaped(name)
            );
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// The chart for a place in an HTML page, which has its title and its legend beside it.
    pub fn figure(&self) -> String {
        format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
             aria-label=\"{}\" font-size=\"13\">\n{}</svg>\n",
            escaped(&self.title),
            self.drawn()
        )
    }

    /// What stands in the legend of a page for a line.
    pub fn legend_key(line: usize, look: Look) -> String {
        key(&swatch(line, look, false))
    }

    /// What stands in the legend of a page for what is pointed out of a line.
    pub fn rule_key(line: usize) -> String {
        key(&swatch(line, Look::Line, true))
    }

    fn drawn(&self) -> String {
        let (x_axis, y_axis) = self.axes();
        let mut drawing = Drawing {
            plot: self,
            x_axis,
            y_axis,
            svg: String::new(),
        };
        drawing.axes();
        drawing.rules();
        let is_behind = |at: &usize| self.lines[*at].look == Look::Reference;
        let (behind, before): (Vec<_>, Vec<_>) = (0..self.lines.len()).partition(is_behind);
        behind
            .into_iter()
            .chain(before)
            .for_each(|at| drawing.line(at));
        drawing.svg
    }
}

fn key(swatch: &str) -> String {
    format!(
        "<svg class=\"key\" width=\"30\" height=\"14\" viewBox=\"-1 -7 30 14\" \
         aria-hidden=\"true\">{swatch}</svg>"
    )
}

/// A piece of a line, around y = 0.
fn swatch(line: usize, look: Look, is_rule: bool) -> String {
    let (class, colour, dashes) = looks(line, look);
    let dashes = if is_rule { RULE_DASHES } else { dashes };
    let stroke = match look {
        Look::Marks => String::new(),
        _ => {
            format!("<path class=\"line\" fill=\"none\" d=\"M0 0h28\" stroke-width=\"2\"{dashes}/>")
        }
    };
    let mark = match look {
        Look::Line | Look::Reference => String::new(),
        _ => format!(
            "<path fill=\"{colour}\" d=\"{}\"/>",
            Marker(line).outline(14.0, 0.0)
        ),
    };
    format!("<g class=\"series {class}\" stroke=\"{colour}\">{stroke}{mark}</g>")
}

/// Class, colour and dashes.
fn looks(line: usize, look: Look) -> (String, &'static str, &'static str) {
    match look {
        Look::Reference => ("ref".to_owned(), "#222", ""),
        _ => (series_class(line), colour(line), dashes(line)),
    }
}

const RULE_DASHES: &str = " stroke-dasharray=\"4 4\"";

impl Drawing<'_> {
    fn across(&self, x: f64) -> f64 {
        LEFT + self.x_axis.share(x) * (RIGHT - LEFT)
    }

    fn down(&self, y: f64) -> f64 {
        BOTTOM - self.y_axis.share(y) * (BOTTOM - TOP)
    }

    fn axes(&mut self) {
        for &tick in &self.x_axis.ticks {
            let (x, name) = (self.across(tick), tick_text(tick));
            add!(
                self.svg,
                "<path class=\"grid\" d=\"M{x:.1} {TOP}V{BOTTOM}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{name}</text>",
                BOTTOM + 18.0
            );
        }
        for &tick in &self.y_axis.ticks {
            let (y, name) = (self.down(tick), self.plot.y_text(tick));
            add!(
                self.svg,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\" stroke=\"#e4e4e4\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{name}</text>",
                LEFT - 8.0,
                y + 4.0
            );
        }
        add!(
            self.svg,
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}\" fill=\"none\" \
             stroke=\"#222\"/>\n<text x=\"{MIDDLE}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n\
             <text transform=\"translate(15 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            BOTTOM + 42.0,
            escaped(&self.plot.x_label),
            f64::midpoint(TOP, BOTTOM),
            escaped(&self.plot.y_label)
        );
    }

    fn rules(&mut self) {
        for rule in &self.plot.rules {
            let (x, colour, class) = (
                self.across(rule.x),
                colour(rule.line),
                series_class(rule.line),
            );
            add!(
                self.svg,
                "<g class=\"series rule {class}\" data-rule=\"{}\" stroke=\"{colour}\">\
                 <path class=\"line\" fill=\"none\" d=\"M{x:.1} {TOP}V{BOTTOM}\" \
                 stroke-width=\"1.5\"{RULE_DASHES}/></g>",
                rule.line
            );
        }
    }

    fn line(&mut self, at: usize) {
        let plot = self.plot;
        let line = &plot.lines[at];
        let (class, colour, dashes) = looks(at, line.look);
        add!(
            self.svg,
            "<g class=\"series {class}\" data-line=\"{at}\" data-name=\"{}\" stroke=\"{colour}\">",
            escaped(&line.name)
        );
        let points = plot.shown(line);
        let points = points.map(|(x, y)| format!("{:.1},{:.1}", self.across(x), self.down(y)));
        let points: Vec<String> = points.collect();
        if line.look != Look::Marks {
            add!(
                self.svg,
                "<polyline class=\"line\" fill=\"none\" stroke-width=\"2\" \
                 stroke-linejoin=\"round\"{dashes} points=\"{}\"/>",
                points.join(" ")
            );
        }
        self.bars(at);
        let visible = match line.look {
            Look::Line | Look::Reference => " class=\"pt quiet\" opacity=\"0\"",
            Look::Marked | Look::Marks => " class=\"pt\"",
        };
        for (x, y) in plot.shown(line) {
            let outline = Marker(at).outline(self.across(x), self.down(y));
            add!(
                self.svg,
                "<path{visible} fill=\"{colour}\" d=\"{outline}\"><title>{}</title></path>",
                escaped(&self.told(&line.name, x, y))
            );
        }
        self.svg.push_str("</g>\n");
    }

    /// The intervals around the points of a line.
    fn bars(&mut self, line: usize) {
        for bar in self.plot.bars.iter().filter(|bar| bar.line == line) {
            let (left, x, right) = {
                let x = self.across(bar.x);
                (x - 3.0, x, x + 3.0)
            };
            let (top, bottom) = (self.down(bar.y + bar.half), self.down(bar.y - bar.half));
            let told = match self.plot.y_scale {
                super::Scale::Percent => format!("± {:.2} points", 100.0 * bar.half),
                super::Scale::Number => format!("± {}", tick_text(bar.half)),
            };
            add!(
                self.svg,
                "<path class=\"bar\" fill=\"none\" stroke-width=\"1.5\" d=\"M{left:.1} {top:.1}H{right:.1}M{x:.1} \
                 {top:.1}V{bottom:.1}M{left:.1} {bottom:.1}H{right:.1}\"><title>{told}</title></path>"
            );
        }
    }

    /// What is said of one point.
    fn told(&self, name: &str, x: f64, y: f64) -> String {
        let y = match self.plot.y_scale {
            super::Scale::Percent => format!("{:.2} %", 100.0 * y),
            super::Scale::Number => tick_text(y),
        };
        format!("{name}: {y} at {} {}", tick_text(x), self.plot.x_unit)
    }
}
