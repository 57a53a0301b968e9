//! Lines of text and their fields.

use super::TraceErrorKind;

/// Which lines that begin with `#` are comments. Other lines that begin so are records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comments {
    /// All of them: no record begins so.
    Anywhere,
    /// Those before the first other line: a record may begin so.
    AtTop,
    /// None: a record may be any text.
    Nowhere,
}

/// A line without its end. What is blank at its edges may be empty fields between tabs.
pub fn without_end(line: &str) -> &str {
    line.trim_end_matches(['\r', '\n'])
}

/// Whether a line has nothing but blanks.
pub fn is_blank(line: &str) -> bool {
    line.trim_start().is_empty()
}

/// Whether a line is a comment, where there are [comments](Comments).
pub fn is_comment(line: &str) -> bool {
    line.trim_start_matches(' ').starts_with('#')
}

/// The lines at the beginning of the data that are neither blank nor comments.
pub fn plain_lines(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().map(without_end);
    lines.filter(|line| !is_blank(line) && !is_comment(line))
}

/// This many records are needed before a pattern in all of them means anything.
pub const RECORDS_MIN: usize = 2;

/// As many fields as any format has, except for tables.
pub const FIELDS_FEW: usize = 32;

/// What stands between the fields of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Separator {
    /// A comma.
    #[default]
    Comma,
    /// Any number of blanks and tabs.
    Blank,
    /// One tab.
    Tab,
    /// A semicolon.
    Semicolon,
}

impl Separator {
    /// The character, where it is one.
    fn character(self) -> Option<char> {
        match self {
            Self::Comma => Some(','),
            Self::Blank => None,
            Self::Tab => Some('\t'),
            Self::Semicolon => Some(';'),
        }
    }

    /// What most likely separates the fields of a table's first line.
    pub fn of_header(line: &str) -> Self {
        let found = [Self::Comma, Self::Tab, Self::Semicolon]
            .into_iter()
            .find(|separator| separator.character().is_some_and(|c| line.contains(c)));
        found.unwrap_or_default()
    }
}

/// The fields of a line.
pub struct Fields<'a> {
    few: [&'a str; FIELDS_FEW],
    /// All of them, if there are more than a few: lines of most formats need no memory.
    many: Vec<&'a str>,
    count: usize,
}

impl<'a> Fields<'a> {
    /// Splits a line. A field may stand between quotation marks, and then hold separators.
    pub fn split(line: &'a str, separator: Separator) -> Self {
        Self::up_to(FIELDS_FEW, line, separator)
    }

    /// As [`split`](Self::split), with no more than the first `limit` fields.
    pub fn up_to(limit: usize, line: &'a str, separator: Separator) -> Self {
        let mut all = Self {
            few: [""; FIELDS_FEW],
            many: Vec::new(),
            count: 0,
        };
        match separator.character() {
            None => line
                .split_ascii_whitespace()
                .take(limit)
                .for_each(|field| all.push(field)),
            Some(c) => {
                for field in line.split(c).take(limit) {
                    let field = field.trim();
                    // To look for a quotation mark in the whole line took a twentieth of the time of reading.
                    if field.starts_with('"') {
                        all.count = 0;
                        all.many.clear();
                        all.push_quoted(limit, line, c);
                        break;
                    }
                    all.push(field);
                }
            }
        }
        all
    }

    /// As [`up_to`](Self::up_to) where there are quotation marks. Two of them within a field stay two.
    fn push_quoted(&mut self, limit: usize, line: &'a str, separator: char) {
        let (mut begin, mut is_quoted) = (0, false);
        let end = line.len();
        let ends = line.char_indices().chain([(end, separator)]);
        for (at, c) in ends {
            is_quoted ^= c == '"';
            if (c != separator || is_quoted) && at < end {
                continue;
            }
            let field = line[begin..at].trim();
            let inner = field.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
            if self.count < limit {
                self.push(inner.unwrap_or(field));
            }
            begin = (at + c.len_utf8()).min(end);
        }
    }

    fn push(&mut self, field: &'a str) {
        match self.few.get_mut(self.count) {
            Some(place) => *place = field,
            None => self.push_further(field),
        }
        self.count += 1;
    }

    #[cold]
    fn push_further(&mut self, field: &'a str) {
        if self.many.is_empty() {
            self.many.extend(self.few);
        }
        self.many.push(field);
    }

    /// All of them.
    pub fn all(&self) -> &[&'a str] {
        match self.many.is_empty() {
            true => &self.few[..self.count],
            false => &self.many,
        }
    }

    /// The field of a column, which holds `field`.
    pub fn get(&self, column: usize, field: &'static str) -> Result<&'a str, TraceErrorKind> {
        self.all()
            .get(column)
            .copied()
            .ok_or(TraceErrorKind::Missing {
                field,
                wanted: column + 1,
                found: self.count,
            })
    }
}

/// The numbers in these columns of whole lines, without lines that lack one of them.
pub fn numbers<'a>(
    head: &'a [u8],
    separator: Separator,
    columns: &'a [usize],
) -> impl Iterator<Item = Vec<u64>> + 'a {
    // The last line may be cut off.
    let lines = head.split(|&byte| byte == b'\n').rev().skip(1);
    let needed = columns.iter().max().map_or(0, |last| last + 1);
    lines.filter_map(move |line| {
        let line = str::from_utf8(line).ok()?;
        let fields = Fields::up_to(needed, line, separator);
        let number = |&column: &usize| fields.all().get(column)?.parse().ok();
        columns.iter().map(number).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::{Fields, Separator};

    #[test]
    fn fields_may_be_quoted() {
        let split = |line, separator| Fields::split(line, separator).all().join("|");
        assert_eq!(split("1, 2,3", Separator::Comma), "1|2|3");
        assert_eq!(split("\"a,b\",2,\"\"", Separator::Comma), "a,b|2|");
        assert_eq!(split("x;\"y;z\"", Separator::Semicolon), "x|y;z");
        assert_eq!(split("a\t\tb c", Separator::Tab), "a||b c");
        assert_eq!(split(" a  b\tc ", Separator::Blank), "a|b|c");
        assert_eq!(split("\"open, 2", Separator::Comma), "\"open, 2");
    }

    #[test]
    fn there_are_as_many_fields_as_are_asked_for() {
        for (line, field) in [
            ("x,".repeat(100), "x"),
            ("\"x\",".repeat(100), "x"),
            ("x, ".repeat(99) + "\"x\",", "x"),
        ] {
            assert_eq!(Fields::split(&line, Separator::Comma).all(), [field; 32]);
            for limit in [1, 31, 32, 33, 100] {
                let fields = Fields::up_to(limit, &line, Separator::Comma);
                assert_eq!(fields.all(), vec![field; limit]);
            }
            assert_eq!(
                Fields::up_to(usize::MAX, &line, Separator::Comma)
                    .all()
                    .len(),
                101
            );
        }
        let blanks = "x ".repeat(50);
        assert_eq!(
            Fields::up_to(40, &blanks, Separator::Blank).all(),
            ["x"; 40]
        );
    }
}
