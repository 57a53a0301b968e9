//! `make nightly`: a short one finds nothing, and a process that grows is found.

use futae_tests::binary::binary;
use futae_tests::tidy::root;
use futae_tests::tools::{has, has_fuse, has_root, text};
use std::process::Command;

/// Looks at a process once in each of 100 seconds, which has a descriptor more at each look, and 40 MiB more in the end.
const GROWTH: &str = "
import growth
count = iter(range(100))
def grown(process):
    at = next(count)
    return {'memory_kib': 100_000 if at < 40 else 140_000, 'descriptors': at, 'threads': 5}
growth.look_at = grown
seen = growth.Growth(100)
for at in range(100): seen.look(at, {'one': 1})
print(seen.judged(), *seen.grown(), sep='; ')
print(*growth.Growth(100).grown())
";

#[test]
fn what_grows_is_found() {
    if !has("python3") {
        return;
    }
    let mut python = Command::new("python3");
    python.env("PYTHONPATH", root().join("tests/nightly"));
    python.args(["-B", "-c", GROWTH]);
    let output = python.output().expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stdout);
    // It is looked at in the second quarter and in the last.
    assert!(
        said.starts_with(
            "3; one: descriptors grew from 24 to 49; one: memory_kib grew from 100000 to 140000\n"
        ),
        "{said}"
    );
    assert!(said.contains("nothing was seen"), "{said}");
}

#[test]
fn everything_at_once_finds_nothing_for_a_while() {
    let tools = ["python3", "qemu-io", "nbdcopy", "nbdinfo"];
    if !has_fuse() || !has_root() || !tools.into_iter().all(has) {
        return;
    }
    let mut nightly = Command::new(root().join("scripts/nightly"));
    nightly.args(["--seconds", "20", "--futae", text(binary())]);
    let output = nightly.output().expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    // So short a run says nothing of growth.
    assert!(said.contains("0 failures, 0 of 0 counts grew"), "{said}");
}
