//! Where the images' blocks are read: at once, or each after a delay, by nbdkit.

use super::images::Images;
use super::plan::{BLOCK_BYTES, GuestsPlan};
use super::way::Way;
use crate::live::process::Background;
use anyhow::{bail, ensure};
use std::fs;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the programs may take to be there.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Bytes of a request in NBD.
const REQUEST_BYTES: u64 = 28;
/// The name of an image in the directory in which nbdfuse shows it.
const FILE: &str = "disk";
/// The plug-in for delays that are no whole milliseconds.
const PLUGIN: &str = include_str!("delayed.c");

/// The stores of the guests, each an image that is read and written after a delay.
///
/// What is behind nbdkit stands for a device, so nobody minds that the host's page cache holds it.
pub struct Delayed {
    /// Ended before the servers whose exports they show.
    mounts: Vec<Background>,
    kits: Vec<Background>,
    place: PathBuf,
}

impl Delayed {
    /// Starts them, if operations of the store are to be delayed. Where the host's page cache is above them, each is
    /// also shown as a file, which is what it caches.
    pub fn start(
        plan: &GuestsPlan,
        way: Way,
        place: &Path,
        images: &Images,
    ) -> anyhow::Result<Option<Self>> {
        if plan.store_latency.is_zero() {
            return Ok(None);
        }
        let mut stores = Self {
            mounts: Vec::new(),
            kits: Vec::new(),
            place: place.to_owned(),
        };
        for (number, image) in images.paths.iter().enumerate() {
            let kit = serve(image, place, &stores.socket(number), plan.store_latency)?;
            stores.kits.push(kit);
            if way == Way::Writeback {
                let mount = show(&stores.uri(number), &stores.file(number))?;
                stores.mounts.push(mount);
            }
        }
        Ok(Some(stores))
    }

    fn socket(&self, number: usize) -> PathBuf {
        self.place.join(format!("store{number}.sock"))
    }

    /// The store of guest `number` as an NBD export.
    pub fn uri(&self, number: usize) -> String {
        format!("nbd+unix:///?socket={}", self.socket(number).display())
    }

    /// The same as a file.
    pub fn file(&self, number: usize) -> PathBuf {
        self.place.join(format!("store{number}")).join(FILE)
    }

    /// Blocks that were read from the images so far, if each was asked for by itself. What nbdkit has read came from
    /// images and from its clients: requests, and the data that it then wrote.
    pub fn read_blocks(&self) -> anyhow::Result<u64> {
        let (mut read, mut written) = (0, 0);
        for kit in &self.kits {
            let (one, other) = kit.characters()?;
            read += one as u64;
            written += other as u64;
        }
        Ok(read.saturating_sub(written) / (BLOCK_BYTES + REQUEST_BYTES))
    }
}

/// An NBD server of an image that delays what it is asked for: by nbdkit's filter, or, since that counts in milliseconds, by a
/// plug-in for nbdkit.
fn serve(image: &Path, place: &Path, socket: &Path, delay: Duration) -> anyhow::Result<Background> {
    let mut nbdkit = Command::new("nbdkit");
    nbdkit.args(["--exit-with-parent", "-U"]).arg(socket);
    let what = if delay.subsec_nanos().is_multiple_of(1_000_000) {
        let time = delay.as_millis();
        nbdkit.args(["--filter=delay", "file"]).arg(image);
        nbdkit.args(["rdelay", "wdelay"].map(|option| format!("{option}={time}ms")));
        "nbdkit, which delays --store-latency (Debian: nbdkit)"
    } else {
        let source = place.join("delayed.c");
        fs::write(&source, PLUGIN)?;
        nbdkit.arg("cc").arg(source);
        nbdkit.arg(format!("image={}", image.display()));
        nbdkit.arg(format!("delay_us={}", delay.as_micros()));
        "nbdkit, which compiles what delays --store-latency by microseconds (Debian: nbdkit-plugin-dev gcc)"
    };
    nbdkit.process_group(0);
    let begun = Background::begin(what, nbdkit)?;
    // The socket is there a moment before anybody listens.
    awaited(what, begun, || UnixStream::connect(socket).is_ok())
}

/// An NBD export as a file that the host's page cache holds.
fn show(uri: &str, file: &Path) -> anyhow::Result<Background> {
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut nbdfuse = Command::new("nbdfuse");
    nbdfuse.arg(file).arg(uri).process_group(0);
    let what = "nbdfuse, which shows a store with --store-latency as a file (Debian: libnbd-bin)";
    let begun = Background::begin(what, nbdfuse)?;
    awaited("nbdfuse", begun, || {
        fs::metadata(file).is_ok_and(|file| file.len() > 0)
    })
}

fn awaited(
    what: &str,
    mut program: Background,
    is_there: impl Fn() -> bool,
) -> anyhow::Result<Background> {
    let deadline = Instant::now() + PATIENCE;
    while !is_there() {
        if let Some(said) = program.last_words()? {
            bail!("{what}: {said}");
        }
        ensure!(Instant::now() < deadline, "{what} does not answer");
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(program)
}
