//! Documents have one title; the change log has one shape; what is promised has its test.

use super::{Finding, Source};

/// Documents whose titles are not exactly one.
#[must_use]
pub fn check_titles(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.path.ends_with(".md")) {
        let titles: Vec<_> = prose(&source.text)
            .filter(|(_, line)| line.starts_with("# "))
            .collect();
        if titles.is_empty() {
            findings.push(source.finding(0, "no # Title"));
        }
        for (at, line) in titles.iter().skip(1) {
            findings.push(source.finding(*at, format!("a second title: {line}")));
        }
    }
    findings
}

/// Lines outside of fenced code.
pub(super) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// `# Changelog`; then `## Unreleased` or `## 1.2.3 - 2030-01-31`, the newest first; below them
/// `### Kind` and lists, nothing else.
#[must_use]
pub fn check_changelog(changelog: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut versions: Vec<[u64; 3]> = Vec::new();
    let mut is_in_version = false;
    for (at, line) in prose(&changelog.text) {
        let mut report = |problem: String| findings.push(changelog.finding(at, problem));
        if at == 0 && line != "# Changelog" {
            report("the change log begins with # Changelog".to_owned());
        } else if let Some(heading) = line.strip_prefix("## ") {
            is_in_version = true;
            match (heading == "Unreleased", version(heading)) {
                (true, _) if versions.is_empty() => {}
                (true, _) => report("Unreleased comes first".to_owned()),
                (false, None) => report(format!("not a version and its date: {heading}")),
                (false, Some(new)) => {
                    if versions.last().is_some_and(|last| *last <= new) {
                        report(format!("{heading} is not older than the one above it"));
                    }
                    versions.push(new);
                }
            }
        } else if is_in_version {
            let is_entry = line.starts_with("- ") || line.starts_with("  ");
            if !line.is_empty() && !is_entry && !line.starts_with("### ") {
                report(format!("neither a heading nor an entry of a list: {line}"));
            }
        } else if line.starts_with("- ") {
            report("an entry above the first version".to_owned());
        }
    }
    if !is_in_version {
        findings.push(changelog.finding(0, "no version"));
    }
    findings
}

/// `1.2.3 - 2030-01-31`, perhaps in brackets, perhaps with a longer dash.
fn version(heading: &str) -> Option<[u64; 3]> {
    let (version, date) = heading
        .split_once(" - ")
        .or_else(|| heading.split_once(" – "))?;
    let is_date = date.len() == 10
        && date.char_indices().all(|(at, c)| match at {
            4 | 7 => c == '-',
            _ => c.is_ascii_digit(),
        });
    let numbers = version.trim_matches(['[', ']']).split('.');
    let numbers: Vec<u64> = numbers.map(|n| n.parse().ok()).collect::<Option<_>>()?;
    is_date.then_some(())?;
    numbers.try_into().ok()
}

/// Promises of `docs/reference/semantics.md` that name no test in brackets at their end, and names of tests that there are
/// not.
#[must_use]
pub fn check_promises(sources: &[Source]) -> Vec<Finding> {
    let Some(promises) = sources
        .iter()
        .find(|it| it.path == "docs/reference/semantics.md")
    else {
        return Vec::new();
    };
    let is_test = |name: &str| {
        let line = format!("fn {name}(");
        let mut rust = sources.iter().filter(|source| source.is_rust());
        rust.any(|source| source.text.contains(&line))
    };
    let mut findings = Vec::new();
    for (at, text) in entries(&promises.text) {
        let tests = text.trim_end().strip_suffix(']');
        let Some((_, tests)) = tests.and_then(|text| text.rsplit_once(" [`")) else {
            findings.push(promises.finding(at, format!("no test is named: {text}")));
            continue;
        };
        let quoted = tests.split('`').step_by(2);
        // Others of a file may be meant, which is named.
        for name in quoted.filter(|name| !name.is_empty() && !name.contains('/')) {
            if !is_test(name) {
                findings.push(promises.finding(at, format!("there is no test {name}")));
            }
        }
    }
    findings
}

/// The entries of lists, each with the lines that belong to it.
fn entries(text: &str) -> Vec<(usize, String)> {
    let mut entries: Vec<(usize, String)> = Vec::new();
    let mut is_open = false;
    for (at, line) in prose(text) {
        if line.starts_with("- ") {
            is_open = true;
            entries.push((at, line.to_owned()));
        } else if let (true, Some((_, entry))) =
            (is_open && line.starts_with("  "), entries.last_mut())
        {
            entry.push(' ');
            entry.push_str(line.trim());
        } else {
            is_open = false;
        }
    }
    entries
}
