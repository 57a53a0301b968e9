//! Pieces of HTML. Whatever others chose goes through [`escaped`].

use futae_agent_protocol::printable;
use std::fmt::Write as _;

/// Text as HTML shows it, in an element or in a quoted attribute.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// A cell: what is shown, and the key and the value as the status has them.
pub(super) struct Cell {
    key: &'static str,
    value: String,
    shown: String,
}

impl Cell {
    /// A text.
    pub(super) fn text(key: &'static str, text: &str) -> Self {
        Self {
            key,
            value: text.to_owned(),
            shown: text.to_owned(),
        }
    }

    /// A number of blocks, operations or events.
    pub(super) fn count(key: &'static str, count: u64) -> Self {
        Self {
            key,
            value: count.to_string(),
            shown: grouped(count),
        }
    }

    /// A number of bytes.
    pub(super) fn bytes(key: &'static str, bytes: u64) -> Self {
        Self {
            key,
            value: bytes.to_string(),
            shown: sized(bytes),
        }
    }

    /// A share of one.
    pub(super) fn share(key: &'static str, share: Option<f64>) -> Self {
        Self {
            key,
            value: share.map_or_else(String::new, |share| share.to_string()),
            shown: share.map_or_else(none, |share| format!("{:.1} %", share * 100.0)),
        }
    }

    /// A time in microseconds.
    pub(super) fn micros(key: &'static str, micros: Option<f64>) -> Self {
        Self {
            key,
            value: micros.map_or_else(String::new, |micros| micros.to_string()),
            shown: micros.map_or_else(none, |micros| match micros {
                micros if micros >= 10_000.0 => format!("{:.1} ms", micros / 1000.0),
                micros => format!("{micros:.0} \u{b5}s"),
            }),
        }
    }
}

/// What stands where there is no number.
fn none() -> String {
    "\u{2013}".to_owned()
}

/// A table of rows that have names.
pub(super) struct Table {
    id: &'static str,
    title: &'static str,
    heads: Vec<&'static str>,
    rows: String,
}

impl Table {
    /// A table without rows; the first head is that of the names.
    pub(super) fn new(id: &'static str, title: &'static str, heads: &[&'static str]) -> Self {
        let (heads, rows) = (heads.to_vec(), String::new());
        Self {
            id,
            title,
            heads,
            rows,
        }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, name: &str, cells: &[Cell]) {
        let name = escaped(name);
        // A String takes everything, here and below.
        let _ = write!(
            self.rows,
            "<tr data-name=\"{name}\"><th scope=row>{name}</th>"
        );
        for cell in cells {
            let _ = write!(
                self.rows,
                "<td data-key=\"{}\" data-value=\"{}\">{}</td>",
                cell.key,
                escaped(&cell.value),
                escaped(&cell.shown)
            );
        }
        self.rows.push_str("</tr>\n");
    }

    /// The table, with a sentence under its title; nothing without rows.
    pub(super) fn html(&self, sentence: &str) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let heads = self.heads.iter();
        let heads: String = heads
            .map(|head| format!("<th scope=col>{}</th>", escaped(head)))
            .collect();
        format!(
            "<section><h2>{}</h2>\n<p>{}</p>\n<div class=scroll><table id=\"{}\">\n<thead><tr>{heads}</tr></thead>\n\
             <tbody>\n{}</tbody></table></div></section>\n",
            escaped(self.title),
            escaped(sentence),
            self.id,
            self.rows
        )
    }
}

/// A number in groups of three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Bytes in the largest unit that leaves a number of at least one.
pub(super) fn sized(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut shown = format!("{bytes} B");
    let mut amount = bytes as f64;
    for unit in units {
        if amount < 1024.0 {
            break;
        }
        amount /= 1024.0;
        shown = format!("{amount:.1} {unit}");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_others_chose_is_markup() {
        let safe = escaped("</td><b a='1' b=\"2\">&\u{1b}[2J\u{202e}");
        let safe_in_html =
            "&lt;/td&gt;&lt;b a=&#39;1&#39; b=&quot;2&quot;&gt;&amp;\u{fffd}[2J\u{fffd}";
        assert_eq!(safe, safe_in_html);
        let mut table = Table::new("t", "T", &["name", "x"]);
        assert_eq!(table.html(""), "");
        table.row("<i>", &[Cell::text("class", "\"><i>")]);
        let html = table.html("<i>");
        assert!(
            !html.contains("<i>") && html.contains("&lt;i&gt;"),
            "{html}"
        );
    }

    #[test]
    fn numbers_are_written_for_people() {
        assert_eq!(
            [0, 999, 1000, 1_234_567].map(grouped),
            ["0", "999", "1,000", "1,234,567"]
        );
        assert_eq!(
            [1023, 1024, 3 << 29].map(sized),
            ["1023 B", "1.0 KiB", "1.5 GiB"]
        );
        assert_eq!(Cell::share("x", Some(0.123)).shown, "12.3 %");
        assert_eq!(Cell::share("x", None).shown, "\u{2013}");
        let micros = |micros| Cell::micros("x", Some(micros)).shown;
        assert_eq!(
            (micros(99.6), micros(12_340.0)),
            ("100 \u{b5}s".into(), "12.3 ms".into())
        );
    }
}
