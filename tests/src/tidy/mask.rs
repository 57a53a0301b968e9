//! Rust source with its comments and literals blanked out, so that rules see code only.

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
