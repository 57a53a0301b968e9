//! The agent as one static file, which every guest can run: it is built by `scripts/static`, needs no
//! library, and counts.

use futae_testkit::need::{Need, skip};
use futae_tests::binary::builder;
use futae_tests::tidy::root;
use futae_tests::tools::has;
use std::path::Path;
use std::process::Command;

#[test]
fn one_file_needs_nothing_and_counts() {
    if !cfg!(target_arch = "x86_64") || !has("ldd") {
        return skip(Need::Tools, "the static agent is for x86-64 with glibc");
    }
    let mut build = builder("bash");
    build.arg(root().join("scripts/static")).arg("dev");
    // Whether it is fast is not looked at, so it is built in half the time.
    build.env("CARGO_PROFILE_DEV_OPT_LEVEL", "0");
    build.env("CARGO_PROFILE_DEV_DEBUG", "0");
    let built = build.output().expect("bash starts");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    let path = String::from_utf8_lossy(&built.stdout).trim().to_owned();
    let path = Path::new(&path);
    assert!(path.is_file(), "{} {said}", path.display());
    let libraries = Command::new("ldd").arg(path).output().expect("ldd starts");
    let libraries = [libraries.stdout, libraries.stderr].concat();
    let libraries = String::from_utf8_lossy(&libraries);
    let is_static = ["statically linked", "not a dynamic executable"];
    assert!(
        is_static.iter().any(|word| libraries.contains(word)),
        "{libraries}"
    );
    let counted = Command::new(path).args(["--once", "200ms"]).output();
    let counted = counted.expect("it starts");
    let table = String::from_utf8_lossy(&counted.stdout);
    assert!(
        counted.status.success() && table.contains("page cache, "),
        "{counted:?}"
    );
}
