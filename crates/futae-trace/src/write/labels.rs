//! The names of volumes as they can stand between commas.

use std::collections::HashSet;

/// A name for each volume, different for each.
#[derive(Default)]
pub struct Labels {
    labels: Vec<Option<String>>,
    taken: HashSet<String>,
}

impl Labels {
    /// The volume's name: its own, with a colon for every comma and an apostrophe for every quotation mark, blanks and
    /// control characters replaced too; its number if it has none; and another `~` until no other volume has it.
    pub fn of(&mut self, at: usize, name: Option<&str>) -> &str {
        if self.labels.len() <= at {
            self.labels.resize(at + 1, None);
        }
        let taken = &mut self.taken;
        self.labels[at].get_or_insert_with(|| {
            let mut label = match name {
                Some(name) => name.chars().map(plain).collect(),
                None => at.to_string(),
            };
            while !taken.insert(label.clone()) {
                label.push('~');
            }
            label
        })
    }
}

fn plain(c: char) -> char {
    match c {
        ',' => ':',
        // A field that begins with one would take what follows for its own, up to the next.
        '"' => '\'',
        c if c.is_whitespace() || c.is_control() => '_',
        c => c,
    }
}
