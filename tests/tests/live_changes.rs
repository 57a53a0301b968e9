//! A server whose policy changes while clients are connected: `futae policy`, and SIGHUP.

use futae_policy::Prng;
use futae_sim::replay::{ReplaySpec, replay_file};
use futae_testkit::nbd::Plain;
use futae_testkit::wait::eventually;
use futae_tests::binary::{futae, run, run_json};
use futae_tests::process::Running;
use futae_tests::stage::Stage;
use futae_tests::tools::{has_fuse, text};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use tempfile::TempDir;

const BLOCK: usize = 4096;
/// Blocks of an image.
const BLOCKS: u64 = 512;
/// Slots of the cache.
const SLOTS: u32 = 128;

/// A server with one export, `vm1`.
struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Self { directory };
        fs::write(place.path("vm1.img"), vec![0; BLOCKS as usize * BLOCK]).expect("an image");
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes `serve.toml`, with `more` before the export.
    fn write(&self, more: &str) {
        let directory = text(self.directory.path());
        let file = format!(
            "cache = \"{SLOTS}blocks\"\nlisten = \"unix:{directory}/nbd.sock\"\n\
             control = \"unix:{directory}/control.sock\"\njson = true\n{more}\n\
             [[export]]\nname = \"vm1\"\nsource = \"{directory}/vm1.img\"\n"
        );
        fs::write(self.path("serve.toml"), file).expect("a file");
    }

    fn serve(&self) -> Running {
        let command = futae(&["serve", "--config", text(&self.path("serve.toml"))]);
        let mut server = Running::start("futae serve", command);
        server.line();
        server
    }

    fn status(&self) -> Value {
        run_json(&["top", text(&self.path("control.sock")), "--json"])
    }

    /// Whether `futae policy` succeeded, and what it said.
    fn policy(&self, export: &str, policy: &str) -> (bool, String) {
        said(&["policy", text(&self.path("control.sock")), export, policy])
    }
}

/// Whether a command succeeded, and what it said.
fn said(words: &[&str]) -> (bool, String) {
    let output = run(words);
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// A client that writes and reads blocks at random, and looks at everything that it reads.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<Vec<u8>>,
}

impl Load {
    fn start(socket: &Path, export: &str) -> Self {
        let mut client = Plain::connect(socket, export).expect("a connection");
        let (stop, done) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&done));
        let thread = std::thread::spawn(move || {
            let mut prng = Prng::new(5);
            let mut blocks = vec![0u8; BLOCKS as usize];
            while !stopped.load(Ordering::Acquire) {
                let near = 1 + prng.below(BLOCKS);
                let block = prng.below(near);
                let offset = block * BLOCK as u64;
                if prng.below(3) == 0 {
                    let byte = prng.below(256) as u8;
                    let written = client.write(offset, &[byte; BLOCK]);
                    written.expect("connected").expect("a write");
                    blocks[block as usize] = byte;
                } else {
                    let data = client
                        .read(offset, BLOCK)
                        .expect("connected")
                        .expect("a read");
                    let wanted = blocks[block as usize];
                    assert!(data.iter().all(|&byte| byte == wanted), "block {block}");
                }
                counted.fetch_add(1, Ordering::AcqRel);
            }
            client.flush().expect("connected").expect("a flush");
            blocks
        });
        Self { stop, done, thread }
    }

    /// Waits until so many more requests were answered.
    fn go_on(&self, requests: u64) {
        let wanted = self.done.load(Ordering::Acquire) + requests;
        eventually("requests are answered", || {
            assert!(!self.thread.is_finished(), "the client gave up");
            self.done.load(Ordering::Acquire) >= wanted
        });
    }

    /// The byte that each block is full of.
    fn end(self) -> Vec<u8> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("every read was right")
    }
}

fn image_of(blocks: &[u8]) -> Vec<u8> {
    blocks.iter().flat_map(|&byte| [byte; BLOCK]).collect()
}

#[test]
fn a_policy_changes_under_load_and_the_log_replays() {
    let place = Place::new();
    let log = place.path("decisions");
    let more = format!(
        "policy = \"lru\"\ndemotion = \"on\"\nwrite-mode = \"write-back\"\ndecision-log = \"{}\"",
        text(&log)
    );
    place.write(&more);
    let server = place.serve();
    let load = Load::start(&place.path("nbd.sock"), "vm1");
    load.go_on(1000);
    let mut before = "lru".to_owned();
    for policy in [
        "arc",
        "exclusive",
        "s3-fifo",
        "random",
        "lfu-history",
        "auto",
        "directory",
        "const",
        "2q",
    ] {
        let (ok, text) = place.policy("vm1", policy);
        assert!(ok, "{text}");
        let kept = format!("vm1: policy {policy} in place of {before}, {SLOTS} blocks kept\n");
        assert_eq!(text, kept);
        let (ok, text) = place.policy("vm1", policy);
        assert!(ok && text.contains("already"), "{text}");
        assert_eq!(place.status()["engines"][0]["policy"], policy);
        load.go_on(300);
        policy.clone_into(&mut before);
    }
    for (export, policy, problem) in [
        ("vm1", "lur", "did you mean lru"),
        ("vm1", "opt", "future"),
        ("vm2", "lru", "no export is named \"vm2\""),
    ] {
        let (ok, text) = place.policy(export, policy);
        assert!(!ok && text.contains(problem), "{text}");
    }
    assert_eq!(place.status()["engines"][0]["policy"], "2q");
    let blocks = load.end();
    assert!(server.stop().status.success());
    let image = fs::read(place.path("vm1.img")).expect("the image");
    assert!(image == image_of(&blocks), "the image differs");

    let text = fs::read_to_string(&log).expect("the log");
    let changes = text
        .lines()
        .filter(|line| line.starts_with("policy "))
        .count();
    assert_eq!(changes, 9);
    let spec = ReplaySpec {
        policy: "lru".parse().expect("a policy"),
        slots: SLOTS,
        seed: 0,
    };
    let replayed = replay_file(&spec, &log).expect("a log");
    assert_eq!(replayed.difference, None);
    assert!(replayed.decisions > 3000, "{replayed:?}");
}

#[test]
fn a_policy_that_lives_on_evictions_needs_them() {
    let place = Place::new();
    place.write("policy = \"lru\"");
    let mut server = place.serve();
    let (ok, text) = place.policy("vm1", "exclusive");
    assert!(!ok && text.contains("--demotion on"), "{text}");
    assert_eq!(place.status()["engines"][0]["policy"], "lru");

    // The file is what counts: it puts back what an order changed.
    assert!(place.policy("vm1", "arc").0);
    place.write("policy = \"sieve\"");
    server.signal(Signal::HUP);
    eventually("the policy is that of the file", || {
        place.status()["engines"][0]["policy"] == "sieve"
    });
    assert!(server.stop().status.success());
}

#[test]
fn a_mount_changes_its_policy() {
    if !has_fuse() {
        return;
    }
    let mut stage = Stage::new(32);
    let control = format!("unix:{}", stage.control.display());
    stage.mount_image(&["--cache", "16blocks", "--control", &control]);
    let file = stage.file();
    let before = fs::read(&file).expect("the file");
    let name = text(Path::new(file.file_name().expect("a name"))).to_owned();
    let (ok, text) = said(&["policy", &control, &name, "arc"]);
    assert!(ok && text.contains("policy arc in place of lru"), "{text}");
    assert!(fs::read(&file).expect("the file") == before);
    for (name, policy, problem) in [
        ("other", "lru", "nothing is called \"other\""),
        (name.as_str(), "exclusive", "no cache is above a mount"),
        (name.as_str(), "lfu-history", "--join-reads"),
    ] {
        let (ok, text) = said(&["policy", &control, name, policy]);
        assert!(!ok && text.contains(problem), "{text}");
    }
    stage.stop_mount();
}
