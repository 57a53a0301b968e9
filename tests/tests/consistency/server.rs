//! `futae serve` over two volumes, one of which may be behind nbdkit, in a directory of their own.

use crate::config::{Config, Kind};
use crate::model::Volume;
use futae_testkit::wait::eventually;
use futae_tests::binary::futae;
use futae_tests::process::{Ended, Running};
use futae_tests::tools::text;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The exports, by the numbers of their volumes.
pub const EXPORTS: [&str; 2] = ["first", "second"];

/// A write of another program so soon after the server's end is not always detected: twice the time that the server allows.
const UNSEEN: Duration = Duration::from_millis(20);

/// The server and its stores.
pub struct Server {
    running: Option<Running>,
    store: Option<Running>,
    directory: TempDir,
    /// Where memory outlives a server.
    kept: TempDir,
    command: Vec<String>,
    remote: Option<usize>,
    /// From when on a write of another program is seen, after its last end.
    seen_from: Option<Instant>,
}

impl Server {
    /// Makes images; starts nothing.
    pub fn new(config: &Config, volumes: &[Volume]) -> Self {
        let mut fresh = tempfile::Builder::new();
        fresh.prefix("futae-test-");
        let directory = fresh.tempdir().expect("a directory can be made");
        let kept = fresh
            .tempdir_in("/dev/shm")
            .expect("a directory can be made");
        let mut server = Self {
            running: None,
            store: None,
            directory,
            kept,
            command: vec!["serve".to_owned(), "--json".to_owned()],
            remote: None,
            seen_from: None,
        };
        for (at, (volume, kind)) in volumes.iter().zip(&config.kinds).enumerate() {
            fs::write(server.image(at), volume.image()).expect("an image can be written");
            let source = if *kind == Kind::Remote {
                server.remote = Some(at);
                format!("nbd+unix:///?socket={}", text(&server.path("store.sock")))
            } else {
                text(&server.image(at)).to_owned()
            };
            let rest = match kind {
                Kind::ReadOnly => ",read-only",
                _ => "",
            };
            let share = match (at, config.share_blocks) {
                (1, Some(blocks)) => format!(",share={blocks}blocks"),
                _ => String::new(),
            };
            let export = format!("{}={source}{share}{rest}", EXPORTS[at]);
            server.command.extend(["--export".to_owned(), export]);
        }
        let listen = format!("unix:{}", text(&server.socket()));
        let control = format!("unix:{}", text(&server.path("control.sock")));
        let last = [
            "--listen".to_owned(),
            listen,
            "--control".to_owned(),
            control,
        ];
        server.command.extend(last);
        server.command.extend(config.arguments());
        if config.keeps_memory {
            let memory = text(&server.kept.path().join("memory")).to_owned();
            server.command.extend(["--memory-file".to_owned(), memory]);
        }
        server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Where it listens.
    pub fn socket(&self) -> PathBuf {
        self.path("futae.sock")
    }

    /// The image of a volume.
    pub fn image(&self, volume: usize) -> PathBuf {
        self.path(&format!("{}.img", EXPORTS[volume]))
    }

    /// Writes to an image while no server runs, once the server would see it.
    pub fn write_image(&self, volume: usize, offset: u64, data: &[u8]) {
        let image = File::options().write(true).open(self.image(volume));
        let image = image.expect("the image opens");
        eventually("the time in which it is not seen is over", || {
            self.seen_from.is_some_and(|from| Instant::now() > from)
        });
        let written = image.write_all_at(data, offset);
        written.expect("the image is written to");
    }

    /// How the server is started.
    pub fn command(&self) -> String {
        format!("futae {}", self.command.join(" "))
    }

    /// Starts the store, if it is to be behind nbdkit.
    pub fn start_store(&mut self) {
        let Some(volume) = self.remote else { return };
        let socket = self.path("store.sock");
        // What an nbdkit that was killed has left.
        let _ = fs::remove_file(&socket);
        let mut nbdkit = Command::new("nbdkit");
        nbdkit.args(["--foreground", "--unix", text(&socket)]);
        nbdkit.args(["--filter=error", "--filter=delay", "file"]);
        nbdkit.arg(self.image(volume));
        nbdkit.args(["error-rate=20%", "rdelay=1ms", "wdelay=1ms"]);
        nbdkit.arg(format!("error-file={}", text(&self.path("faults"))));
        self.store = Some(Running::start("nbdkit", nbdkit));
        eventually("nbdkit listens", || UnixStream::connect(&socket).is_ok());
    }

    /// Kills the store.
    pub fn kill_store(&mut self) {
        if let Some(store) = self.store.take() {
            store.kill();
        }
    }

    /// Whether the store is there, or needs not be. nbdkit 1.32 may abort by itself when the server is killed
    /// while it connects (`raw_send_socket: Assertion sock >= 0`); it is then as if it had been killed.
    pub fn has_store(&mut self) -> bool {
        self.remote.is_none() || self.store.as_mut().is_some_and(Running::is_running)
    }

    /// Has a fifth of the store's operations fail, or none.
    pub fn set_faults(&self, is_on: bool) {
        let trigger = self.path("faults");
        if is_on {
            File::create(trigger).expect("a file can be made");
        } else {
            // It need not be there.
            let _ = fs::remove_file(trigger);
        }
    }

    /// Starts the server and waits until it is ready.
    pub fn start(&mut self) {
        loop {
            let words: Vec<_> = self.command.iter().map(String::as_str).collect();
            let mut command = futae(&words);
            // Whatever it keeps for itself belongs to this round.
            command.env("STATE_DIRECTORY", self.directory.path());
            let mut running = Running::start("futae serve", command);
            let Err(ended) = running.try_line() else {
                self.running = Some(running);
                return;
            };
            let is_refused = UnixStream::connect(self.path("store.sock")).is_err();
            assert!(
                self.remote.is_some() && is_refused,
                "futae serve did not start: {} {}",
                ended.status,
                ended.errors
            );
            // The store has aborted; see `has_store`.
            self.start_store();
        }
    }

    /// Sends the server a signal.
    pub fn signal(&mut self, signal: Signal) {
        self.running.as_mut().expect("it runs").signal(signal);
    }

    /// Waits for the end of the server, and of what it still has under way in the kernel.
    pub fn ended(&mut self) -> Ended {
        let ended = self.running.take().expect("it runs").wait();
        self.seen_from = Some(Instant::now() + UNSEEN);
        for volume in 0..EXPORTS.len() {
            let image = self.image(volume);
            eventually("the images are free", || is_free(&image));
        }
        ended
    }

    /// The answer to an order.
    pub fn order(&self, order: &str) -> Value {
        let stream = UnixStream::connect(self.path("control.sock"));
        let stream = stream.expect("the control socket answers");
        let sent = (&stream).write_all(format!("{order}\n").as_bytes());
        sent.expect("it takes an order");
        let mut line = String::new();
        let got = BufReader::new(&stream).read_line(&mut line);
        got.expect("it answers");
        serde_json::from_str(&line).expect("JSON")
    }
}

fn is_free(image: &Path) -> bool {
    let Ok(image) = File::open(image) else {
        return true;
    };
    flock(&image, FlockOperation::NonBlockingLockExclusive).is_ok()
}
