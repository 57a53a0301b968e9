//! Rust source with its comments and literals blanked out, so that rules see code only; and with
//! its tests left out.

use super::words;

/// The text with every comment, string and character literal replaced by spaces. Lines and
/// columns (in characters) stay where they are.
#[must_use]
pub fn mask(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < characters.len() {
        let end = end_of_opaque(&characters, at);
        if end == at {
            out.push(characters[at]);
            at += 1;
            continue;
        }
        let blank = |&c: &char| if c == '\n' { '\n' } else { ' ' };
        out.extend(characters[at..end].iter().map(blank));
        at = end;
    }
    out
}

/// The contents of the plain string literals with the lines, from 0, on which they begin.
#[must_use]
pub fn strings(text: &str) -> Vec<(usize, String)> {
    let characters: Vec<char> = text.chars().collect();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 0);
    while at < characters.len() {
        let end = end_of_opaque(&characters, at).max(at + 1);
        let piece = &characters[at..end];
        if let ['"', inside @ .., '"'] = piece {
            found.push((line, inside.iter().collect()));
        }
        line += piece.iter().filter(|&&c| c == '\n').count();
        at = end;
    }
    found
}

/// Where the comment or literal that begins at `at` ends; `at` if none does.
fn end_of_opaque(text: &[char], at: usize) -> usize {
    let rest = &text[at..];
    let length = match rest {
        ['/', '/', ..] => rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment(rest),
        ['"', ..] => quoted(rest),
        ['r' | 'b' | 'c', ..] if !follows_word(text, at) => prefixed(rest),
        ['\'', ..] => character(rest),
        _ => 0,
    };
    at + length
}

fn follows_word(text: &[char], at: usize) -> bool {
    at > 0 && (text[at - 1].is_alphanumeric() || text[at - 1] == '_')
}

fn block_comment(text: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match text[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// A string from its opening quote on.
fn quoted(text: &[char]) -> usize {
    let mut at = 1;
    while at < text.len() {
        match text[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    text.len()
}

/// `b"..."`, `c"..."`, `r"..."`, `r#"..."#`, `br"..."` and the like; 0 if it is only a word.
fn prefixed(text: &[char]) -> usize {
    let letters = text.iter().take_while(|c| c.is_ascii_lowercase()).count();
    let prefix: String = text[..letters].iter().collect();
    let is_raw = matches!(prefix.as_str(), "r" | "br" | "cr");
    let hashes = text[letters..].iter().take_while(|&&c| c == '#').count();
    let quote = letters + hashes;
    if text.get(quote) != Some(&'"')
        || !(is_raw || hashes == 0 && matches!(prefix.as_str(), "b" | "c"))
    {
        return 0;
    }
    if !is_raw {
        return letters + quoted(&text[letters..]);
    }
    let closing: Vec<char> = std::iter::once('"')
        .chain(std::iter::repeat_n('#', hashes))
        .collect();
    let inside = &text[quote + 1..];
    let end = inside
        .windows(closing.len())
        .position(|window| window == closing);
    end.map_or(text.len(), |end| quote + 1 + end + closing.len())
}

/// A character literal; 0 for a lifetime.
fn character(text: &[char]) -> usize {
    match text {
        ['\'', '\\', _, rest @ ..] => {
            let end = rest.iter().take(12).position(|&c| c == '\'');
            end.map_or(0, |end| 4 + end)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

/// The lines of masked code, numbered from 0, that are in no item marked `#[cfg(test)]`.
#[must_use]
pub fn without_tests(text: &str) -> Vec<(usize, String)> {
    let code = mask(text);
    let lines: Vec<&str> = code.lines().collect();
    let (mut kept, mut at) = (Vec::new(), 0);
    while at < lines.len() {
        if is_for_tests(lines[at]) {
            at = end_of_item(&lines, at);
        } else {
            kept.push((at, lines[at].to_owned()));
            at += 1;
        }
    }
    kept
}

/// The modules that are files of their own and marked `#[cfg(test)]`.
#[must_use]
pub fn test_modules(text: &str) -> Vec<String> {
    let code = mask(text);
    let lines: Vec<&str> = code.lines().collect();
    let marked = lines.windows(2).filter(|pair| is_for_tests(pair[0]));
    let named = marked.filter_map(|pair| {
        let item = pair[1].trim().strip_suffix(';')?;
        let mut parts = words(item).map(|(_, word)| word);
        parts.find(|&word| word == "mod")?;
        parts.next().map(str::to_owned)
    });
    named.collect()
}

fn is_for_tests(line: &str) -> bool {
    line.trim_start().starts_with("#[cfg(test)]")
}

/// The line after the item that begins at `first`: it ends with its braces, or at a semicolon
/// before any.
fn end_of_item(lines: &[&str], first: usize) -> usize {
    let (mut depth, mut opened) = (0usize, false);
    for (at, line) in lines.iter().enumerate().skip(first) {
        for c in line.chars() {
            match c {
                '{' => (depth, opened) = (depth + 1, true),
                '}' => depth = depth.saturating_sub(1),
                ';' if !opened => return at + 1,
                _ => {}
            }
        }
        if opened && depth == 0 {
            return at + 1;
        }
    }
    lines.len()
}
