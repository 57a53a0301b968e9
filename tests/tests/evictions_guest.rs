//! Stock guest kernels demote what they evict with its data: the laboratory's demonstration, small.

use futae_tests::binary::binary;
use futae_tests::tools::{Need, has, skip};
use serde_json::Value;
use std::process::Command;

#[test]
fn evicted_pages_of_two_guests_enter_the_cache_with_their_data_and_never_wrong() {
    if !has("qemu-system-x86_64") {
        return skip(Need::Qemu, "qemu-system-x86_64 is missing");
    }
    // The disks are larger than the guests' memory, so that their kernels evict.
    let options = [
        "--image",
        "160MiB",
        "--lower",
        "64MiB",
        "--ways",
        "exclusive",
    ];
    let mut demo = Command::new(binary().with_file_name("futae-lab"));
    demo.args(["demo", "--json", "--warmup", "40000", "--reads", "8000"]);
    let output = demo.args(options).env("FUTAE_BIN", binary()).output();
    let output = output.expect("the laboratory starts");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let run = &report["runs"][0];
    let count = |key: &str| run[key].as_u64().expect(key);
    assert_eq!(run["way"], "exclusive");
    assert!(count("demotions") > 1000, "{run:#}");
    assert!(count("compared") > 1000, "{run:#}");
    assert_eq!(count("wrong"), 0, "{run:#}");
    // Of what was evicted nearly all comes with its data; the rest by number.
    let all = count("demotions") + count("refused") + count("notices");
    assert!(count("demotions") * 100 >= all * 95, "{run:#}");
    let lower = |of: &Value| of["lower_hit"].as_f64().expect("a ratio");
    let difference = lower(run) - lower(&run["predicted"]);
    assert!(difference.abs() < 0.05, "{run:#}");
}
