//! Orders to a running mount, over its control socket.

use futae_tests::BLOCK;
use futae_tests::binary::futae;
use futae_tests::direct::{Buffer, Direct};
use futae_tests::stage::{EXPORT, Stage, is_mountpoint};
use futae_tests::tools::{has_fuse, text};
use serde_json::Value;

fn mounted(blocks: u64) -> Stage {
    let mut stage = Stage::new(blocks);
    let control = format!("unix:{}", stage.control.display());
    stage.mount_image(&["--cache", "16blocks", "--control", &control]);
    stage
}

#[test]
fn top_sees_a_mount() {
    if !has_fuse() {
        return;
    }
    let mut stage = mounted(32);
    let file = Direct::open(&stage.file()).expect("the file opens");
    let mut buffer = Buffer::new(BLOCK);
    for block in [3, 4, 3] {
        file.read(block * BLOCK as u64, &mut buffer).expect("read");
    }
    drop(file);
    let top = |words: &[&str]| {
        let mut command = futae(&["top", text(&stage.control)]);
        let output = command.args(words).output().expect("futae starts");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    let status: Value = serde_json::from_str(&top(&["--json"])).expect("JSON");
    let engine = &status["engines"][0];
    assert_eq!(engine["exports"][0], EXPORT, "{status}");
    assert_eq!(status["path"], text(&stage.file()), "{status}");
    assert_eq!(
        (&engine["requests"], &engine["hits"]),
        (&3.into(), &1.into())
    );
    let table = top(&["--once"]);
    assert!(table.contains("lru") && table.contains("33.3 %"), "{table}");
    assert!(table.contains(text(&stage.file())), "{table}");
    stage.stop_mount();
    assert!(!stage.control.exists(), "the control socket is left");
}

#[test]
fn a_mount_is_resized_and_refuses_what_it_does_not_know() {
    if !has_fuse() {
        return;
    }
    let mut stage = mounted(32);
    let resized = stage.order(r#"{"command":"resize","cache":"8blocks"}"#);
    assert_eq!(resized["capacity_blocks"], 8);
    let named = stage.order(r#"{"command":"resize","cache":"8blocks","export":"disk"}"#);
    assert_eq!(named["capacity_blocks"], 8, "{named}");
    for (order, said) in [
        (
            r#"{"command":"resize","cache":"0blocks"}"#,
            "at least one block",
        ),
        (r#"{"command":"resize","cache":"5000"}"#, "5000"),
        (
            r#"{"command":"resize","cache":"9blocks","export":"x"}"#,
            "nothing is called \"x\" here; there is disk",
        ),
        (
            r#"{"command":"explode"}"#,
            "there are end-record, policy, record, recorded, resize, status",
        ),
        ("no json", "not an order"),
    ] {
        let answer = stage.order(order);
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains(said), "{order}: {answer}");
    }
    assert_eq!(stage.status()["engines"][0]["capacity_blocks"], 8);
    stage.stop_mount();
}

#[test]
fn an_address_that_is_no_socket_is_refused_and_nothing_is_mounted() {
    let stage = Stage::new(4);
    let in_the_way = format!("unix:{}", stage.image.display());
    for (address, code, said) in [
        ("tcp:127.0.0.1:0", 2, "--control tcp:127.0.0.1:0"),
        ("unix:", 2, "--control unix:"),
        (&in_the_way, 1, "not a socket"),
    ] {
        if code == 1 && !has_fuse() {
            continue;
        }
        let words = ["--cache", "4blocks", "--control", address];
        let output = stage.mount_image_command(&words).output();
        let output = output.expect("futae starts");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{complaint}");
        assert!(complaint.contains(said), "{complaint}");
        assert!(!is_mountpoint(&stage.mountpoint), "{address}");
    }
}
