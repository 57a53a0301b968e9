//! The card of a policy: what the comment at the top of its file says, in its parts.

use serde::{Serialize, Serializer};

/// The card: the content of the comment at the top of a policy's file. Serialised, it has the keys
/// name, summary, source, cost, deviations and parameters; each parameter has name, default and
/// meaning.
#[derive(Clone, Debug)]
pub struct Card {
    /// The name on command lines.
    pub name: &'static str,
    /// One sentence.
    pub summary: String,
    /// The other headings with their text: Source, Picture, Transitions, Parameters, Deviations,
    /// Cost, and for some policies libCacheSim: why its counts (0.3.5) differ.
    pub sections: Vec<(String, String)>,
}

/// A parameter of a policy.
#[derive(Clone, Debug, Serialize)]
pub struct Parameter {
    /// As it is written in `policy(name=value)`.
    pub name: String,
    /// Its value if none is given.
    pub default: String,
    /// What it does.
    pub meaning: String,
}

impl Card {
    /// The headings that every card has.
    pub const HEADINGS: [&'static str; 6] = [
        "Source",
        "Picture",
        "Transitions",
        "Parameters",
        "Deviations",
        "Cost",
    ];

    /// The text under `heading`.
    #[must_use]
    pub fn section(&self, heading: &str) -> Option<&str> {
        self.sections
            .iter()
            .find(|(name, _)| name == heading)
            .map(|(_, text)| text.as_str())
    }

    /// Parameters that have a default, from the parts `key default: meaning`.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let parameter = |part: &String| {
            let (head, meaning) = part.split_once(": ")?;
            let (name, default) = head.split_once(' ')?;
            Some(Parameter {
                name: name.to_owned(),
                default: default.to_owned(),
                meaning: meaning.to_owned(),
            })
        };
        let parts = self.parts("Parameters");
        parts.iter().filter_map(parameter).collect()
    }

    /// The text under `heading` in its parts, each on one line: the transitions, the parameters, or all of
    /// it as one.
    #[must_use]
    pub fn parts(&self, heading: &str) -> Vec<String> {
        let lines = self.section(heading).unwrap_or("").lines();
        match heading {
            "Parameters" => {
                let mut parts: Vec<String> = Vec::new();
                for line in lines {
                    match parts.last_mut() {
                        Some(part) if !names_parameter(line) => {
                            part.push(' ');
                            part.push_str(line);
                        }
                        _ => parts.push(line.to_owned()),
                    }
                }
                parts
            }
            "Transitions" => {
                let text = lines.collect::<Vec<_>>().join(" ");
                text.split(" | ").map(str::to_owned).collect()
            }
            _ => vec![lines.collect::<Vec<_>>().join(" ")],
        }
    }

    pub(crate) fn parse(name: &'static str, source_text: &str) -> Self {
        let lines = source_text
            .lines()
            .map_while(|line| line.strip_prefix("//!"));
        let (mut summary, mut sections) = (String::new(), Vec::<(String, String)>::new());
        for line in lines.map(str::trim) {
            if let Some(heading) = line.strip_prefix("# ") {
                sections.push((heading.trim().to_owned(), String::new()));
                continue;
            }
            let text = sections.last_mut().map_or(&mut summary, |(_, text)| text);
            if !text.is_empty() && !line.is_empty() {
                text.push('\n');
            }
            text.push_str(line);
        }
        Self {
            name,
            summary: summary.replace('\n', " "),
            sections,
        }
    }
}

impl Serialize for Card {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Shown<'a> {
            name: &'a str,
            summary: &'a str,
            source: Option<&'a str>,
            cost: Option<&'a str>,
            deviations: Option<&'a str>,
            parameters: Vec<Parameter>,
        }
        let shown = Shown {
            name: self.name,
            summary: &self.summary,
            source: self.section("Source"),
            cost: self.section("Cost"),
            deviations: self.section("Deviations"),
            parameters: self.parameters(),
        };
        shown.serialize(serializer)
    }
}

/// Whether a line of a card's parameters begins another one: `key default: meaning` or `key: meaning`.
fn names_parameter(line: &str) -> bool {
    let Some((head, _)) = line.split_once(": ") else {
        return false;
    };
    let is_key = |word: &str| word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let mut words = head.split(' ');
    words.next().is_some_and(is_key) && words.count() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_has_all_of_its_lines_and_a_transition_is_a_part() {
        let source = "//! One rule.\n//!\n//! # Transitions\n//! hit: stays | miss:\n//! placed\n\
                      //! # Parameters\n//! share 0.1: of the slots,\n//! at least 1\n//! names: of classes\n";
        let card = Card::parse("one", source);
        assert_eq!(card.parts("Transitions"), ["hit: stays", "miss: placed"]);
        assert_eq!(
            card.parts("Parameters"),
            ["share 0.1: of the slots, at least 1", "names: of classes"]
        );
        let [share] = &card.parameters()[..] else {
            panic!("{:?}", card.parameters());
        };
        assert_eq!((&*share.name, &*share.default), ("share", "0.1"));
        assert_eq!(share.meaning, "of the slots, at least 1");
    }
}
