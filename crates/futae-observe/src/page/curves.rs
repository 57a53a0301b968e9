//! Hit ratios by the size of the cache: a drawing, and the numbers at a few sizes.

use super::chart::{COLOURS, Frame};
use super::html::{Cell, Table, escaped};
use crate::curves::CurveShown;
use crate::history::History;
use std::fmt::Write as _;

/// Multiples of the cache's size that the drawing reaches to.
const WIDEST: f64 = 4.0;

/// The curves, and beside them what was measured.
pub(super) fn curves(curves: &[CurveShown], history: &History) -> String {
    if curves.is_empty() {
        return String::new();
    }
    let drawn = &curves[..curves.len().min(COLOURS)];
    let names: String = drawn
        .iter()
        .enumerate()
        .map(|(at, curve)| {
            let name = escaped(&curve.name);
            format!("<li class=c{at}><i></i><span>{name}</span></li>\n")
        })
        .collect();
    let heads = [
        "export",
        "cache",
        "measured, 15 minutes",
        "half the size",
        "this size",
        "twice",
        "four times",
    ];
    let mut table = Table::new("curves", "Hit ratios by the size of the cache", &heads);
    for curve in curves {
        let measured = history.line(&curve.name).and_then(|line| line.ratio());
        table.row(
            &curve.name,
            &[
                Cell::bytes("cache_bytes", curve.cache_bytes),
                Cell::share("measured", measured),
                Cell::share("half", curve.at(0.5)),
                Cell::share("same", curve.at(1.0)),
                Cell::share("twice", curve.at(2.0)),
                Cell::share("four_times", curve.at(4.0)),
            ],
        );
    }
    let lost: u64 = curves.iter().map(|curve| curve.lost).sum();
    let lost = match lost {
        0 => String::new(),
        lost => format!(" {lost} sampled blocks were lost under load, so these are rough."),
    };
    table.html(&format!(
        "What an LRU cache of that size would hit of the requests that arrive here, of each export alone, estimated from a sample; the \
         last minutes count most. The measured ratio is that of the cache as it is: its policy may do better, and exports that share a \
         cache have less than all of it.{lost}"
    )) + &format!("{}<ul class=legend>\n{names}</ul>\n", drawing(drawn))
}

fn drawing(curves: &[CurveShown]) -> String {
    let mut frame = Frame::new("Hit ratios by the size of the cache");
    for times in [1.0, 2.0, 3.0, WIDEST] {
        let of = if times < WIDEST { "" } else { " the cache" };
        let text = format!("{times}\u{d7}{of}");
        frame.tick(times / WIDEST, &text);
    }
    for (at, curve) in curves.iter().enumerate() {
        let mut points = String::new();
        for &(size, hits) in &curve.points {
            let share = size as f64 / (curve.cache_bytes.max(1) as f64 * WIDEST);
            let (x, y) = (Frame::along(share), Frame::height(hits));
            // A String takes everything.
            let _ = write!(points, "{x:.1},{y:.1} ");
        }
        frame.line(at, &curve.name, &[points.trim_end().to_owned()]);
    }
    frame.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_a_line_and_a_row() {
        let shown = CurveShown {
            name: "a<".to_owned(),
            cache_bytes: 1 << 20,
            points: (1..=32).map(|at| (at << 17, at as f64 / 32.0)).collect(),
            lost: 3,
        };
        assert_eq!((shown.at(0.5), shown.at(4.0)), (Some(0.125), Some(1.0)));
        let html = curves(&[shown], &History::default());
        assert!(
            html.contains("data-key=\"twice\" data-value=\"0.5\""),
            "{html}"
        );
        assert!(html.contains("<polyline") && html.contains("a&lt;") && !html.contains("a<\""));
        assert!(html.contains("3 sampled blocks were lost"), "{html}");
        assert_eq!(curves(&[], &History::default()), "");
    }
}
