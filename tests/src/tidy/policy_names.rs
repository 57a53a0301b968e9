//! No code outside of the registry names a policy by a string: it asks for a trait
//! (`futae_policy::Trait`), or names the policy by its `Kind`, which the compiler checks.

use super::{Finding, Source, strings, test_modules, without_tests};
use std::collections::BTreeSet;

/// Where policies are named: their own files, which the rule treats apart, and the registry.
const REGISTRY: &str = "crates/futae-policy/src/registry.rs";
const POLICIES: &str = "crates/futae-policy/src/replace/";
/// Strings that are spelt as a policy and mean something else: the file, the string, what it is.
pub const OTHER_MEANINGS: [(&str, &str, &str); 8] = [
    (
        "crates/futae-agent/src/args.rs",
        "auto",
        "values of --evictions-channel and --count",
    ),
    (
        "crates/futae-cli/src/command/mount/args.rs",
        "auto",
        "values of options",
    ),
    (
        "crates/futae-cli/src/command/serve/args.rs",
        "auto",
        "values of options",
    ),
    (
        "crates/futae-cli/src/command/serve/evictions.rs",
        "auto",
        "a value of --evictions-memory",
    ),
    (
        "crates/futae-trace/src/format/formats.rs",
        "arc",
        "a trace format",
    ),
    (
        "crates/futae-trace/src/format/formats_by_name.rs",
        "lirs",
        "a suffix of files",
    ),
    (
        "crates/futae-cli/src/command/mount/helper.rs",
        "auto",
        "an option of fstab",
    ),
    (
        "crates/futae-cli/src/command/protect.rs",
        "directory",
        "a JSON key",
    ),
];

/// The string literals of the product's code (`crates/`; the laboratory compares policies by name) that name one of the policies `names`.
#[must_use]
pub fn check(sources: &[Source], names: &[&str]) -> Vec<Finding> {
    let tests = test_files(sources);
    let mut findings = Vec::new();
    for source in sources {
        if !is_product(source) || tests.contains(&source.path) {
            continue;
        }
        let code: BTreeSet<usize> = without_tests(&source.text)
            .into_iter()
            .map(|(line, _)| line)
            .collect();
        let of_here = OTHER_MEANINGS
            .iter()
            .filter(|(path, ..)| *path == source.path);
        let mut unused: Vec<&str> = of_here.map(|(_, text, _)| *text).collect();
        let allowed = unused.clone();
        for (line, text) in strings(&source.text) {
            let Some(name) = named(&text, names) else {
                continue;
            };
            unused.retain(|other| *other != text);
            if code.contains(&line) && !is_own(source, name) && !allowed.contains(&text.as_str()) {
                let problem =
                    format!("the policy {name} by name: ask for a trait, or use its Kind");
                findings.push(source.finding(line, problem));
            }
        }
        for text in unused {
            let problem = format!("{text:?} is listed as having another meaning, and is not here");
            findings.push(source.finding(0, problem));
        }
    }
    findings
}

fn is_product(source: &Source) -> bool {
    let path = source.path.as_str();
    source.is_rust() && path.starts_with("crates/") && path.contains("/src/") && path != REGISTRY
}

/// The policy that a string names: alone, or with its parameters.
fn named<'a>(text: &str, names: &[&'a str]) -> Option<&'a str> {
    let head = text.split('(').next().unwrap_or_default();
    names.iter().copied().find(|name| *name == head)
}

/// Whether the file is that of the policy `name`.
fn is_own(source: &Source, name: &str) -> bool {
    let file = source.path.strip_prefix(POLICIES);
    let stem = file.and_then(|file| file.split(['/', '.']).next());
    stem.is_some_and(|stem| stem.replace('_', "-") == name)
}

/// The files that are modules for tests only.
fn test_files(sources: &[Source]) -> BTreeSet<String> {
    let rust = sources.iter().filter(|source| source.is_rust());
    rust.flat_map(|source| {
        let path = source.path.trim_end_matches(".rs");
        let (directory, stem) = path.rsplit_once('/').unwrap_or(("", path));
        let inside = match stem {
            "lib" | "main" | "mod" => directory,
            _ => path,
        };
        let modules = test_modules(&source.text);
        modules
            .into_iter()
            .map(move |module| format!("{inside}/{module}.rs"))
    })
    .collect()
}
