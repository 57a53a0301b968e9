//! `futae mount` of several volumes: files over different stores in one cache.

use futae_testkit::stamp::Stamp;
use futae_tests::BLOCK;
use futae_tests::binary::{futae, run};
use futae_tests::direct::{Buffer, Direct};
use futae_tests::stage::{Stage, is_mountpoint};
use futae_tests::tools::{has_fuse, text};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const BLOCKS: u64 = 256;
const NAMES: [&str; 2] = ["near", "far"];

/// A server of the stage's image, and beside that an image of the same size, which starts with other
/// versions.
fn stage() -> (Stage, PathBuf) {
    let mut stage = Stage::new(BLOCKS);
    let near = stage.path("near.img");
    let stamped = |block| {
        let mut bytes = vec![0; BLOCK];
        Stamp { block, version: 9 }.fill(&mut bytes);
        bytes
    };
    fs::write(&near, (0..BLOCKS).flat_map(stamped).collect::<Vec<_>>()).expect("an image");
    stage.serve(&["--cache", "128blocks", "--policy", "exclusive"]);
    (stage, near)
}

fn command(stage: &Stage, near: &Path, words: &[&str]) -> Command {
    let sources = [
        format!("near={}", text(near)),
        format!("far={}", stage.uri()),
    ];
    let mut command = futae(&["mount", &sources[0], &sources[1]]);
    command.arg(&stage.mountpoint);
    command.args(["--json", "--cache", "64blocks", "--store-timeout", "0"]);
    command.args(words);
    command
}

fn of(status: &Value, name: &str, key: &str) -> Value {
    let volumes = status["volumes"].as_array().expect("volumes");
    let found = volumes.iter().find(|volume| volume["name"] == name);
    found.expect("a volume")[key].clone()
}

fn count(value: &Value, name: &str) -> u64 {
    value[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name}: {value}"))
}

fn check(file: &Direct, block: u64, version: u64) {
    let mut buffer = Buffer::new(BLOCK);
    file.read(block * BLOCK as u64, &mut buffer)
        .expect("a read");
    assert_eq!(Stamp::read(buffer.get()), Some(Stamp { block, version }));
}

fn write(file: &Direct, block: u64, version: u64) {
    let mut buffer = Buffer::new(BLOCK);
    Stamp { block, version }.fill(buffer.get_mut());
    file.write(block * BLOCK as u64, &buffer).expect("a write");
}

/// Both ways of writing: all that each file was given is in its own store at the end.
fn two_stores_in_one_cache(mode: &str) {
    if !has_fuse() {
        return;
    }
    let (mut stage, near) = stage();
    let command = command(&stage, &near, &["--write-mode", mode]);
    let ready = stage.start_mount_of_any(command);
    assert_eq!(ready["path"], text(&stage.mountpoint));
    let classes = ready["files"].as_array().expect("files");
    let classes: Vec<_> = classes
        .iter()
        .map(|file| (file["name"].as_str(), file["class"].as_str()))
        .collect();
    let expected = [("near", "local"), ("far", "remote")];
    assert_eq!(
        classes,
        expected.map(|(name, class)| (Some(name), Some(class)))
    );
    let mut names: Vec<_> = fs::read_dir(&stage.mountpoint)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["far", "near"]);
    let files = NAMES.map(|name| {
        let path = stage.mountpoint.join(name);
        let length = fs::metadata(&path).expect("there").len();
        assert_eq!(length, BLOCKS * BLOCK as u64);
        Direct::open(&path).expect("it opens")
    });
    for block in 0..BLOCKS {
        for (file, version) in files.iter().zip([9, 0]) {
            check(file, block, version);
            if block % 3 == 0 {
                write(file, block, version + 1);
                check(file, block, version + 1);
            }
        }
    }
    // One file is flushed, and then the other.
    for file in &files {
        file.sync().expect("a flush");
    }
    for (file, version) in files.iter().zip([20, 30]) {
        write(file, 1, version);
    }
    for (file, [newest, flushed]) in files.iter().zip([[20, 10], [30, 1]]) {
        check(file, 1, newest);
        check(file, 3, flushed);
    }
    drop(files);
    let last = stage.stop_mount();
    let status = &last["status"];
    assert_eq!(
        (count(status, "capacity_blocks"), count(status, "errors")),
        (64, 0)
    );
    assert_eq!(count(status, "resident_blocks"), 64, "one cache for both");
    for name in NAMES {
        assert!(
            of(status, name, "requests").as_u64() > Some(BLOCKS),
            "{status}"
        );
    }
    let below = stage.stop_serve();
    let below = &below["status"]["engines"][0];
    // Only one of the stores is a cache, and takes what is evicted.
    let taken = count(below, "demotions_in") + count(below, "demotions_refused");
    assert!(
        taken > BLOCKS / 2 && taken <= count(status, "demotions_out"),
        "{below}"
    );
    assert!(
        count(status, "demotions_out") < count(status, "evictions") * 2 / 3,
        "{status}"
    );
    for (image, first, newest) in [(&near, 9, 20), (&stage.image, 0, 30)] {
        let bytes = fs::read(image).expect("the image");
        for (block, bytes) in (0..).zip(bytes.chunks(BLOCK)) {
            let version = match block {
                1 => newest,
                _ => first + u64::from(block % 3 == 0),
            };
            assert_eq!(Stamp::read(bytes), Some(Stamp { block, version }));
        }
    }
}

#[test]
fn two_stores_in_one_cache_that_writes_through() {
    two_stores_in_one_cache("write-through");
}

#[test]
fn two_stores_in_one_cache_that_writes_back() {
    two_stores_in_one_cache("write-back");
}

/// A directory, as one on a remote file system would be: each of its files.
#[test]
fn a_directory_is_its_files() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(4);
    let images = stage.path("images");
    fs::create_dir(&images).expect("a directory");
    for (name, byte) in [("one", 1), ("two", 2)] {
        fs::write(images.join(name), [byte; 5 * BLOCK]).expect("an image");
    }
    let sources = [
        format!("disk={}", text(&stage.image)),
        format!("vm={},class=remote", text(&images)),
    ];
    let mut command = futae(&["mount", &sources[0], &sources[1]]);
    command
        .arg(&stage.mountpoint)
        .args(["--json", "--cache", "1MiB"]);
    let ready = stage.start_mount_of_any(command);
    let files = ready["files"].as_array().expect("files");
    let files: Vec<_> = files
        .iter()
        .map(|file| [&file["name"], &file["class"]].map(|text| text.as_str().unwrap_or_default()))
        .collect();
    assert_eq!(
        files,
        [
            ["disk", "local"],
            ["vm-one", "remote"],
            ["vm-two", "remote"]
        ]
    );
    let two = stage.mountpoint.join("vm-two");
    assert_eq!(fs::read(&two).expect("read"), [2; 5 * BLOCK]);
    stage.stop_mount();
}

#[test]
fn a_warm_start_is_for_the_same_volumes() {
    if !has_fuse() {
        return;
    }
    let (mut stage, near) = stage();
    let state = stage.path("state");
    let words = ["--state", text(&state)];
    let command_of_two = |stage: &Stage| command(stage, &near, &words);
    let cold = command_of_two(&stage);
    assert_eq!(stage.start_mount_of_any(cold)["warm_blocks"], 0);
    for name in NAMES {
        let file = Direct::open(&stage.mountpoint.join(name)).expect("it opens");
        (0..20).for_each(|block| check(&file, block, if name == "near" { 9 } else { 0 }));
    }
    stage.stop_mount();
    let warm = command_of_two(&stage);
    assert_eq!(stage.start_mount_of_any(warm)["warm_blocks"], 40);
    let last = stage.stop_mount();
    assert_eq!(of(&last["status"], "far", "errors"), 0);
}

#[test]
fn what_cannot_be_mounted_together_is_said() {
    let stage = Stage::new(4);
    let (image, point) = (text(&stage.image), text(&stage.mountpoint));
    let one = format!("a={image}");
    let directory = format!("b={}", text(&stage.mountpoint));
    let missing = format!("b={image}.not");
    let cases: [(&[&str], i32, &str); 8] = [
        (&[&one, image], 2, "NAME="),
        (&[&one, &format!("b={image}")], 2, "same file"),
        (&[&one, &format!("{one},read-only")], 2, "two volumes"),
        (&[&one, &directory], 1, "without files"),
        (&[&one, &missing], 1, "disk.img.not"),
        (&[&format!("{one},share=4KiB"), &missing], 2, "share"),
        (&[&one, &missing, "--name", "c"], 2, "--name"),
        (&[&one, &missing, "--policy", "const(pin=0)"], 2, "const"),
    ];
    for (words, status, said) in cases {
        let (sources, options) = words.split_at(2);
        let output = run(&[&["mount"], sources, &[point, "--cache", "64KiB"], options].concat());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{words:?}: {errors}");
        assert!(errors.contains(said), "{words:?}: {errors}");
        assert!(!is_mountpoint(&stage.mountpoint));
    }
}
