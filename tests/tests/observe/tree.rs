//! The metrics and the page of a mounted tree.

use crate::{cell, get_unix, value};
use futae_testkit::wait::eventually;
use futae_tests::tools::has_fuse;
use futae_tests::tree::Tree;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// One histogram has the requests for all files, and the metrics are those of the reference.
#[test]
fn the_files_of_a_tree_are_measured_together() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    for name in ["a", "b"] {
        std::fs::write(tree.lower(name), [7; 64 << 10]).expect("a file");
    }
    let (metrics, web) = (tree.beside("metrics"), tree.beside("web"));
    let address = |path: &std::path::Path| format!("unix:{}", path.display());
    tree.mount(&[
        "--cache",
        "1MiB",
        "--residency",
        "futae",
        "--metrics",
        &address(&metrics),
        "--web",
        &address(&web),
    ]);
    let mut buffer = [0; 4096];
    for name in ["a", "b", "a"] {
        let file = File::open(tree.upper(name)).expect("a file");
        file.read_exact_at(&mut buffer, 8192).expect("a read");
    }
    let file = File::options().write(true).open(tree.upper("a"));
    let file = file.expect("a file");
    file.write_all_at(&buffer, 0).expect("a write");
    file.sync_all().expect("synced");
    drop(file);
    let count = |body: &str, of: &str, operation: &str| {
        let name = format!("futae_tree_{of}_duration_seconds_count");
        let operation = format!("operation=\"{operation}\"");
        value(body, &name, &["level=\"upper\"", &operation])
    };
    let mut body = String::new();
    eventually("the last request is shown", || {
        body = get_unix(&metrics, "/metrics").1;
        count(&body, "request", "flush") == Some(1.0)
    });
    let count = |of: &str, operation: &str| count(&body, of, operation);
    assert_eq!(count("request", "read"), Some(3.0), "{body}");
    assert_eq!(count("request", "write"), Some(1.0), "{body}");
    assert_eq!(count("store", "read"), Some(2.0), "{body}");
    assert_eq!(count("store", "write"), Some(1.0), "{body}");
    let seconds = value(
        &body,
        "futae_tree_request_duration_seconds_sum",
        &["\"read\""],
    );
    assert!(seconds > Some(0.0), "{body}");
    let page = get_unix(&web, "/").1;
    let answered = cell(&page, "latencies", "files read", "answered");
    assert_eq!(answered.as_deref(), Some("3"), "{page}");
    tree.stop();
}
