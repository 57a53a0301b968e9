//! A line of text and its fields.

use super::TraceErrorKind;

/// Fields beyond this are not looked at.
pub const FIELDS_MAX: usize = 32;

/// The fields of a line.
pub struct Fields<'a> {
    fields: [&'a str; FIELDS_MAX],
    count: usize,
}

impl<'a> Fields<'a> {
    /// Splits at commas, or at runs of blanks.
    pub fn split(line: &'a str, blanks: bool) -> Self {
        let mut all = Self {
            fields: [""; FIELDS_MAX],
            count: 0,
        };
        if blanks {
            line.split_ascii_whitespace()
                .take(FIELDS_MAX)
                .for_each(|field| all.push(field));
        } else {
            line.split(',')
                .take(FIELDS_MAX)
                .for_each(|field| all.push(field.trim()));
        }
        all
    }

    fn push(&mut self, field: &'a str) {
        self.fields[self.count] = field;
        self.count += 1;
    }

    /// All of them.
    pub fn all(&self) -> &[&'a str] {
        &self.fields[..self.count]
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
