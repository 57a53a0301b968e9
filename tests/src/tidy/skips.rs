//! No test decides alone that it does not run: what it lacks has a name in `futae_testkit::need`, so that
//! `FUTAE_REQUIRE` makes the skip a failure.

use super::{Finding, Source, strings};

/// The one file that prints that a test is skipped.
const PRINTER: &str = "tests/kit/src/need.rs";

/// Strings that say `skipped` in other files of tests.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let rules = source.path.starts_with("tests/src/tidy/");
        if source.path == PRINTER || rules {
            continue;
        }
        for (at, text) in strings(&source.text) {
            if text.starts_with("skipped") && text.len() > "skipped".len() {
                let problem = "a test is skipped past futae_testkit::need::skip";
                findings.push(source.finding(at, problem));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use crate::tidy::Source;

    #[test]
    fn a_skip_past_the_kit_is_found() {
        let check = |path: &str, text: &str| super::check(&[Source::new(path, text)]).len();
        assert_eq!(
            check("tests/tests/a.rs", r#"println!("skipped: no QEMU");"#),
            1
        );
        assert_eq!(
            check("crates/futae-x/tests/a.rs", r#"say("skipped for one");"#),
            1
        );
        assert_eq!(
            check("tests/tests/a.rs", r#"skip(Need::Qemu, "no QEMU");"#),
            0
        );
        assert_eq!(
            check(super::PRINTER, r#"writeln!(stderr(), "skipped: {why}")"#),
            0
        );
    }
}
