//! Names that others chose, made fit for a terminal.

/// The text with a mark in place of every character that would steer a terminal or reorder what follows it.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .map(|c| {
            if steers(c) {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        })
        .collect()
}

/// Control characters, separators of lines, and marks that turn the direction of text.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        assert_eq!(printable("gäst-1 (日本)"), "gäst-1 (日本)");
        let hostile = "a\x1b]0;owned\x07\r\n\u{9b}2J\u{202e}b\u{2028}";
        let said = printable(hostile);
        assert!(!said.chars().any(steers), "{said:?}");
        assert_eq!(said.chars().count(), hostile.chars().count());
    }
}
