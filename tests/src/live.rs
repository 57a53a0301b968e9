//! A server that is changed while clients are connected: one export `vm1` at least, and a client that looks at what it reads.

use crate::binary::{futae, run, run_json};
use crate::process::Running;
use crate::tools::text;
use futae_policy::Prng;
use futae_testkit::nbd::Plain;
use futae_testkit::wait::eventually;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use tempfile::TempDir;

/// Bytes of a block.
pub const BLOCK: usize = 4096;
/// Blocks of an image.
pub const BLOCKS: u64 = 512;
/// Slots of the cache.
pub const SLOTS: u32 = 128;

/// Where such a server has its files.
pub struct LivePlace {
    directory: TempDir,
}

impl LivePlace {
    /// With an image of zeroes, `vm1.img`.
    #[expect(clippy::new_without_default, reason = "makes a directory")]
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let place = Self { directory };
        fs::write(place.path("vm1.img"), vec![0; BLOCKS as usize * BLOCK]).expect("an image");
        place
    }

    /// A file there.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes `serve.toml`, with `more` before the export.
    pub fn write(&self, more: &str) {
        let directory = text(self.directory.path());
        let file = format!(
            "cache = \"{SLOTS}blocks\"\nlisten = \"unix:{directory}/nbd.sock\"\n\
             control = \"unix:{directory}/control.sock\"\njson = true\n{more}\n\
             [[export]]\nname = \"vm1\"\nsource = \"{directory}/vm1.img\"\n"
        );
        fs::write(self.path("serve.toml"), file).expect("a file");
    }

    /// Starts the server.
    pub fn serve(&self) -> Running {
        let command = futae(&["serve", "--config", text(&self.path("serve.toml"))]);
        let mut server = Running::start("futae serve", command);
        server.line();
        server
    }

    /// What `futae top` says of it.
    pub fn status(&self) -> Value {
        run_json(&["top", text(&self.path("control.sock")), "--json"])
    }

    /// Whether `futae policy` succeeded, and what it said.
    pub fn policy(&self, export: &str, policy: &str) -> (bool, String) {
        said(&["policy", text(&self.path("control.sock")), export, policy])
    }
}

/// Whether a command succeeded, and what it said.
pub fn said(words: &[&str]) -> (bool, String) {
    let output = run(words);
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// A client that writes and reads blocks at random, and looks at everything that it reads.
pub struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<Vec<u8>>,
}

impl Load {
    /// Starts it.
    pub fn start(socket: &Path, export: &str) -> Self {
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
                    assert!(data == [wanted; BLOCK], "block {block}");
                }
                counted.fetch_add(1, Ordering::AcqRel);
            }
            client.flush().expect("connected").expect("a flush");
            blocks
        });
        Self { stop, done, thread }
    }

    /// Waits until this many more requests were answered.
    pub fn go_on(&self, requests: u64) {
        let wanted = self.done.load(Ordering::Acquire) + requests;
        eventually("requests are answered", || {
            assert!(!self.thread.is_finished(), "the client gave up");
            self.done.load(Ordering::Acquire) >= wanted
        });
    }

    /// The byte that each block is full of.
    pub fn end(self) -> Vec<u8> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("every read was right")
    }
}

/// The image in which each block is full of a byte.
pub fn image_of(blocks: &[u8]) -> Vec<u8> {
    let whole: Vec<_> = blocks.iter().map(|&byte| [byte; BLOCK]).collect();
    whole.concat()
}
