//! A directory, and `futae mount` of it, in a directory of their own. Whatever happens to a test,
//! nothing stays running and nothing stays mounted.

use crate::binary::futae;
use crate::process::{Ended, Running};
use crate::stage::{detach, is_mountpoint};
use crate::tools::text;
use serde_json::Value;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Where the blocks of mounted trees are held that do not say so themselves, nor by which policy.
pub const RESIDENCY: &str = "FUTAE_TEST_RESIDENCY";

/// Read at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A tree and its mount.
pub struct Tree {
    running: Option<Running>,
    /// The directory that is mounted.
    pub source: PathBuf,
    /// Where it is mounted.
    pub mountpoint: PathBuf,
    directory: Option<TempDir>,
}

impl Tree {
    /// An empty directory, not mounted yet.
    #[must_use]
    pub fn new() -> Self {
        let directory = tempfile::Builder::new().prefix("futae-tree-").tempdir();
        let directory = directory.expect("a directory can be made");
        let made = |name: &str| {
            let path = directory.path().join(name);
            fs::create_dir(&path).expect("a directory can be made");
            path
        };
        Self {
            running: None,
            source: made("source"),
            mountpoint: made("mnt"),
            directory: Some(directory),
        }
    }

    /// The same for other users too, who may write in one directory of it: its path below the mount
    /// is `everybody`; the one returned is that in the directory that is mounted.
    #[must_use]
    pub fn for_everybody() -> (Self, PathBuf) {
        let tree = Self::new();
        let open = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("open to others");
        };
        open(&tree.beside(""), 0o755);
        open(&tree.source, 0o755);
        let everybody = tree.lower("everybody");
        fs::create_dir(&everybody).expect("a directory can be made");
        open(&everybody, 0o777);
        (tree, everybody)
    }

    /// A path beside the tree.
    #[must_use]
    pub fn beside(&self, name: &str) -> PathBuf {
        let directory = self.directory.as_ref().expect("there until the end");
        directory.path().join(name)
    }

    /// Mounts it and waits until it can be used; what the mount says of itself.
    pub fn mount(&mut self, arguments: &[&str]) -> Value {
        self.mount_with(arguments, &[])
    }

    /// The same with other variables in its environment.
    pub fn mount_with(&mut self, arguments: &[&str], variables: &[(&str, PathBuf)]) -> Value {
        let mut command = self.command(arguments);
        command.envs(variables.iter().map(|(name, value)| (name, value)));
        self.start(command)
    }

    /// The command of [`mount`](Self::mount).
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Command {
        let (source, mountpoint) = (text(&self.source), text(&self.mountpoint));
        let mut command = futae(&["mount", source, mountpoint, "--json"]);
        command.args(arguments);
        let says = |option: &&str| arguments.contains(option);
        let has_its_own = ["--policy", "--block", "--residency"].iter().any(says);
        if std::env::var(RESIDENCY).is_ok_and(|where_to| where_to == "kernel") && !has_its_own {
            command.args(["--residency", "kernel", "--policy", "sieve"]);
        }
        command
    }

    /// Starts a command that comes to [`mount`](Self::mount), and waits until it is ready.
    pub fn start(&mut self, command: Command) -> Value {
        let mut running = Running::start("futae mount", command);
        let ready: Value = serde_json::from_str(&running.line()).expect("JSON");
        self.running = Some(running);
        ready
    }

    /// The number of the mount's process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.running.as_ref().expect("it is mounted").id()
    }

    /// How many descriptors the mount's process has.
    #[must_use]
    pub fn descriptors(&self) -> u64 {
        let open = fs::read_dir(format!("/proc/{}/fd", self.process()));
        open.expect("its descriptors can be listed").count() as u64
    }

    /// A path in the mount.
    #[must_use]
    pub fn upper(&self, name: &str) -> PathBuf {
        self.mountpoint.join(name)
    }

    /// The same in the directory below.
    #[must_use]
    pub fn lower(&self, name: &str) -> PathBuf {
        self.source.join(name)
    }

    /// Ends the mount as an operator would; how it ended and what it said.
    pub fn stop(&mut self) -> (Ended, Value) {
        let running = self.running.take().expect("it is mounted");
        let ended = running.stop();
        assert!(ended.status.success(), "{} {}", ended.status, ended.errors);
        assert!(!is_mountpoint(&self.mountpoint), "it is still mounted");
        let last = ended.lines.last().expect("a last line");
        let status = serde_json::from_str(last).expect("JSON");
        (ended, status)
    }

    /// Ends a mount that cannot end well; how it ended and what it said.
    pub fn stop_badly(&mut self) -> Ended {
        let running = self.running.take().expect("it is mounted");
        running.stop()
    }

    /// Kills the mount's process, if there is one, and leaves the dead mount in its place: a program that still runs in it fails
    /// there. Were it taken away, the program would make its next file in the directory under it.
    pub fn kill_and_leave(&mut self) {
        if let Some(running) = self.running.take() {
            running.kill();
        }
    }

    /// Kills the mount, if there is one, and takes what is left of it away.
    pub fn kill(&mut self) {
        self.kill_and_leave();
        detach(&self.mountpoint);
    }
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.kill();
        // Some tests mount a small disk there.
        detach(&self.source);
        let Some(directory) = self.directory.take() else {
            return;
        };
        if is_mountpoint(&self.mountpoint) || is_mountpoint(&self.source) {
            // Removing it would remove what is mounted.
            let _ = directory.keep();
        }
    }
}

/// The blocks of one class that were asked for, and of them the hits, in a mount's last words.
#[must_use]
pub fn of_class(last: &Value, class: u64) -> (u64, u64) {
    let classes = last["status"]["classes"].as_array().expect("classes");
    let one = classes.iter().find(|one| one["class"] == class);
    one.map_or((0, 0), |one| {
        let count = |name: &str| one[name].as_u64().expect("a count");
        (count("requests"), count("hits"))
    })
}

/// Reads a whole file through the mount, in pieces of whole blocks that the kernel does not cut
/// up: the cache counts what it is asked for.
///
/// # Panics
///
/// If it cannot be read.
#[must_use]
pub fn read(path: &Path) -> Vec<u8> {
    let whole = || {
        let (mut file, mut bytes) = (File::open(path)?, Vec::new());
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(bytes),
                length => bytes.extend_from_slice(&piece[..length]),
            }
        }
    };
    whole().unwrap_or_else(|error: io::Error| panic!("{}: {error}", path.display()))
}
