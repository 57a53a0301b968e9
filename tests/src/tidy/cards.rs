//! Every policy has a complete card, a reference model, tests, and a line in the registry.

use super::{Finding, Source, mask, words};
use futae_policy::Card;

const PLACE: &str = "crates/futae-policy/src/replace/";
const REGISTRY: &str = "crates/futae-policy/src/registry.rs";
/// What is missing of each policy.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let registry = sources.iter().find(|source| source.path == REGISTRY);
    let mut findings = Vec::new();
    for source in sources {
        let Some(name) = module(source) else { continue };
        let mut missing = |what: String| findings.push(source.finding(0, what));
        for heading in Card::HEADINGS {
            if !has_text_under(&source.text, heading) {
                missing(format!("the card has no text under # {heading}"));
            }
        }
        let summary = source.text.lines().next().unwrap_or_default();
        if summary
            .strip_prefix("//! ")
            .is_none_or(|text| text.starts_with('#'))
        {
            missing("the card does not begin with a sentence".to_owned());
        }
        for wanted in ["reference", "tests"] {
            if !has_test_module(&source.text, wanted) {
                missing(format!("no #[cfg(test)] mod {wanted}"));
            }
        }
        let line = format!("{name} = \"");
        let is_registered = |text: &str| text.lines().any(|l| l.trim().starts_with(&line));
        if registry.is_some_and(|registry| !is_registered(&registry.text)) {
            missing(format!("{name} is not in the registry"));
        }
    }
    findings
}

fn module(source: &Source) -> Option<&str> {
    let name = source.path.strip_prefix(PLACE)?.strip_suffix(".rs")?;
    (name != "mod" && !name.contains('/')).then_some(name)
}

/// The card is the comment that the file begins with.
fn has_text_under(text: &str, heading: &str) -> bool {
    let card = text.lines().map_while(|line| line.strip_prefix("//!"));
    let mut under = false;
    for line in card.map(str::trim) {
        if let Some(title) = line.strip_prefix("# ") {
            under = title.trim() == heading;
        } else if under && !line.is_empty() {
            return true;
        }
    }
    false
}

fn has_test_module(text: &str, name: &str) -> bool {
    let code = mask(text);
    let lines: Vec<&str> = code.lines().collect();
    lines.windows(2).any(|pair| {
        let named: Vec<_> = words(pair[1]).map(|(_, word)| word).collect();
        pair[0].trim() == "#[cfg(test)]" && named.ends_with(&["mod", name])
    })
}
