//! One direction: a crate uses only crates before it.

use super::{Finding, Source, mask, test_modules, without_tests, words};
use serde_json::Value;

/// The crates, lowest first: the product's, then the laboratory's.
pub const ORDER: [&str; 27] = [
    "futae-units",
    "futae-terminal",
    "futae-agent-protocol",
    "futae-log",
    "futae-systemd",
    "futae-page-cache",
    "futae-agent",
    "futae-policy",
    "futae-trace",
    "futae-sim",
    "futae-sweep",
    "futae-plugin",
    "futae-allocate",
    "futae-engine",
    "futae-nbd",
    "futae-nbd-store",
    "futae-testkit",
    "futae-control",
    "futae-balance",
    "futae-vhost",
    "futae-host",
    "futae-observe",
    "futae-guest",
    "futae-cli",
    "futae-machine",
    "futae-papers",
    "futae-lab",
];

/// The laboratory, of which the product knows nothing.
const LABORATORY: [&str; 3] = ["futae-machine", "futae-papers", "futae-lab"];

/// Crates of the product whose own tests run in guests; these tests use `futae-machine`, and nothing of them is
/// published.
const TESTED_IN_GUESTS: [&str; 2] = ["futae-agent", "futae-balance"];

/// What only tests use.
const FOR_TESTS: &str = "futae-testkit";

/// Packages that may use all of them, and that nothing uses.
const OUTSIDE: [&str; 7] = [
    "futae-bench",
    "futae-examples",
    "futae-inputs",
    "futae-interleavings",
    "futae-python",
    "futae-tests",
    "futae-vopr",
];

/// Edges that the order would allow and that must not be.
const FORBIDDEN: [(&str, &str, &str); 3] = [
    (
        "futae-guest",
        "futae-host",
        "a guest knows nothing of exports",
    ),
    (
        "futae-engine",
        "futae-sim",
        "a live cache does not simulate",
    ),
    (
        "futae-nbd",
        "futae-sim",
        "what is on the wire does not depend on simulations",
    ),
];

/// Where a program registers policies from elsewhere, for all its threads: no policy.
const REGISTRATIONS: &str = "external.rs";

/// The standard library's modules that policies must not know: files, clocks, threads, sockets.
const NOT_FOR_POLICIES: [&str; 8] = [
    "fs", "io", "net", "thread", "time", "sync", "process", "env",
];

fn rank(name: &str) -> Option<usize> {
    ORDER.iter().position(|&other| other == name)
}

/// Why `from`, or its tests, must not use `to`, if they must not.
fn objection(from: &str, to: &str, in_tests: bool) -> Option<String> {
    if OUTSIDE.contains(&to) {
        return Some(format!("{from} uses {to}, which is for nobody"));
    }
    if to == FOR_TESTS && from != to {
        return (!in_tests).then(|| format!("{from} uses {to}, which is for tests only"));
    }
    if LABORATORY.contains(&to) && !LABORATORY.contains(&from) {
        let in_guests = in_tests && to == "futae-machine" && TESTED_IN_GUESTS.contains(&from);
        return (!in_guests).then(|| format!("{from} uses {to}, which is of the laboratory"));
    }
    let (low, high) = (rank(to)?, rank(from));
    if high == Some(low) {
        return None;
    }
    if high.is_some_and(|high| high < low) {
        return Some(format!("{from} uses {to}, which comes after it"));
    }
    let edge = FORBIDDEN.iter().find(|(a, b, _)| (*a, *b) == (from, to));
    edge.map(|(_, _, why)| format!("{from} uses {to}: {why}"))
}

/// What the manifests say; `metadata` is the output of `cargo metadata --no-deps`.
#[must_use]
pub fn check_manifests(metadata: &Value) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let mut report = |problem: String| {
            findings.push(Finding {
                path: format!("{name}/Cargo.toml"),
                line: 1,
                problem,
            });
        };
        if OUTSIDE.contains(&name) {
            continue;
        }
        if rank(name).is_none() {
            report(format!("{name} has no place in the order of crates"));
        }
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            let in_tests = dependency["kind"] == "dev";
            if let Some(problem) = objection(name, on, in_tests) {
                report(problem);
            }
        }
    }
    findings
}

/// What the sources say.
#[must_use]
pub fn check_uses(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let Some(from) = source.crate_name() else {
            continue;
        };
        let code = mask(&source.text);
        let in_tests = source.path.contains("/tests/") || is_test_module(source, sources);
        for (at, line) in code.lines().enumerate() {
            for (_, word) in words(line) {
                let to = word.replace('_', "-");
                if let Some(problem) = objection(from, &to, in_tests) {
                    findings.push(source.finding(at, problem));
                }
            }
        }
    }
    findings
}

/// Whether the root of the crate compiles this file for its tests only.
fn is_test_module(source: &Source, sources: &[Source]) -> bool {
    let Some((place, file)) = source.path.rsplit_once('/') else {
        return false;
    };
    let root = format!("{place}/lib.rs");
    let mut roots = sources.iter().filter(|other| other.path == root);
    roots.any(|root| {
        let modules = test_modules(&root.text);
        modules.iter().any(|module| file == format!("{module}.rs"))
    })
}

/// Policies know neither files nor clocks nor threads nor sockets. Their tests may.
#[must_use]
pub fn check_policies(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let place = "crates/futae-policy/src/";
    let own: Vec<_> = sources
        .iter()
        .filter(|source| source.path.starts_with(place))
        .collect();
    let for_tests: Vec<_> = own
        .iter()
        .flat_map(|source| test_modules(&source.text))
        .collect();
    for source in own {
        let name = source.path.trim_start_matches(place);
        let is_test = |module: &String| {
            name == format!("{module}.rs") || name.starts_with(&format!("{module}/"))
        };
        if name == REGISTRATIONS || for_tests.iter().any(is_test) {
            continue;
        }
        for (at, line) in without_tests(&source.text) {
            let found: Vec<_> = words(&line).collect();
            for pair in found.windows(2) {
                let [(_, "std"), (column, module)] = pair else {
                    continue;
                };
                if NOT_FOR_POLICIES.contains(module) && line[..*column].ends_with("std::") {
                    findings.push(source.finding(at, format!("a policy uses std::{module}")));
                }
            }
        }
    }
    findings
}
