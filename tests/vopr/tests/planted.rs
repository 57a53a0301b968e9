//! The bugs that `make planted-bugs` plants still fit the engine, so that they do not rot.

use std::path::{Path, PathBuf};
use std::process::Command;

fn patches() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("planted");
    let entries = std::fs::read_dir(folder).expect("the folder of patches");
    let mut patches: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    patches.sort();
    patches
}

#[test]
fn every_patch_applies_and_says_what_it_plants() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let patches = patches();
    assert!(patches.len() >= 30, "{} patches", patches.len());
    for patch in patches {
        let text = std::fs::read_to_string(&patch).expect("a patch");
        let name = patch.display();
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.ends_with('.'),
            "{name} does not begin with a sentence"
        );
        let changes = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        let mut changes = changes.peekable();
        assert!(changes.peek().is_some(), "{name} changes nothing");
        assert!(
            changes.all(|path| path.starts_with("crates/futae-engine/src/")),
            "{name} changes more than the engine"
        );
        let mut git = Command::new("git");
        let git = git
            .current_dir(&root)
            .args(["apply", "--check"])
            .arg(&patch);
        let output = git.output().expect("git");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{name} does not fit the engine any more: {problem}"
        );
    }
}
