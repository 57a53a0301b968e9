//! `--memory-file`: caches whose memory outlives the server.

use super::opener::with_suffix;
use crate::failure::Failure;
use anyhow::anyhow;
use futae_engine::{Engine, MemoryFile, MemoryTrust};
use futae_units::Size;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tracing::info;

/// Memory that systemd keeps, in place of a file.
const SYSTEMD: &str = "systemd";

/// Whether the memory of the caches outlives the server.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct MemoryArgs {
    /// Keep the cache in this file, on tmpfs or hugetlbfs (e.g. in /dev/shm), so that the next server goes on with what
    /// this one holds, also after an upgrade or a SIGKILL, until the machine is started anew. The file is made if it is
    /// not there, takes the memory of the whole cache at once, and may have one user at a time. Each block is held
    /// against its keyed hash before it is first used; blocks of an image that was changed meanwhile are dropped. The
    /// caches of exports with a share are in FILE.NAME. Blocks of 1MiB at most. `systemd`: memory without a
    /// name, which systemd keeps for this service (FileDescriptorStoreMax= of its unit)
    #[arg(long, value_name = "FILE", conflicts_with = "decision_log")]
    memory_file: Option<PathBuf>,
    /// Of which exports blocks are kept in --memory-file. files: of files, which show when they were changed.
    /// devices: of block devices, too; nobody else may write to them while no server runs, since that cannot be seen
    #[arg(
        long,
        value_name = "WHAT",
        default_value = "files",
        requires = "memory_file"
    )]
    memory_trust: Trust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Trust {
    Files,
    Devices,
}

impl MemoryArgs {
    /// Whether the file can be made where it is to be.
    ///
    /// # Errors
    ///
    /// Its directory is missing, or on a disk.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.memory_file.as_deref() {
            Some(path) if path != Path::new(SYSTEMD) => MemoryFile::check_directory(path)
                .map_err(|error| anyhow!("--memory-file {error}").into()),
            _ => Ok(()),
        }
    }
}

/// The caches whose memory outlives the server.
pub(super) struct KeptMemory {
    args: MemoryArgs,
    engines: Mutex<Vec<Weak<Engine>>>,
    /// Files that are removed unless the server starts; none once it has.
    made: Mutex<Option<Vec<PathBuf>>>,
}

impl KeptMemory {
    pub(super) fn new(args: &MemoryArgs) -> Self {
        Self {
            args: args.clone(),
            engines: Mutex::default(),
            made: Mutex::new(Some(Vec::new())),
        }
    }

    /// The server has started: the files stay from now on.
    pub(super) fn settle(&self) {
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Puts the frames of a new cache of `slots` blocks where they are to be kept. `owner` is the export that alone uses it.
    pub(super) fn apply(
        &self,
        engine: &Arc<Engine>,
        slots: u32,
        owner: Option<&str>,
    ) -> Result<(), Failure> {
        let Some(path) = &self.args.memory_file else {
            return Ok(());
        };
        let block_bytes = engine.block_bytes();
        let path = match owner {
            None => path.clone(),
            Some(name) => with_suffix(path, name),
        };
        let is_systemd = self.args.memory_file.as_deref() == Some(Path::new(SYSTEMD));
        let file = if is_systemd {
            MemoryFile::of_file(stored(owner)?, &path, block_bytes, slots)?
        } else {
            MemoryFile::open(&path, block_bytes, slots)?
        };
        if let Some(why) = file.empty() {
            info!("memory file {}: starting empty: {why}", path.display());
        }
        let trust = match self.args.memory_trust {
            Trust::Files => MemoryTrust::Files,
            Trust::Devices => MemoryTrust::Devices,
        };
        let is_made = file.is_made();
        if let Err(error) = engine.keep_memory(file, trust) {
            if is_made {
                remove(&path);
            }
            return Err(error.into());
        }
        if is_made
            && let Some(made) = &mut *self.made.lock().unwrap_or_else(PoisonError::into_inner)
        {
            made.push(path);
        }
        self.engines().push(Arc::downgrade(engine));
        Ok(())
    }

    /// All exports of a cache at the start are there: takes up what its memory holds of them. Returns how many blocks
    /// it holds.
    pub(super) fn recall(&self, engine: &Arc<Engine>) -> u64 {
        let is_it = |known: &Weak<Engine>| known.as_ptr() == Arc::as_ptr(engine);
        if !self.engines().iter().any(is_it) {
            return 0;
        }
        let blocks = engine.recall_memory();
        let size = Size::Bytes(blocks * engine.block_bytes());
        info!(
            blocks,
            "memory file: {blocks} blocks ({size}) are kept from the server before"
        );
        blocks
    }

    /// The caches of which [`leave`] is to be told when the server has ended.
    pub(super) fn leaving(&self) -> Vec<Arc<Engine>> {
        self.engines().iter().filter_map(Weak::upgrade).collect()
    }

    fn engines(&self) -> MutexGuard<'_, Vec<Weak<Engine>>> {
        self.engines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeptMemory {
    fn drop(&mut self) {
        let made = self.made.get_mut().unwrap_or_else(PoisonError::into_inner);
        made.iter().flatten().for_each(|path| remove(path));
    }
}

/// Gives the memory of a new file back, of a server that does not start. Should that fail, the file is empty, and the next
/// server uses it.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// The server has ended: the next one finds everything as it is.
pub(super) fn leave(engines: &[Arc<Engine>]) {
    for engine in engines {
        engine.leave_memory();
    }
}

/// The memory that systemd keeps for a cache, or new memory that it keeps from now on.
fn stored(owner: Option<&str>) -> Result<File, Failure> {
    let plain = |c: char| match c {
        '.' | '_' | '-' => c,
        _ if c.is_ascii_alphanumeric() => c,
        _ => '_',
    };
    let name = match owner {
        None => "futae-memory".to_owned(),
        Some(owner) => {
            let owner: String = owner.chars().map(plain).take(200).collect();
            format!("futae-memory.{owner}")
        }
    };
    if let Some(descriptor) = futae_systemd::take_stored(&name) {
        return Ok(descriptor.into());
    }
    let file = MemoryFile::unnamed()?;
    if futae_systemd::store(&name, &file)? {
        return Ok(file);
    }
    let problem = "--memory-file systemd: this is no service of systemd (NOTIFY_SOCKET is not set); name a file in \
                   /dev/shm, or start it by its unit";
    Err(Failure::usage(problem))
}
