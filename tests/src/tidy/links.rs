//! Links, and mentions of pages of the book, lead somewhere.

use super::documents::prose;
use super::{Finding, Source};

/// Links in documents, and pages of `docs/` in any text, whose file or heading does not exist.
#[must_use]
pub fn check_links(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources {
        if source.path.ends_with(".md") {
            for (at, line) in prose(&source.text) {
                for target in links(line) {
                    findings.extend(check(sources, source, at, target));
                }
            }
        }
        for (at, line) in source.text.lines().enumerate() {
            for page in mentions(line) {
                if !sources.iter().any(|it| it.path == page) {
                    findings.push(source.finding(at, format!("there is no page {page}")));
                }
            }
        }
    }
    findings
}

/// What the links of a line of Markdown lead to.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1);
    targets.filter_map(|rest| Some(rest.split_once(')')?.0))
}

/// Pages of the book that a line names by their path from the root.
fn mentions(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-_/.".contains(c);
    let begins = line.match_indices(concat!("do", "cs/"));
    begins.filter_map(move |(at, _)| {
        let is_whole = !line[..at].ends_with(is_part);
        let path = line[at..].split(|c| !is_part(c)).next()?;
        let end = path.find(".md")? + ".md".len();
        is_whole.then_some(&path[..end])
    })
}

/// One link: a file, a heading, or a heading of a file.
fn check(sources: &[Source], from: &Source, at: usize, target: &str) -> Option<Finding> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() {
        from.path.clone()
    } else {
        join(&from.path, path)
    };
    let below = format!("{}/", path.trim_end_matches('/'));
    let Some(page) = sources.iter().find(|it| it.path == path) else {
        let is_directory = sources.iter().any(|it| it.path.starts_with(&below));
        return (!is_directory).then(|| from.finding(at, format!("a link to nothing: {target}")));
    };
    let is_heading = anchor.is_empty() || headings(&page.text).contains(&anchor.to_owned());
    (!is_heading).then(|| from.finding(at, format!("a link to no heading: {target}")))
}

/// The path that a link in a file means.
fn join(from: &str, link: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in link.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The names by which headings are linked to, as GitHub makes them.
fn headings(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim().to_lowercase();
        let kept = title
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        let name: String = kept.map(|c| if c == ' ' { '-' } else { c }).collect();
        let same = names.iter().filter(|other| **other == name).count();
        names.push(if same == 0 {
            name
        } else {
            format!("{name}-{same}")
        });
    }
    names
}
