//! docs/how-to/write-a-policy.md, followed step by step in a copy of the crate.

use futae_tests::binary::cargo;
use futae_tests::tidy::{Source, cards, root};
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/how-to/write-a-policy.md";
const FILE: &str = "crates/futae-policy/src/replace/lip.rs";
const REGISTRY: &str = "crates/futae-policy/src/registry.rs";

/// The contents of the page's code blocks in `language`.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let (mut found, mut inside) = (Vec::new(), None::<String>);
    for line in page.lines() {
        match (&mut inside, line.strip_prefix("```")) {
            (None, Some(begun)) if begun == language => inside = Some(String::new()),
            (Some(_), Some(_)) => found.extend(inside.take()),
            (Some(text), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, _) => {}
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory can be made");
    for entry in fs::read_dir(from).expect("a directory of the crate") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a file can be copied");
        }
    }
}

/// The workspace with the one crate in it, and beside it what the manifests name that its tests lead to.
fn scratch(place: &Path) {
    for directory in ["crates", "tests/kit"] {
        copy(&root().join(directory), &place.join(directory));
    }
    fs::copy(root().join("Cargo.lock"), place.join("Cargo.lock")).expect("the lock file");
    let manifest = fs::read_to_string(root().join("Cargo.toml")).expect("the manifest");
    let lines = manifest
        .lines()
        .filter(|line| !line.starts_with("default-members = "))
        .map(|line| match line.starts_with("members = ") {
            true => "members = [\"crates/futae-policy\"]",
            false => line,
        });
    let lines: Vec<_> = lines.collect();
    fs::write(place.join("Cargo.toml"), lines.join("\n")).expect("the manifest is written");
}

/// Where this test was built: the copy is built there, too, so that its dependencies are not built again.
fn target() -> PathBuf {
    let program = std::env::current_exe().expect("this program has a path");
    let deps = program.ancestors().nth(3).expect("target/debug/deps");
    deps.to_owned()
}

/// Runs a command of the page in the copy, without network; what it prints.
fn run(place: &Path, command: &str) -> String {
    let mut words = command.split_whitespace();
    assert_eq!(words.next(), Some("cargo"), "{command}");
    let mut cargo = cargo();
    cargo
        .args(words)
        .current_dir(place)
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TARGET_DIR", target());
    let output = cargo.output().expect("cargo starts");
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{command}:\n{}\n{}",
        said(&output.stdout),
        said(&output.stderr)
    );
    said(&output.stdout)
}

#[test]
fn the_page_on_policies_adds_one_file_and_one_line() {
    let page = fs::read_to_string(root().join(PAGE)).expect("the page");
    let rust = blocks(&page, "rust");
    let [file, line] = &rust[..] else {
        panic!("{PAGE}: a file and a line, not {} blocks", rust.len());
    };
    let commands = blocks(&page, "sh").concat();

    let place = tempfile::tempdir().expect("a temporary directory");
    scratch(place.path());
    fs::write(place.path().join(FILE), file).expect("the file is written");
    let registry = fs::read_to_string(root().join(REGISTRY)).expect("the registry");
    let first = registry
        .find("lru = \"lru\"")
        .expect("the registry begins with lru");
    let added = format!("{}{line}{}", &registry[..first], &registry[first..]);
    assert_eq!(added.lines().count(), registry.lines().count() + 1);
    fs::write(place.path().join(REGISTRY), &added).expect("the registry is written");

    let ran: String = commands
        .lines()
        .map(|line| run(place.path(), line))
        .collect();
    for test in [
        "registry::contract::lip::obeys_the_contract",
        "replace::lip::tests::equals_its_reference_model",
        "replace::lip::tests::worked_example",
        "registry::tests::every_card_is_complete_and_its_parameters_are_real",
    ] {
        assert!(
            ran.contains(&format!("test {test} ... ok")),
            "{test}:\n{ran}"
        );
    }
    let findings = cards::check(&[Source::new(FILE, file), Source::new(REGISTRY, &added)]);
    assert!(findings.is_empty(), "{findings:?}");
}
