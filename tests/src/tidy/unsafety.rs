//! `unsafe` stays in the modules that are named for it, each use with its reason.

use super::{Finding, Source, mask, words};

/// The modules that may hold it.
pub const NAMED: [&str; 17] = [
    "crates/futae-agent/src/system.rs",
    "crates/futae-agent/tests/counts/system.rs",
    "crates/futae-cli/src/demo/descriptors.rs",
    "crates/futae-cli/src/load/map.rs",
    "crates/futae-engine/src/arena.rs",
    "crates/futae-engine/src/file/ofd.rs",
    "crates/futae-engine/src/file/uring.rs",
    "crates/futae-engine/src/memory_file/map.rs",
    "crates/futae-guest/src/ring/system.rs",
    "crates/futae-page-cache/src/cold.rs",
    "crates/futae-page-cache/src/shared.rs",
    "crates/futae-plugin/src/foreign.rs",
    "examples/plugins/fifo.rs",
    "crates/futae-policy/src/structures/prefetch.rs",
    "crates/futae-systemd/src/system.rs",
    "python/src/arrow.rs",
    "python/src/memory.rs",
];

/// How the type of a pointer to a foreign function begins, `"C"` masked.
const FOREIGN_TYPE: &str = "unsafe extern     fn(";

/// Uses of `unsafe` elsewhere, or without a comment that says why it is sound, and named modules
/// that do without.
#[must_use]
pub fn check(sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources.iter().filter(|source| source.is_rust()) {
        let code = mask(&source.text);
        let is_named = NAMED.contains(&source.path.as_str());
        let mut uses = 0;
        for (at, line) in code.lines().enumerate() {
            // The type of a foreign function calls none.
            let line = line.replace(FOREIGN_TYPE, "");
            if !words(&line).any(|(_, word)| word == "unsafe") {
                continue;
            }
            uses += 1;
            if !is_named {
                let problem = format!("unsafe outside of {}", NAMED.join(" and "));
                findings.push(source.finding(at, problem));
            } else if !is_explained(&source.text, at) {
                findings.push(source.finding(at, "unsafe without a comment // SAFETY: above it"));
            }
        }
        if is_named && uses == 0 {
            let problem = "named for unsafe, and has none: take it off the list";
            findings.push(source.finding(0, problem));
        }
    }
    findings
}

/// Whether the comment right above line `at`, attributes apart, says why it is sound.
fn is_explained(text: &str, at: usize) -> bool {
    let lines: Vec<&str> = text.lines().take(at).map(str::trim).collect();
    let above = lines
        .iter()
        .rev()
        .take_while(|line| line.starts_with("//") || line.starts_with("#["));
    above.into_iter().any(|line| line.starts_with("// SAFETY:"))
}
