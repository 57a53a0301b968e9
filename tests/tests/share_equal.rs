//! `futae serve --share-equal`: clones of one template are held once, and a read of the one is answered by the other.

use futae_testkit::nbd::Plain as Client;
use futae_tests::BLOCK;
use futae_tests::binary::{futae, run};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::text;
use serde_json::Value;
use std::fs;

const BLOCKS: u64 = 512;

fn read_all(stage: &Stage, export: &str) -> Vec<u8> {
    let mut client = Client::connect(&stage.socket, export).expect("a connection");
    let read = |block: u64| client.read(block * BLOCK as u64, BLOCK);
    let blocks = (0..BLOCKS).map(read);
    let blocks = blocks.map(|block| block.expect("a connection").expect("data"));
    blocks.collect::<Vec<_>>().concat()
}

#[test]
fn clones_are_held_once_until_they_differ() {
    let stage = Stage::new(BLOCKS);
    let clone = stage.path("clone.img");
    fs::copy(&stage.image, &clone).expect("a clone");
    let exports = [
        format!("one={}", text(&stage.image)),
        format!("two={}", text(&clone)),
    ];
    let listen = format!("unix:{}", text(&stage.socket));
    let mut command = futae(&["serve", "--json", "--cache", "2048blocks", "--share-equal"]);
    command.args([
        "--export",
        &exports[0],
        "--export",
        &exports[1],
        "--listen",
        &listen,
    ]);
    let mut server = Running::start("futae serve", command);
    server.line();
    let content = fs::read(&stage.image).expect("the image");
    for export in ["one", "two", "one"] {
        assert!(read_all(&stage, export) == content, "{export}");
    }
    let mut client = Client::connect(&stage.socket, "two").expect("a connection");
    let new = vec![7; BLOCK];
    client
        .write(0, &new)
        .expect("a connection")
        .expect("written");
    drop(client);
    assert!(read_all(&stage, "one") == content, "the other is as it was");
    assert!(read_all(&stage, "two")[..BLOCK] == new);
    let ended = server.stop();
    let last: Value = serde_json::from_str(ended.lines.last().expect("a line")).expect("JSON");
    let cache = &last["status"]["engines"][0];
    // Each disk once, and once more the block that the other overwrote.
    assert_eq!(cache["store_reads"], 2 * BLOCKS + 1, "{cache}");
    assert_eq!(cache["resident_blocks"], BLOCKS + 1, "{cache}");
    assert!(
        cache["equal_reads"].as_u64() >= Some(2 * BLOCKS - 1),
        "{cache}"
    );
}

#[test]
fn sharing_without_hashes_is_refused() {
    let stage = Stage::new(8);
    let export = format!("one={}", text(&stage.image));
    let listen = format!("unix:{}", text(&stage.socket));
    let words = [
        "serve",
        "--share-equal",
        "--export",
        &export,
        "--listen",
        &listen,
        "--cache",
        "64MiB",
    ];
    for (more, said) in [
        (["--evictions-memory", "off"], "--evictions-memory off"),
        (["--block", "2MiB"], "smaller --block"),
        (["--decision-log", "decisions"], "--decision-log"),
    ] {
        let output = run(&[&words[..], &more].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(said), "{errors}");
    }
}
