//! Two stores in one cache, a near file and a far one whose every operation is delayed, and a
//! client of both.

use super::process::{Background, futae, status};
use anyhow::{Context, bail, ensure};
use futae_engine::EngineStatus;
use futae_nbd::constants::SIMPLE_REPLY_BYTES;
use futae_nbd::{ClientWish, Command as Ask, Reply, RequestHeader, client, parse_reply};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Bytes of a block, which is what is read and written.
pub const BLOCK: usize = 4096;
/// What an operation of the far store takes longer.
pub const DELAY: &str = "20ms";
/// How long anything may take to answer.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
const NAMES: [&str; 2] = ["near", "far"];

/// Which store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// A file on this machine.
    Near,
    /// A file behind a server that delays.
    Far,
}

/// One request of a program, for one block.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Where the block is.
    pub store: Store,
    /// Its number there.
    pub block: u32,
    /// All of it is written; otherwise it is read.
    pub is_write: bool,
}

/// Whether what is needed is installed.
pub fn check() -> anyhow::Result<()> {
    let run = Command::new("nbdkit").arg("--version").output();
    run.map(drop)
        .context("nbdkit is not installed; Debian has it in nbdkit")
}

/// `futae serve` over both stores, and a connection to each. Dropping it ends all.
pub struct Stores {
    // Ended in this order: the cache writes to the far store at its end.
    clients: [Client; 2],
    _serve: Background,
    _nbdkit: Background,
    control: PathBuf,
}

impl Stores {
    /// Makes empty stores of this many blocks, near and far, in `place`, and starts a cache of
    /// `slots` blocks that writes back.
    pub fn start(place: &Path, policy: &str, slots: u32, blocks: [u32; 2]) -> anyhow::Result<Self> {
        fs::create_dir_all(place).with_context(|| place.display().to_string())?;
        let images = NAMES.map(|name| place.join(format!("{name}.img")));
        for (image, blocks) in images.iter().zip(blocks) {
            let file = File::create(image).with_context(|| image.display().to_string())?;
            file.set_len(u64::from(blocks.max(1)) * BLOCK as u64)?;
        }
        let [near, far] = images;
        let delayed = place.join("far.sock");
        let nbdkit = serve_delayed(&far, &delayed)?;
        let (socket, control) = (place.join("nbd.sock"), place.join("control.sock"));
        let mut serve = futae(["serve", "--json", "--write-mode", "write-back"])?;
        // A dirty block stays dirty until it is evicted, as a page of memory does.
        serve.args(["--dirty-max", "100%", "--dirty-age-max", "1h"]);
        serve.args(["--block", "4KiB", "--cache", &format!("{slots}blocks")]);
        serve.args(["--policy", policy]);
        let far = format!("nbd+unix:///?socket={}", delayed.display());
        for (name, source) in NAMES.into_iter().zip([near.display().to_string(), far]) {
            serve.args(["--export", &format!("{name}={source}")]);
        }
        serve.args(["--listen", &format!("unix:{}", socket.display())]);
        serve.args(["--control", &format!("unix:{}", control.display())]);
        // What interrupts the experiment at a terminal is for the experiment to pass on.
        serve.process_group(0);
        let (serve, _) = Background::start("futae serve", serve)?;
        let connect = |at: usize| Client::connect(&socket, NAMES[at], blocks[at]);
        Ok(Self {
            clients: [connect(0)?, connect(1)?],
            _serve: serve,
            _nbdkit: nbdkit,
            control,
        })
    }

    /// Does what a program asks for, and says how long it took. What is read must be what was
    /// written last.
    pub fn carry_out(&mut self, step: Step) -> anyhow::Result<Duration> {
        let client = &mut self.clients[usize::from(step.store == Store::Far)];
        let begin = Instant::now();
        match step.is_write {
            true => client.write(step.block),
            false => client.read(step.block),
        }?;
        Ok(begin.elapsed())
    }

    /// What the cache says of itself.
    pub fn status(&self) -> anyhow::Result<EngineStatus> {
        status(&self.control)
    }
}

/// An NBD server of a file that delays reads and writes.
fn serve_delayed(image: &Path, socket: &Path) -> anyhow::Result<Background> {
    let mut nbdkit = Command::new("nbdkit");
    nbdkit.args(["--exit-with-parent", "--filter=delay", "-U"]);
    nbdkit.arg(socket).arg("file").arg(image);
    nbdkit.args([format!("rdelay={DELAY}"), format!("wdelay={DELAY}")]);
    nbdkit.process_group(0);
    let mut nbdkit = Background::begin("nbdkit", nbdkit)?;
    let deadline = Instant::now() + PATIENCE;
    // The socket is there a moment before anybody listens.
    while UnixStream::connect(socket).is_err() {
        if let Some(said) = nbdkit.last_words()? {
            bail!("nbdkit: {said}");
        }
        ensure!(Instant::now() < deadline, "nbdkit does not answer");
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(nbdkit)
}

/// An NBD client that asks for one block at a time, and knows what it has written.
struct Client {
    stream: UnixStream,
    cookie: u64,
    /// Of each block, how often it was written: what it must hold.
    written: Vec<u64>,
    data: Vec<u8>,
}

impl Client {
    fn connect(socket: &Path, export: &str, blocks: u32) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(socket);
        let mut stream = stream.with_context(|| format!("connecting to {}", socket.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        client::negotiate(&mut stream, export, &ClientWish::default())?;
        Ok(Self {
            stream,
            cookie: 0,
            written: vec![0; blocks as usize],
            data: vec![0; BLOCK],
        })
    }

    fn write(&mut self, block: u32) -> anyhow::Result<()> {
        let written = &mut self.written[block as usize];
        *written += 1;
        for word in self.data.chunks_exact_mut(8) {
            word.copy_from_slice(&written.to_le_bytes());
        }
        self.ask(Ask::Write, block)
    }

    fn read(&mut self, block: u32) -> anyhow::Result<()> {
        self.ask(Ask::Read, block)?;
        self.stream.read_exact(&mut self.data)?;
        let expected = self.written[block as usize].to_le_bytes();
        let is_last = self.data.chunks_exact(8).all(|word| word == expected);
        ensure!(is_last, "block {block} does not hold what was written last");
        Ok(())
    }

    fn ask(&mut self, command: Ask, block: u32) -> anyhow::Result<()> {
        self.cookie += 1;
        let offset = u64::from(block) * BLOCK as u64;
        let header = RequestHeader::new(command, self.cookie, offset, BLOCK as u32);
        let mut message = header.encode().to_vec();
        if command == Ask::Write {
            message.extend_from_slice(&self.data);
        }
        self.stream.write_all(&message).context("the cache")?;
        let mut reply = [0; SIMPLE_REPLY_BYTES];
        self.stream.read_exact(&mut reply).context("the cache")?;
        match parse_reply(&reply)? {
            Some((Reply::Simple { cookie, error }, _)) if cookie == self.cookie => match error {
                None => Ok(()),
                Some(error) => bail!("block {block}: the cache answers {error:?}"),
            },
            other => bail!("the cache answers {other:?}"),
        }
    }
}
