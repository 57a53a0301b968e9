//! This source tree is as it should be, and each rule that says so can be broken.

mod rules;

use futae_policy::Kind;
use futae_tests::tidy::{
    Finding, Source, cards, dependencies, documents, english, leftovers, links, policy_names, root,
    sizes, skips, sources, unsafety, waiting,
};
use std::process::Command;

fn nothing(findings: &[Finding]) {
    let list: Vec<_> = findings.iter().map(ToString::to_string).collect();
    assert!(list.is_empty(), "\n{}", list.join("\n"));
}

#[test]
fn no_manifest_is_against_the_order_of_crates() {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args([
        "metadata",
        "--no-deps",
        "--format-version",
        "1",
        "--offline",
    ]);
    let output = cargo.current_dir(root()).output().expect("cargo starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON");
    let names = metadata["packages"].as_array().map_or(0, Vec::len);
    assert!(
        names >= dependencies::ORDER.len(),
        "cargo found only {names} packages"
    );
    nothing(&dependencies::check_manifests(&metadata));
}

#[test]
fn no_source_is_against_the_order_of_crates() {
    nothing(&dependencies::check_uses(&sources()));
}

#[test]
fn policies_know_no_files_clocks_threads_or_sockets() {
    nothing(&dependencies::check_policies(&sources()));
}

#[test]
fn no_source_is_too_long() {
    nothing(&sizes::check(&sources()));
}

#[test]
fn unsafe_is_where_it_is_named_and_explained() {
    nothing(&unsafety::check(&sources()));
}

#[test]
fn every_policy_has_its_card_and_its_reference() {
    let sources = sources();
    nothing(&cards::check(&sources));
}

#[test]
fn no_policy_is_named_outside_of_the_registry() {
    let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    nothing(&policy_names::check(&sources(), &names));
}

/// `cargo fmt` does not find them: the registry declares their modules by a macro.
#[test]
fn every_policy_is_formatted() {
    let place = root().join("crates/futae-policy/src/replace");
    let files = std::fs::read_dir(place).expect("the policies are there");
    let paths = files.map(|file| file.expect("a directory entry").path());
    let paths: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "rs"))
        .collect();
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--check", "--edition", "2024"]).args(paths);
    let output = rustfmt.output().expect("rustfmt starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn nothing_is_unfinished() {
    nothing(&leftovers::check_unfinished(&sources()));
}

#[test]
fn no_library_prints() {
    nothing(&leftovers::check_printing(&sources()));
}

#[test]
fn no_test_is_ignored() {
    nothing(&leftovers::check_ignored(&sources()));
}

#[test]
fn no_test_sleeps_to_be_right() {
    nothing(&waiting::check(&sources()));
}

#[test]
fn no_test_is_skipped_past_the_kit() {
    nothing(&skips::check(&sources()));
}

#[test]
fn no_path_is_of_one_machine() {
    nothing(&leftovers::check_workplaces(&sources()));
}

#[test]
fn no_reference_is_to_a_document_that_is_not_here() {
    nothing(&leftovers::check_absent(&sources()));
}

#[test]
fn no_sentence_must_be_read_twice() {
    nothing(&english::check(&sources()));
}

#[test]
fn every_document_has_one_title() {
    nothing(&documents::check_titles(&sources()));
}

#[test]
fn the_change_log_has_its_shape() {
    for source in sources() {
        if source.path == "CHANGELOG.md" {
            nothing(&documents::check_changelog(&source));
        }
    }
}

#[test]
fn every_link_leads_somewhere() {
    let mut sources = sources();
    // They hold examples of links to nothing.
    sources.retain(|it| {
        !["links", "documents"]
            .iter()
            .any(|name| it.path == format!("tests/src/tidy/{name}.rs"))
    });
    nothing(&links::check_links(&sources));
}

#[test]
fn every_promise_has_its_test() {
    nothing(&documents::check_promises(&sources()));
}
