//! What a server remembers over a reboot of its host: `--state`.

use futae_testkit::nbd::Plain as Client;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::{eventually, obtain};
use futae_tests::BLOCK;
use futae_tests::binary::{futae, run};
use futae_tests::process::Running;
use futae_tests::stage::{EXPORT, Stage};
use futae_tests::tools::text;
use serde_json::Value;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

const BLOCKS: u64 = 256;
/// So seldom that no test sees it happen.
const NEVER: &str = "1000000";

fn serve(stage: &mut Stage, words: &[&str]) {
    let state = stage.path("state");
    stage.serve(&[&["--state", text(&state)], words].concat());
}

/// Reads blocks, each of which must hold what the image was made with.
fn read(stage: &Stage, export: &str, blocks: impl IntoIterator<Item = u64>) {
    let mut client = Client::connect(&stage.socket, export).expect("a connection");
    for block in blocks {
        let data = client.read(block * BLOCK as u64, BLOCK);
        let data = data.expect("connected").expect("a read");
        let stamp = Stamp { block, version: 0 };
        assert_eq!(Stamp::read(&data), Some(stamp), "block {block}");
    }
}

/// The cache that has this export.
fn cache_of(stage: &Stage, export: &str) -> Value {
    let status = stage.status();
    let caches = status["engines"].as_array().expect("a list").iter();
    let has_it = |cache: &&Value| {
        let exports = cache["exports"].as_array().expect("a list");
        exports.iter().any(|name| name == export)
    };
    caches.clone().find(has_it).expect("its cache").clone()
}

fn number(of: &Value, name: &str) -> u64 {
    of[name]
        .as_u64()
        .unwrap_or_else(|| panic!("{name} in {of}"))
}

/// Waits until a cache has this many blocks, and the data of all of them.
fn settle(stage: &Stage, export: &str, resident: u64) {
    obtain("not loaded", || {
        let cache = cache_of(stage, export);
        let is_so = cache["loading_blocks"] == 0 && cache["resident_blocks"] == resident;
        is_so.then_some(()).ok_or(cache)
    });
}

/// Every one of these reads hits, and the store is not read for them.
fn all_hit(stage: &Stage, export: &str, blocks: impl IntoIterator<Item = u64>) {
    let before = cache_of(stage, export);
    read(stage, export, blocks);
    let after = cache_of(stage, export);
    assert_eq!(after["misses"], before["misses"], "{after}");
    assert_eq!(after["bytes_store_read"], before["bytes_store_read"]);
    assert!(number(&after, "hits") > number(&before, "hits"), "{after}");
}

/// Waits until a file has another content than before; returns when that was written.
fn saved_again(path: &Path, seen: Option<std::time::SystemTime>) -> Option<std::time::SystemTime> {
    let time = || fs::metadata(path).and_then(|found| found.modified()).ok();
    eventually("it is saved", || time().is_some() && time() != seen);
    time()
}

/// Started anew, the server has the blocks before anybody asks, and reads none of them a second time.
fn is_warm(words: &[&str]) {
    let mut stage = Stage::new(BLOCKS);
    let words = [&["--cache", "16blocks"], words].concat();
    serve(&mut stage, &words);
    assert_eq!(stage.ready()["warm_blocks"], 0);
    read(&stage, EXPORT, 10..26);
    settle(&stage, EXPORT, 16);
    stage.stop_serve();
    serve(&mut stage, &words);
    assert_eq!(stage.ready()["warm_blocks"], 16);
    settle(&stage, EXPORT, 16);
    let cache = cache_of(&stage, EXPORT);
    assert_eq!(
        (&cache["requests"], &cache["preload_reads"]),
        (&0.into(), &16.into())
    );
    all_hit(&stage, EXPORT, 10..26);
    stage.stop_serve();
}

#[test]
fn a_server_begins_warm() {
    is_warm(&["--policy", "lru"]);
    is_warm(&["--policy", "s3-fifo", "--write-mode", "write-back"]);
    // The usual one.
    is_warm(&[]);
}

#[test]
fn blocks_that_are_loaded_in_pieces_are_loaded_again() {
    let mut stage = Stage::new(4 * 512);
    let words = ["--cache", "2blocks", "--block", "2MiB", "--policy", "lru"];
    serve(&mut stage, &words);
    read(&stage, EXPORT, [3, 512, 1024]);
    settle(&stage, EXPORT, 2);
    stage.stop_serve();
    serve(&mut stage, &words);
    settle(&stage, EXPORT, 2);
    all_hit(&stage, EXPORT, 512..1536);
    stage.stop_serve();
}

#[test]
fn the_state_is_saved_from_time_to_time_and_survives_a_kill() {
    let mut stage = Stage::new(BLOCKS);
    let words = [
        "--cache",
        "8blocks",
        "--policy",
        "lru",
        "--state-every",
        "0.1",
    ];
    serve(&mut stage, &words);
    read(&stage, EXPORT, 0..8);
    let state = stage.path("state");
    // In the second one from now all eight are there.
    let seen = saved_again(&state, None);
    let seen = saved_again(&state, seen);
    saved_again(&state, seen);
    stage.kill_serve();
    serve(&mut stage, &words);
    settle(&stage, EXPORT, 8);
    all_hit(&stage, EXPORT, 0..8);
    stage.stop_serve();
}

#[test]
fn a_state_never_brings_back_old_data() {
    let mut stage = Stage::new(BLOCKS);
    let words = ["--cache", "16blocks", "--policy", "lru"];
    serve(&mut stage, &words);
    read(&stage, EXPORT, 0..8);
    stage.stop_serve();
    let image = OpenOptions::new().write(true).open(&stage.image);
    let mut bytes = vec![0; BLOCK];
    let newer = Stamp {
        block: 3,
        version: 7,
    };
    newer.fill(&mut bytes);
    let written = image.and_then(|image| image.write_all_at(&bytes, 3 * BLOCK as u64));
    written.expect("the image can be written");
    serve(&mut stage, &words);
    settle(&stage, EXPORT, 8);
    let mut client = Client::connect(&stage.socket, EXPORT).expect("a connection");
    let data = client.read(3 * BLOCK as u64, BLOCK);
    assert_eq!(
        Stamp::read(&data.expect("connected").expect("a read")),
        Some(newer)
    );
    drop(client);
    stage.stop_serve();
}

#[test]
fn a_damaged_or_foreign_file_is_refused_with_a_reason_and_ignored() {
    let mut stage = Stage::new(BLOCKS);
    let state = stage.path("state");
    let words = ["--cache", "8blocks", "--policy", "lru"];
    serve(&mut stage, &words);
    read(&stage, EXPORT, 0..8);
    stage.stop_serve();
    let good = fs::read(&state).expect("saved");
    let mut damaged = good.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let large = ["--cache", "2blocks", "--policy", "lru", "--block", "8KiB"];
    let cases: [(&[u8], &[&str], &str); 4] = [
        (&damaged, &words, "is damaged"),
        (&good[..good.len() - 3], &words, "is damaged"),
        (b"", &words, "is no state file"),
        (&good, &large, "block size"),
    ];
    let is_ignored = |stage: &mut Stage, words: &[&str], reason: &str| {
        serve(stage, words);
        assert_eq!(stage.ready()["warm_blocks"], 0, "{reason}");
        read(stage, EXPORT, 0..2);
        let path = text(&state).to_owned();
        let said = format!("--state {path}: {reason}");
        let said = if reason.starts_with("is") {
            said
        } else {
            reason.to_owned()
        };
        stage.stop_serve_that_said(&said);
        // The server replaced it by its own.
        serve(stage, words);
        assert_ne!(stage.ready()["warm_blocks"], 0, "{reason}");
        stage.stop_serve();
    };
    for (bytes, words, reason) in cases {
        fs::write(&state, bytes).expect("written");
        is_ignored(&mut stage, words, reason);
    }
    // Another cache can use it.
    assert_eq!(fs::read(stage.path("state.old")).expect("kept"), good);
    // It cannot be read, not even by root.
    fs::remove_file(&state).expect("removed");
    symlink("state", &state).expect("a link to itself");
    is_ignored(&mut stage, &words, "cannot be read");
    fs::write(&state, &good).expect("written");
    let image = OpenOptions::new().write(true).open(&stage.image);
    image
        .and_then(|image| image.set_len((BLOCKS + 1) * BLOCK as u64))
        .expect("a longer image");
    is_ignored(
        &mut stage,
        &words,
        "its size in bytes is 1048576, and here it is 1052672",
    );
}

#[test]
fn another_policy_has_the_blocks_too() {
    let mut stage = Stage::new(BLOCKS);
    let [lru, arc] = ["lru", "arc"].map(|policy| ["--cache", "8blocks", "--policy", policy]);
    serve(&mut stage, &lru);
    read(&stage, EXPORT, 0..8);
    stage.stop_serve();
    serve(&mut stage, &arc);
    assert_eq!(stage.ready()["warm_blocks"], 8);
    settle(&stage, EXPORT, 8);
    all_hit(&stage, EXPORT, 0..8);
    stage.stop_serve_that_said("its policy is lru, and here it is arc");
    serve(&mut stage, &arc);
    assert_eq!(stage.ready()["warm_blocks"], 8);
    stage.stop_serve();
}

/// A slip of the hand must not cost an image: what is there and no state is left as it is.
#[test]
fn a_file_that_is_no_state_is_never_replaced() {
    let mut stage = Stage::new(BLOCKS);
    let other = stage.path("other");
    fs::write(&other, [7; 1000]).expect("written");
    let image = stage.image.clone();
    for path in [&image, &other] {
        let before = fs::read(path).expect("there");
        let words = [
            "--cache",
            "8blocks",
            "--policy",
            "lru",
            "--state",
            text(path),
        ];
        stage.serve(&words);
        assert_eq!(stage.ready()["warm_blocks"], 0);
        read(&stage, EXPORT, 0..8);
        stage.stop_serve_that_said("is not overwritten");
        assert!(fs::read(path).expect("still there") == before, "{path:?}");
    }
    assert!(refused(&stage, &["--decision-log", text(&other)]).contains("no decision log"));
    let memory = Path::new("/dev/shm").join(format!("futae-foreign-{}", std::process::id()));
    fs::write(&memory, [7; 1000]).expect("written");
    fs::set_permissions(&memory, fs::Permissions::from_mode(0o600)).expect("private");
    let said = refused(&stage, &["--memory-file", text(&memory)]);
    let left = fs::read(&memory).expect("still there");
    fs::remove_file(&memory).expect("removed");
    assert!(said.contains("no memory file"), "{said}");
    assert_eq!(
        (left, fs::read(&other).expect("there")),
        (vec![7; 1000], vec![7; 1000])
    );
}

/// Why a server of the stage's image does not start.
fn refused(stage: &Stage, words: &[&str]) -> String {
    let export = format!("{EXPORT}={}", text(&stage.image));
    let listen = format!("unix:{}", text(&stage.socket));
    let usual = [
        "serve", "--cache", "8blocks", "--export", &export, "--listen", &listen,
    ];
    let output = run(&[&usual, words].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    said
}

/// Two images beside that of the stage.
fn others(stage: &Stage) -> [PathBuf; 2] {
    ["one.img", "two.img"].map(|name| {
        let path = stage.path(name);
        fs::copy(&stage.image, &path).expect("a copy");
        path
    })
}

#[test]
fn each_cache_has_a_state_of_its_own() {
    let mut stage = Stage::new(BLOCKS);
    let [one, two] = others(&stage);
    let one = format!("one={},share=4blocks", text(&one));
    let two = format!("two={},share=6blocks", text(&two));
    let words = ["--cache", "18blocks", "--policy", "lru"];
    let words = [&words[..], &["--export", &one, "--export", &two]].concat();
    serve(&mut stage, &words);
    read(&stage, "one", 0..4);
    read(&stage, "two", 100..106);
    read(&stage, EXPORT, 50..58);
    stage.stop_serve();
    for name in ["state", "state.one", "state.two"] {
        assert!(stage.path(name).is_file(), "{name}");
    }
    // What is wrong with one of them is of no concern to the others.
    fs::write(stage.path("state.one"), "?").expect("written");
    serve(&mut stage, &words);
    assert_eq!(stage.ready()["warm_blocks"], 14);
    settle(&stage, "two", 6);
    settle(&stage, EXPORT, 8);
    all_hit(&stage, "two", 100..106);
    all_hit(&stage, EXPORT, 50..58);
    assert_eq!(cache_of(&stage, "one")["resident_blocks"], 0);
    let damaged = stage.path("state.one");
    stage.stop_serve_that_said(&format!("--state {}: is no state file", text(&damaged)));
}

#[test]
fn exports_that_came_are_saved_at_once_and_found_in_any_order() {
    let mut stage = Stage::new(BLOCKS);
    let [one, two] = others(&stage);
    let words = [
        "--cache",
        "16blocks",
        "--policy",
        "lru",
        "--state-every",
        NEVER,
    ];
    serve(&mut stage, &words);
    read(&stage, EXPORT, 0..5);
    assert!(!stage.path("state").exists());
    let add = |stage: &Stage, name: &str, image: &Path, more: &str| {
        let order = serde_json::json!({
            "command": "export-add",
            "export": format!("{name}={}{more}", text(image)),
        });
        let answer = stage.order(&order.to_string());
        assert!(answer["error"].is_null(), "{answer}");
    };
    add(&stage, "one", &one, "");
    let seen = saved_again(&stage.path("state"), None);
    read(&stage, "one", 30..36);
    add(&stage, "two", &two, ",share=4blocks");
    saved_again(&stage.path("state"), seen);
    eventually("its own is saved, too", || stage.path("state.two").exists());
    read(&stage, "two", 7..9);
    stage.kill_serve();
    // Other numbers for the same volumes, and one that is gone.
    let one = format!("one={}", text(&one));
    let control = format!("unix:{}", stage.control.display());
    let listen = format!("unix:{}", stage.socket.display());
    let state = stage.path("state");
    let mut words = words.to_vec();
    words.extend(["--state", text(&state), "--export", &one]);
    let last = format!("{EXPORT}={}", text(&stage.image));
    let mut command = futae(&[
        "serve",
        "--json",
        "--listen",
        &listen,
        "--control",
        &control,
    ]);
    command.args(&words).args(["--export", &last]);
    let mut running = Running::start("futae serve", command);
    let ready: Value = serde_json::from_str(&running.line()).expect("JSON");
    assert_eq!(ready["warm_blocks"], 11, "{ready}");
    settle(&stage, EXPORT, 11);
    all_hit(&stage, EXPORT, 0..5);
    all_hit(&stage, "one", 30..36);
    // A cache of its own that comes while the server runs takes up what it had.
    add(&stage, "two", &two, ",share=4blocks");
    read(&stage, "two", 7..9);
    let order = r#"{"command":"export-remove","export":"one"}"#;
    let seen = saved_again(&state, None);
    obtain("the export is removed", || {
        let answer = stage.order(order);
        answer["error"].is_null().then_some(()).ok_or(answer)
    });
    saved_again(&state, seen);
    assert!(running.stop().status.success());
    serve(&mut stage, &["--cache", "16blocks", "--policy", "lru"]);
    assert_eq!(stage.ready()["warm_blocks"], 5);
    stage.stop_serve();
}

#[test]
fn a_memory_file_goes_before_the_state() {
    let mut stage = Stage::new(BLOCKS);
    let place = tempfile::tempdir_in("/dev/shm").expect("a directory in memory");
    let memory = place.path().join("cache");
    let words = [
        "--cache",
        "8blocks",
        "--policy",
        "lru",
        "--memory-file",
        text(&memory),
    ];
    serve(&mut stage, &words);
    read(&stage, EXPORT, 0..8);
    stage.stop_serve();
    serve(&mut stage, &words);
    let cache = cache_of(&stage, EXPORT);
    assert_eq!(
        (&cache["memory_found_blocks"], &cache["preload_reads"]),
        (&8.into(), &0.into())
    );
    assert_eq!(stage.ready()["warm_blocks"], 0);
    all_hit(&stage, EXPORT, 0..8);
    stage.stop_serve();
    // As after a reboot.
    fs::remove_file(&memory).expect("removed");
    serve(&mut stage, &words);
    assert_eq!(stage.ready()["warm_blocks"], 8);
    settle(&stage, EXPORT, 8);
    all_hit(&stage, EXPORT, 0..8);
    stage.kill_serve();
    // What was loaded again is in the memory file.
    serve(&mut stage, &words);
    assert_eq!(cache_of(&stage, EXPORT)["memory_found_blocks"], 8);
    all_hit(&stage, EXPORT, 0..8);
    stage.stop_serve();
}

#[test]
fn a_configuration_has_it_and_is_checked() {
    let stage = Stage::new(BLOCKS);
    let file = stage.path("serve.toml");
    let check = |state: &str| {
        let written = format!(
            "cache = \"1MiB\"\nlisten = \"unix:{}\"\nstate = \"{state}\"\nstate-every = 30\n[[export]]\nname = \"disk\"\nsource = \"{}\"\n",
            text(&stage.socket),
            text(&stage.image)
        );
        fs::write(&file, written).expect("written");
        let output = futae(&["check", text(&file)]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), said)
    };
    assert_eq!(check(text(&stage.path("state"))).0, Some(0));
    let (status, said) = check("/none/state");
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("serve.toml:3: --state /none/state"), "{said}");
}

#[test]
fn a_state_that_cannot_be_saved_is_said_and_clients_are_served() {
    let mut stage = Stage::new(BLOCKS);
    let directory = stage.path("place");
    fs::create_dir(&directory).expect("a directory");
    let state = directory.join("state");
    let state = text(&state);
    stage.serve(&[
        "--cache",
        "8blocks",
        "--state",
        state,
        "--state-every",
        "0.1",
    ]);
    // With the lock that the server has in it.
    fs::rename(&directory, stage.path("moved")).expect("moved");
    read(&stage, EXPORT, 0..8);
    File::open(&directory).expect_err("nobody made it again");
    stage.stop_serve_that_said(&format!("--state {state}: cannot be saved"));
}
