//! A disk image, `futae serve` and `futae mount`, in a directory of their own. Whatever happens
//! to a test, nothing stays running and nothing stays mounted.

use crate::BLOCK;
use crate::binary::futae;
use crate::process::{Ended, Running};
use crate::tools::text;
use futae_testkit::stamp::Stamp;
use futae_testkit::wait::{PATIENCE, within};
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{UnmountFlags, unmount};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The name of the one export.
pub const EXPORT: &str = "disk";

/// Where a test plays.
pub struct Stage {
    serve: Option<Running>,
    mount: Option<Running>,
    /// The disk image.
    pub image: PathBuf,
    /// Where the server listens.
    pub socket: PathBuf,
    /// Where the server takes orders.
    pub control: PathBuf,
    /// Where the file is mounted.
    pub mountpoint: PathBuf,
    directory: Option<TempDir>,
    /// What the server said when it was ready.
    ready: Value,
}

impl Stage {
    /// A stage with an image of `blocks` blocks, each stamped as version 0.
    #[must_use]
    pub fn new(blocks: u64) -> Self {
        let stage = Self::bare();
        let mut out = BufWriter::new(File::create(&stage.image).expect("the image can be made"));
        let mut bytes = vec![0; BLOCK];
        for block in 0..blocks {
            Stamp { block, version: 0 }.fill(&mut bytes);
            out.write_all(&bytes).expect("the image can be written");
        }
        out.flush().expect("the image can be written");
        stage
    }

    /// A stage without an image.
    #[must_use]
    pub fn bare() -> Self {
        let directory = tempfile::Builder::new().prefix("futae-test-").tempdir();
        let directory = directory.expect("a directory can be made");
        let path = |name: &str| directory.path().join(name);
        let mountpoint = path("mnt");
        fs::create_dir(&mountpoint).expect("a directory can be made");
        Self {
            serve: None,
            ready: Value::Null,
            mount: None,
            image: path("disk.img"),
            socket: path("futae.sock"),
            control: path("control.sock"),
            mountpoint,
            directory: Some(directory),
        }
    }

    /// A path in the stage's directory.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        let directory = self.directory.as_ref().expect("there until the end");
        directory.path().join(name)
    }

    /// The address of the export.
    #[must_use]
    pub fn uri(&self) -> String {
        format!("nbd+unix:///{EXPORT}?socket={}", self.socket.display())
    }

    /// Starts `futae serve` over the image and waits until it is ready.
    pub fn serve(&mut self, arguments: &[&str]) {
        let export = format!("{EXPORT}={}", self.image.display());
        let listen = format!("unix:{}", self.socket.display());
        let control = format!("unix:{}", self.control.display());
        let mut command = futae(&["serve", "--json", "--export", &export, "--listen", &listen]);
        command.args(["--control", &control]).args(arguments);
        let mut running = Running::start("futae serve", command);
        let ready: Value = serde_json::from_str(&running.line()).expect("JSON");
        assert_eq!(ready["exports"][0]["uris"][0], self.uri(), "{ready}");
        (self.serve, self.ready) = (Some(running), ready);
    }

    /// What the server said when it was ready.
    #[must_use]
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// Starts `futae mount` over the server and waits until it is ready.
    pub fn mount(&mut self, arguments: &[&str]) {
        let mountpoint = text(&self.mountpoint).to_owned();
        let mut command = futae(&["mount", &self.uri(), &mountpoint, "--json"]);
        // A server that a test has killed does not come back by itself.
        if !arguments.contains(&"--store-timeout") {
            command.args(["--store-timeout", "0"]);
        }
        command.args(arguments);
        self.start_mount(command);
    }

    /// Starts `futae mount` over the image itself, without a server, and waits until it is ready.
    pub fn mount_image(&mut self, arguments: &[&str]) {
        let command = self.mount_image_command(arguments);
        self.start_mount(command);
    }

    /// The command of [`mount_image`](Self::mount_image).
    #[must_use]
    pub fn mount_image_command(&self, arguments: &[&str]) -> Command {
        let (image, mountpoint) = (text(&self.image), text(&self.mountpoint));
        let mut command = futae(&["mount", image, mountpoint, "--json", "--name", EXPORT]);
        command.args(arguments);
        command
    }

    /// Starts a command that comes to `futae mount --json`, and waits until it is ready.
    pub fn start_mount(&mut self, command: Command) {
        let file = self.file();
        let ready = self.start_mount_of_any(command);
        assert_eq!(ready["path"], text(&file), "{ready}");
    }

    /// The same of whatever sources; what it said when it was ready.
    pub fn start_mount_of_any(&mut self, command: Command) -> Value {
        let mut running = Running::start("futae mount", command);
        let ready: Value = serde_json::from_str(&running.line()).expect("JSON");
        self.mount = Some(running);
        ready
    }

    /// The mounted file.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        self.mountpoint.join(EXPORT)
    }

    /// What the server, or a mount that was given its control socket, says of itself by it.
    #[must_use]
    pub fn status(&self) -> Value {
        self.order("{\"command\":\"status\"}")
    }

    /// The answer to an order at the control socket.
    #[must_use]
    pub fn order(&self, order: &str) -> Value {
        let stream = UnixStream::connect(&self.control).expect("the control socket answers");
        (&stream)
            .write_all(format!("{order}\n").as_bytes())
            .expect("it takes an order");
        let mut line = String::new();
        let got = BufReader::new(&stream).read_line(&mut line);
        got.expect("it answers");
        serde_json::from_str(&line).expect("JSON")
    }

    /// Ends the mount as an operator would; what it said of itself at its end.
    pub fn stop_mount(&mut self) -> Value {
        let running = self.mount.take().expect("it is mounted");
        let last = goodbye("futae mount", &running.stop());
        assert!(!is_mountpoint(&self.mountpoint), "it is still mounted");
        last
    }

    /// Ends the server as an operator would; what it said of itself at its end.
    pub fn stop_serve(&mut self) -> Value {
        let running = self.serve.take().expect("it is served");
        let last = goodbye("futae serve", &running.stop());
        assert!(!self.socket.exists(), "the socket is still there");
        assert!(!self.control.exists(), "the control socket is still there");
        last
    }

    /// The same of a server whose clients go on meanwhile; it may have complained of them.
    pub fn end_serve(&mut self) {
        let running = self.serve.take().expect("it is served");
        let ended = running.stop();
        assert!(ended.status.success(), "{} {}", ended.status, ended.errors);
    }

    /// The same of a server that had something to say on standard error, this among it.
    pub fn stop_serve_that_said(&mut self, words: &str) -> Value {
        let running = self.serve.take().expect("it is served");
        let mut ended = running.stop();
        assert!(ended.errors.contains(words), "{}", ended.errors);
        ended.errors.clear();
        goodbye("futae serve", &ended)
    }

    /// The same of a server that may have had something to say; what it was.
    pub fn stop_serve_that_may_say(&mut self) -> String {
        let running = self.serve.take().expect("it is served");
        let mut ended = running.stop();
        let errors = std::mem::take(&mut ended.errors);
        goodbye("futae serve", &ended);
        errors
    }

    /// Ends a mount that had something to say on standard error, this among it.
    pub fn stop_mount_that_said(&mut self, words: &str) -> Value {
        let running = self.mount.take().expect("it is mounted");
        let mut ended = running.stop();
        assert!(ended.errors.contains(words), "{}", ended.errors);
        ended.errors.clear();
        let last = goodbye("futae mount", &ended);
        assert!(!is_mountpoint(&self.mountpoint), "it is still mounted");
        last
    }

    /// The process of the server.
    #[must_use]
    pub fn serve_id(&self) -> u32 {
        self.serve.as_ref().expect("it is served").id()
    }

    /// The process of the mount.
    #[must_use]
    pub fn mount_id(&self) -> u32 {
        self.mount.as_ref().expect("it is mounted").id()
    }

    /// The memory that the server has, in bytes.
    #[must_use]
    pub fn serve_bytes(&self) -> u64 {
        let running = self.serve.as_ref().expect("it is served");
        let status = fs::read_to_string(format!("/proc/{}/statm", running.id()));
        let status = status.expect("the memory of a process");
        let pages = status
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse::<u64>().ok());
        pages.expect("a number") * 4096
    }

    /// The server's process.
    ///
    /// # Panics
    ///
    /// If it is not served.
    pub fn server(&mut self) -> &mut Running {
        self.serve.as_mut().expect("it is served")
    }

    /// Kills the mount, if there is one, and takes what is left of it away.
    pub fn kill_mount(&mut self) {
        if let Some(running) = self.mount.take() {
            running.kill();
            if self.serve.is_none() {
                self.settle();
            }
        }
        detach(&self.mountpoint);
    }

    /// Kills the server, if there is one.
    pub fn kill_serve(&mut self) {
        if let Some(running) = self.serve.take() {
            running.kill();
            self.settle();
        }
    }

    /// Waits for what a killed program still has under way in the kernel: its writes end, and
    /// then its lock on the image goes, some time after it is gone itself.
    fn settle(&self) {
        let is_free = || {
            let image = File::open(&self.image);
            image.map_or(true, |image| {
                flock(&image, FlockOperation::NonBlockingLockExclusive).is_ok()
            })
        };
        // A file system that is gone is for the test to find.
        let _ = within(PATIENCE, || is_free().then_some(()).ok_or(()));
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.kill_mount();
        self.kill_serve();
        let Some(directory) = self.directory.take() else {
            return;
        };
        let left = || mountpoints().filter(|path| path.starts_with(directory.path()));
        left().for_each(|path| detach(&path));
        if left().next().is_some() {
            // Removing it would remove what is mounted.
            let path = directory.keep();
            eprintln!("left behind: {}: still mounted", path.display());
        }
    }
}

/// The last line of a program that ended as it should.
fn goodbye(what: &str, ended: &Ended) -> Value {
    assert!(
        ended.status.success(),
        "{what}: {} {}",
        ended.status,
        ended.errors
    );
    // What an operator may know without having to do anything about it.
    let is_complaint = |line: &&str| !line.contains(" INFO ");
    let complaints: Vec<_> = ended.errors.lines().filter(is_complaint).collect();
    assert!(complaints.is_empty(), "{what} complains: {complaints:#?}");
    let last = ended.lines.last().expect("a last line");
    serde_json::from_str(last).expect("JSON")
}

/// Where something is mounted, what was mounted last first.
fn mountpoints() -> impl Iterator<Item = PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("the list of mounts");
    let paths = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let paths: Vec<_> = paths.map(PathBuf::from).collect();
    paths.into_iter().rev()
}

/// Whether something is mounted at a path.
#[must_use]
pub fn is_mountpoint(path: &Path) -> bool {
    mountpoints().any(|at| at == path)
}

/// Takes whatever is mounted at a path out of the tree.
pub fn detach(path: &Path) {
    for _ in 0..4 {
        if !is_mountpoint(path) {
            return;
        }
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        if unmount(path, flags).is_err() {
            let mut helper = Command::new("fusermount3");
            // Whether it worked is seen in the list of mounts.
            let _ = helper.args(["-u", "-z", "-q"]).arg(path).output();
        }
    }
}
