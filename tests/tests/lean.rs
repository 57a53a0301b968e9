//! What `make demo` compiles.

use futae_tests::binary::cargo;
use futae_tests::tidy::root;
use std::collections::BTreeSet;

/// The crates that futae is made of, with these features.
fn crates(features: &[&str]) -> BTreeSet<String> {
    let mut cargo = cargo();
    cargo.args(["tree", "--offline", "--locked", "--package", "futae-cli"]);
    cargo.args(["--edges", "normal", "--prefix", "none", "--format", "{p}"]);
    let output = cargo.args(features).current_dir(root()).output();
    let output = output.expect("cargo starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

#[test]
fn the_demo_is_built_without_parquet_urls_and_pictures() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("the Makefile");
    let demo = makefile
        .lines()
        .find(|line| line.ends_with("-- demo $(ARGS)"));
    assert!(demo.is_some_and(|line| line.contains("--no-default-features")));
    let (lean, whole) = (crates(&["--no-default-features"]), crates(&[]));
    for heavy in [
        "parquet",
        "object_store",
        "openssl",
        "resvg",
        "epaint_default_fonts",
        "opentelemetry_sdk",
        "ureq",
    ] {
        assert!(whole.contains(heavy), "{heavy} has another name now");
        assert!(!lean.contains(heavy), "{heavy} is compiled for the demo");
    }
}
