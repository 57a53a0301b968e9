//! Directory priority in a mounted tree: the published experiment with its exact hit ratios, and
//! what designates a file.

use futae_testkit::wait::eventually;
use futae_tests::binary::futae;
use futae_tests::tools::{has_fuse, text};
use futae_tests::tree::{Tree, of_class, read};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Of the experiment of Kotoge and others (section 3): blocks of 8 KiB, 5.7 MiB for them, files of 1 MiB.
const CACHE: [&str; 4] = ["--block", "8KiB", "--cache", "5832KiB"];
const FILE_BYTES: usize = 1 << 20;
const BLOCKS_PER_FILE: u64 = 128;
const ROUNDS: u64 = 100;
/// The cases: priority files and others.
const CASES: [(usize, usize); 5] = [(2, 2), (5, 3), (5, 30), (8, 4), (8, 30)];

fn mount(tree: &mut Tree, policy: &str, more: &[&str]) {
    let mut arguments = CACHE.to_vec();
    arguments.extend(["--policy", policy, "--protect", "hot"]);
    arguments.extend(more);
    tree.mount(&arguments);
}

fn make_files(tree: &Tree, directory: &str, count: usize) {
    fs::create_dir(tree.lower(directory)).expect("a directory");
    for number in 0..count {
        let path = tree.lower(&format!("{directory}/{number}"));
        fs::write(path, vec![number as u8; FILE_BYTES]).expect("a file");
    }
}

fn read_all(tree: &Tree, directory: &str, count: usize) {
    for number in 0..count {
        let bytes = read(&tree.upper(&format!("{directory}/{number}")));
        assert!(bytes == vec![number as u8; FILE_BYTES], "file {number}");
    }
}

/// Hit ratio of the priority files in each case, as hits and requests.
fn experiment(policy: &str) -> Vec<(u64, u64)> {
    let case = |(hot, cold): (usize, usize)| {
        let mut tree = Tree::new();
        make_files(&tree, "hot", hot);
        make_files(&tree, "cold", cold);
        mount(&mut tree, policy, &[]);
        for _ in 0..ROUNDS {
            read_all(&tree, "cold", cold);
            read_all(&tree, "hot", hot);
        }
        let (_, last) = tree.stop();
        let (requests, hits) = of_class(&last, 1);
        assert_eq!(requests, hot as u64 * BLOCKS_PER_FILE * ROUNDS);
        (hits, requests)
    };
    CASES.into_iter().map(case).collect()
}

#[test]
fn the_published_hit_ratios_of_directory_priority() {
    if !has_fuse() {
        return;
    }
    let ratios: Vec<_> = experiment("directory")
        .into_iter()
        .map(|(hits, requests)| hits as f64 / requests as f64)
        .collect();
    assert_eq!(ratios, [0.99, 0.99, 0.99, 0.0, 0.0]);
}

#[test]
fn the_published_hit_ratios_of_lru() {
    if !has_fuse() {
        return;
    }
    let ratios: Vec<_> = experiment("lru")
        .into_iter()
        .map(|(hits, requests)| hits as f64 / requests as f64)
        .collect();
    assert_eq!(ratios, [0.99, 0.0, 0.0, 0.0, 0.0]);
}

/// Blocks of the protected class that were asked for by a run of `what`.
fn protected_requests(
    before: impl FnOnce(&Tree),
    arguments: &[&str],
    what: impl FnOnce(&Tree),
) -> u64 {
    let mut tree = Tree::new();
    make_files(&tree, "hot", 1);
    make_files(&tree, "cold", 1);
    before(&tree);
    mount(&mut tree, "directory", arguments);
    what(&tree);
    of_class(&tree.stop().1, 1).0 / BLOCKS_PER_FILE
}

#[test]
fn files_directly_in_a_protected_directory_and_no_others() {
    if !has_fuse() {
        return;
    }
    let nested = |tree: &Tree| {
        fs::create_dir(tree.lower("hot/deep")).expect("a directory");
        fs::copy(tree.lower("hot/0"), tree.lower("hot/deep/0")).expect("a copy");
    };
    let all = |tree: &Tree| {
        read_all(tree, "hot", 1);
        read_all(tree, "hot/deep", 1);
        read_all(tree, "cold", 1);
    };
    assert_eq!(protected_requests(nested, &[], all), 1);
    assert_eq!(protected_requests(nested, &["--recursive"], all), 2);
}

#[test]
fn any_name_of_a_file_counts_and_renames_are_followed() {
    if !has_fuse() {
        return;
    }
    let names = |tree: &Tree| {
        // A second name makes it protected while it has it.
        fs::hard_link(tree.upper("cold/0"), tree.upper("hot/link")).expect("a link");
        read_all(tree, "cold", 1);
        fs::remove_file(tree.upper("hot/link")).expect("removed");
        read_all(tree, "cold", 1);
        // A file that leaves, and one that comes.
        fs::rename(tree.upper("hot/0"), tree.upper("cold/left")).expect("renamed");
        let left = read(&tree.upper("cold/left"));
        assert_eq!(left.len(), FILE_BYTES);
        fs::rename(tree.upper("cold/left"), tree.upper("hot/0")).expect("renamed");
        read_all(tree, "hot", 1);
        // The directory itself, whatever it is called.
        fs::rename(tree.upper("hot"), tree.upper("warm")).expect("renamed");
        read_all(tree, "warm", 1);
    };
    assert_eq!(protected_requests(|_| {}, &[], names), 3);
}

fn order(tree: &Tree, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = futae(&[arguments[0], text(&tree.mountpoint)]);
    let output = command.args(&arguments[1..]).output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

#[test]
fn priority_can_be_changed_while_mounted() {
    if !has_fuse() {
        return;
    }
    let changes = |tree: &Tree| {
        read_all(tree, "cold", 1);
        let (code, said) = order(tree, &["protect", "cold"]);
        assert!(code == Some(0) && said.contains("cold"), "{said}");
        read_all(tree, "cold", 1);
        let in_mount = tree.upper("cold");
        let (code, said) = order(tree, &["unprotect", text(&in_mount)]);
        assert!(code == Some(0) && !said.contains("cold"), "{said}");
        read_all(tree, "cold", 1);
        // One that is removed is not kept.
        fs::create_dir(tree.upper("gone")).expect("a directory");
        let (_, said) = order(tree, &["protect", "gone"]);
        assert!(said.contains("gone"), "{said}");
        fs::remove_dir(tree.upper("gone")).expect("removed");
        let (code, said) = order(tree, &["unprotect", "cold"]);
        assert!(code == Some(1), "{said}");
        let (_, said) = order(tree, &["protect", "cold"]);
        assert!(!said.contains("gone"), "{said}");
        order(tree, &["unprotect", "cold"]);
        let (code, said) = order(tree, &["unprotect", "gone"]);
        assert!(code == Some(0), "the next one would be protected: {said}");
        for (arguments, says) in [
            (["unprotect", "cold"], "is not protected"),
            (["protect", "/"], "is not in"),
            (["protect", "../.."], "out of the tree"),
            (["protect", "none"], "no such directory"),
            (["protect", "cold/0"], "not a directory"),
            (["unprotect", "gone"], "no such directory"),
        ] {
            let (code, said) = order(tree, &arguments);
            assert!(
                code == Some(1) && said.contains(says),
                "{arguments:?}: {said}"
            );
        }
    };
    assert_eq!(protected_requests(|_| {}, &[], changes), 1);
}

#[test]
fn protected_now_blocks_are_safe_before_their_next_use() {
    if !has_fuse() {
        return;
    }
    let hits_after = |now: &[&str]| {
        let mut tree = Tree::new();
        make_files(&tree, "hot", 1);
        make_files(&tree, "cold", 1);
        make_files(&tree, "flood", 7);
        mount(&mut tree, "directory", &[]);
        read_all(&tree, "cold", 1);
        let (code, said) = order(&tree, &[&["protect", "cold"], now].concat());
        assert_eq!(code, Some(0), "{said}");
        read_all(&tree, "flood", 7);
        read_all(&tree, "cold", 1);
        of_class(&tree.stop().1, 1).1
    };
    assert_eq!(hits_after(&[]), 0);
    assert_eq!(hits_after(&["--now"]), BLOCKS_PER_FILE);
}

/// What `futae top` shows of a tree, as JSON and as text.
fn shown(control: &str) -> (Value, String) {
    let shown = |how| {
        let output = futae(&["top", control, how]).output().expect("it runs");
        String::from_utf8(output.stdout).expect("text")
    };
    let status: Value = serde_json::from_str(&shown("--json")).expect("JSON");
    (status["tree"].clone(), shown("--once"))
}

#[test]
fn a_directory_that_replaces_a_protected_one_is_protected_and_the_log_tells() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    make_files(&tree, "hot", 1);
    make_files(&tree, "next", 1);
    let arguments = ["--policy", "directory", "--protect", "hot"];
    let ready = tree.mount(&[&CACHE[..], &arguments].concat());
    let control = ready["control"].as_str().expect("a path");
    let hot = text(&tree.lower("hot")).to_owned();
    let made_by = |place: &dyn Fn(&str) -> PathBuf| {
        fs::remove_dir_all(place("hot")).expect("removed");
        let (now, text) = shown(control);
        assert_eq!(now["protected"], json!([]));
        assert_eq!(now["protected_absent"], json!(["hot"]));
        assert!(text.contains("to be protected: hot"), "{text}");
        fs::create_dir(place("hot")).expect("made again");
        fs::write(tree.lower("hot/0"), vec![0; FILE_BYTES]).expect("a file");
        // The kernel keeps names for a moment.
        let inode = |path: PathBuf| fs::metadata(path).map(|it| it.ino()).ok();
        eventually("the new directory and its file", || {
            inode(tree.upper("hot")) == inode(tree.lower("hot"))
                && inode(tree.upper("hot/0")) == inode(tree.lower("hot/0"))
        });
        read_all(&tree, "hot", 1);
    };
    read_all(&tree, "hot", 1);
    made_by(&|name| tree.upper(name));
    made_by(&|name| tree.lower(name));
    fs::rename(tree.upper("hot"), tree.upper("old")).expect("renamed");
    fs::rename(tree.upper("next"), tree.upper("hot")).expect("renamed");
    read_all(&tree, "hot", 1);
    let (now, text_now) = shown(control);
    let old = text(&tree.lower("old")).to_owned();
    assert_eq!(now["protected"], json!([hot, old]));
    assert_eq!(now["protected_absent"], json!([]));
    assert!(now["file_table_bytes"].as_u64() > Some(0), "{now}");
    assert!(
        text_now.contains(&format!("protected: {hot}\n")),
        "{text_now}"
    );
    let (code, said) = order(&tree, &["unprotect", "hot"]);
    assert!(code == Some(0) && !said.contains(&hot), "{said}");
    let (ended, last) = tree.stop();
    let requests = of_class(&last, 1).0 / BLOCKS_PER_FILE;
    assert_eq!(requests, 4, "{}", ended.errors);
    let log = ended.errors;
    let removed = format!("{hot}: this protected directory was removed");
    assert_eq!(log.matches(&removed).count(), 2, "{log}");
    let moved = format!("{hot}: this protected directory is {old} now");
    assert!(log.contains(&moved), "{log}");
}

#[test]
fn protected_files_take_their_share_and_no_more() {
    if !has_fuse() {
        return;
    }
    let cold_hits = |more: &[&str]| {
        let mut tree = Tree::new();
        make_files(&tree, "hot", 7);
        make_files(&tree, "cold", 1);
        mount(&mut tree, "directory(inner=fifo)", more);
        read_all(&tree, "cold", 1);
        for _ in 0..3 {
            read_all(&tree, "hot", 7);
        }
        read_all(&tree, "cold", 1);
        of_class(&tree.stop().1, 0).1
    };
    assert_eq!(cold_hits(&[]), 0, "they take everything");
    assert_eq!(
        cold_hits(&["--max-protected", "0.1"]),
        0,
        "and as FIFO has it"
    );
}

#[test]
fn wrong_usage_is_refused_before_anything_is_mounted() {
    if !has_fuse() {
        return;
    }
    let tree = Tree::new();
    fs::create_dir(tree.lower("in")).expect("a directory");
    fs::write(tree.lower("file"), "x").expect("a file");
    let (source, mountpoint) = (text(&tree.source), text(&tree.mountpoint));
    let protecting = |directory| vec!["--policy", "directory", "--protect", directory];
    for (arguments, says) in [
        (vec!["--protect", "/"], "policy lru protects nothing"),
        (protecting("/"), "is not in"),
        (protecting("none"), "no such directory"),
        (protecting("file"), "not a directory"),
        (protecting(".."), "out of the tree"),
        (vec!["--name", "x"], "--name is for a single file"),
        (
            vec!["--kernel-cache"],
            "--kernel-cache is for a single file",
        ),
        (vec!["--store-timeout", "5s"], "--store-timeout is for"),
        (
            vec!["--policy", "directory", "--recursive"],
            "--recursive is about the directories of --protect",
        ),
        (vec!["--policy", "const", "--pin", "0-3"], "--pin is for"),
        (
            vec!["--policy", "const(pin=3)"],
            "--policy const is for a single file",
        ),
        (
            vec!["--join-reads", "1MiB"],
            "--join-reads is for a single file",
        ),
        (vec!["--block", "2MiB", "--cache", "8MiB"], "at most 1MiB"),
        (vec!["--block", "128KiB"], "less than one block of 128KiB"),
        (
            vec!["--max-protected", "0.5", "--policy", "lru"],
            "--policy directory",
        ),
        (
            vec!["--max-protected", "2", "--policy", "directory"],
            "share between 0 and 1",
        ),
    ] {
        let cache = ["--cache", "64KiB"];
        let cache = if arguments.contains(&"--cache") {
            &[][..]
        } else {
            &cache
        };
        let mut command = futae(&["mount", source, mountpoint]);
        let output = command.args(cache).args(&arguments).output();
        let output = output.expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    let file = tree.lower("file");
    for (source, mountpoint, more, says) in [
        (source, text(&tree.lower("in")), None, "one is in the other"),
        (
            text(&file),
            mountpoint,
            Some("--recursive"),
            "is no directory",
        ),
    ] {
        let mut command = futae(&["mount", source, mountpoint, "--cache", "1MiB"]);
        let output = command.args(more).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.code() == Some(2) && said.contains(says),
            "{said}"
        );
    }
    fs::write(tree.upper("something"), "x").expect("a file");
    let output = futae(&["mount", source, mountpoint, "--cache", "1MiB"]).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("is not empty"), "{said}");
}
