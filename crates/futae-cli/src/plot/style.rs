//! Colours, dashes and marks by which lines are told apart. None of them alone: a reader who does not
//! see the colours has the marks and the dashes.

use std::fmt::Write;

/// Colours on white, each with a contrast of at least 4.5 to it.
const COLOURS: [&str; 8] = [
    "#0067a5", "#b84a09", "#007a5a", "#9b3f87", "#7d6300", "#4f4f9e", "#b5273a", "#5b6770",
];

/// The colour of a line, from 0, on white.
pub fn colour(line: usize) -> &'static str {
    COLOURS[line % COLOURS.len()]
}

/// The class by which a page gives a line its colour: `s0` to `s7`.
pub fn series_class(line: usize) -> String {
    format!("s{}", line % COLOURS.len())
}

/// The dashes of a line: those that have the colour of an earlier one are broken.
pub fn dashes(line: usize) -> &'static str {
    match (line / COLOURS.len()) % 3 {
        0 => "",
        1 => " stroke-dasharray=\"7 3\"",
        _ => " stroke-dasharray=\"2 3\"",
    }
}

/// The mark of a line.
#[derive(Clone, Copy)]
pub struct Marker(pub usize);

impl Marker {
    /// Its outline around a point, for the `d` of a path.
    pub fn outline(self, x: f64, y: f64) -> String {
        let polygon = |corners: &[(f64, f64)]| {
            let mut d = String::new();
            for (at, (dx, dy)) in corners.iter().enumerate() {
                let command = if at == 0 { 'M' } else { 'L' };
                // Writing to a string cannot fail.
                let _ = write!(d, "{command}{:.1} {:.1}", x + dx, y + dy);
            }
            d + "Z"
        };
        match self.0 % 6 {
            0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z", x - 4.0),
            1 => polygon(&[(-3.6, -3.6), (3.6, -3.6), (3.6, 3.6), (-3.6, 3.6)]),
            2 => polygon(&[(0.0, -4.8), (4.6, 3.6), (-4.6, 3.6)]),
            3 => polygon(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)]),
            4 => polygon(&[(0.0, 4.8), (4.6, -3.6), (-4.6, -3.6)]),
            _ => polygon(&[
                (-1.6, -4.8),
                (1.6, -4.8),
                (1.6, -1.6),
                (4.8, -1.6),
                (4.8, 1.6),
                (1.6, 1.6),
                (1.6, 4.8),
                (-1.6, 4.8),
                (-1.6, 1.6),
                (-4.8, 1.6),
                (-4.8, -1.6),
                (-1.6, -1.6),
            ]),
        }
    }
}

/// Text as it may stand in HTML and SVG, between tags and in quoted attributes. Control characters,
/// which XML does not allow, become U+FFFD.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(c),
            c if c.is_control() => safe.push('\u{FFFD}'),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn two_dozen_lines_differ_without_their_colours() {
        let look = |line| (Marker(line).outline(0.0, 0.0), dashes(line));
        let looks: HashSet<_> = (0..18).map(look).collect();
        assert!(looks.len() >= 14, "{}", looks.len());
        let all: HashSet<_> = (0..24).map(|line| (colour(line), look(line))).collect();
        assert_eq!(all.len(), 24);
    }

    #[test]
    fn no_text_is_markup() {
        assert_eq!(
            escaped("<b a='1' c=\"2\">&\u{1b}</b>"),
            "&lt;b a=&#39;1&#39; c=&quot;2&quot;&gt;&amp;\u{FFFD}&lt;/b&gt;"
        );
    }
}
