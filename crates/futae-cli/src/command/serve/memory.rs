//! `--memory-file`: caches whose memory outlives the server.

use super::super::names::{stored_as, with_suffix};
use super::evictions::BLOCK_BYTES_MAX;
use super::privileges::PrivilegeArgs;
use anyhow::anyhow;
use futae_engine::{Engine, MemoryFile, MemoryTrust};
use futae_terminal::failure::Failure;
use futae_units::Size;
use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tracing::info;

/// Memory that systemd keeps, in place of a file.
const SYSTEMD: &str = "systemd";

/// Whether the memory of the caches outlives the server.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct MemoryArgs {
    /// Keep the cache in this file, on tmpfs or hugetlbfs (e.g. in /dev/shm), so that the next
    /// server continues with its contents, also after an upgrade or a SIGKILL, until the machine
    /// reboots. The file is created if it is missing, takes the memory of the whole cache at once,
    /// and is used by one server at a time. Each block is compared with its keyed hash before it is
    /// first used; blocks of an image that was changed meanwhile are dropped. The caches of exports
    /// with a share are in FILE.NAME. Blocks of 1MiB at most. `systemd`: memory without a name,
    /// which systemd keeps for this service (FileDescriptorStoreMax= of its unit)
    #[arg(long, value_name = "FILE", conflicts_with = "decision_log")]
    memory_file: Option<PathBuf>,
    /// Exports whose blocks are kept in --memory-file. files: files, whose changes the server
    /// detects. devices: block devices, too; while no server runs, no other program may write to
    /// them, because the server cannot detect it
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
    /// Whether a file can hold blocks of this size.
    ///
    /// # Errors
    ///
    /// They are too large.
    pub(super) fn check_blocks(&self, block_bytes: u64) -> Result<(), Failure> {
        if self.memory_file.is_none() || block_bytes <= BLOCK_BYTES_MAX {
            return Ok(());
        }
        let most = Size::Bytes(BLOCK_BYTES_MAX);
        let problem = format!(
            "--memory-file: blocks of more than {most} cannot be kept; choose a smaller --block"
        );
        Err(Failure::usage(problem))
    }

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
    privileges: PrivilegeArgs,
    engines: Mutex<Vec<Weak<Engine>>>,
    ledger: Arc<Mutex<Ledger>>,
}

impl KeptMemory {
    pub(super) fn new(args: &MemoryArgs, privileges: &PrivilegeArgs) -> Self {
        Self {
            args: args.clone(),
            privileges: privileges.clone(),
            engines: Mutex::default(),
            ledger: Arc::default(),
        }
    }

    /// The server has started: from now on its memory is of use to the next one.
    pub(super) fn settle(&self) {
        let mut ledger = locked(&self.ledger);
        ledger.phase = Phase::Serving;
        ledger.new.clear();
    }

    /// The cache that `owner` alone uses, or the common one, is in use: its memory stays when it goes.
    pub(super) fn settle_cache(&self, owner: Option<&str>) {
        if let Some(path) = &self.args.memory_file {
            let path = path_of(path, owner);
            let is_other = |place: &Place| !matches!(place, Place::File(of) if *of == path);
            locked(&self.ledger).new.retain(is_other);
        }
    }

    /// The server begins to start.
    pub(super) fn starting(&self) -> Starting {
        Starting(Arc::clone(&self.ledger))
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
        let is_systemd = path == Path::new(SYSTEMD);
        let path = path_of(path, owner);
        // Who makes the memory of exports that are added later, and opens it again.
        let heir = self.privileges.later()?.map(|user| user.uid.as_raw());
        let file = if is_systemd {
            let (file, holding) = self.stored(owner, heir)?;
            MemoryFile::of_file(file, &path, block_bytes, slots, heir)?.with_companion(holding)
        } else {
            let file = MemoryFile::open(&path, block_bytes, slots, heir)?;
            let place = Place::File(path.clone());
            let holding = self.holding(&mut locked(&self.ledger), place, file.is_made());
            file.with_companion(holding)
        };
        if let Some(why) = file.empty() {
            info!("memory file {}: starting empty: {why}", path.display());
        }
        let trust = match self.args.memory_trust {
            Trust::Files => MemoryTrust::Files,
            Trust::Devices => MemoryTrust::Devices,
        };
        engine.keep_memory(file, trust)?;
        let mut engines = self.engines();
        engines.retain(|known| known.strong_count() > 0);
        engines.push(Arc::downgrade(engine));
        Ok(())
    }

    /// The memory that systemd keeps for a cache, or new memory that it keeps from now on. Memory of a server that ran as another
    /// user (`User=` of the unit) is given up: that user may still have it.
    fn stored(&self, owner: Option<&str>, heir: Option<u32>) -> Result<(File, Holding), Failure> {
        let name = match owner {
            None => "futae-memory".to_owned(),
            Some(owner) => format!("futae-memory.{}", stored_as(owner)),
        };
        let mut ledger = locked(&self.ledger);
        let mut before = futae_systemd::take_stored(&name).map(File::from);
        if let Some(file) = &before
            && !MemoryFile::is_of(file, heir)?
        {
            info!(
                "memory file systemd: {name} is that of a server that ran as another user: it is given up"
            );
            before = None;
            futae_systemd::forget(&name);
        }
        let is_new = before.is_none();
        let file = match before {
            Some(file) => file,
            None => {
                let file = MemoryFile::unnamed()?;
                // Of a cache of this name that is about to go.
                if ledger.stored.remove(&name).is_some() {
                    futae_systemd::forget(&name);
                }
                if !futae_systemd::store(&name, &file)? {
                    let problem = "--memory-file systemd: this is no service of systemd (NOTIFY_SOCKET is not set); name a \
                                   file in /dev/shm, or start it by its unit";
                    return Err(Failure::usage(problem));
                }
                file
            }
        };
        ledger.count += 1;
        let number = ledger.count;
        ledger.stored.insert(name.clone(), number);
        let place = Place::Systemd { name, number };
        let holding = self.holding(&mut ledger, place, is_new);
        Ok((file, holding))
    }

    fn holding(&self, ledger: &mut Ledger, place: Place, is_new: bool) -> Holding {
        if is_new {
            ledger.new.push(place.clone());
        }
        Holding {
            place,
            ledger: Arc::clone(&self.ledger),
        }
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
            "memory file: {blocks} blocks ({size}) are kept from the previous server"
        );
        blocks
    }

    /// The server ends: what its caches have stays for the next one. Returns those of which [`leave`] is to be told when it
    /// has ended.
    pub(super) fn leaving(&self) -> Vec<Arc<Engine>> {
        locked(&self.ledger).phase = Phase::Leaving;
        self.engines().iter().filter_map(Weak::upgrade).collect()
    }

    fn engines(&self) -> MutexGuard<'_, Vec<Weak<Engine>>> {
        locked(&self.engines)
    }
}

/// The file of the cache that `owner` alone uses, or of the common one.
fn path_of(path: &Path, owner: Option<&str>) -> PathBuf {
    owner.map_or_else(|| path.to_owned(), |name| with_suffix(path, name))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What decides which memory stays when its cache goes.
#[derive(Default)]
struct Ledger {
    phase: Phase,
    /// What systemd keeps: by its name the number of the memory.
    stored: HashMap<String, u64>,
    /// How often systemd was had to keep memory.
    count: u64,
    /// The memory that was made for caches that are not in use yet: the server starts, or their exports are being added.
    new: Vec<Place>,
}

impl Ledger {
    fn give_up(&mut self, place: &Place) {
        match place {
            Place::File(path) => {
                // Should this fail, the file is empty, and the next server uses it.
                let _ = std::fs::remove_file(path);
            }
            Place::Systemd { name, number } => {
                // Not the memory of a cache that has come in the place of this one.
                if self.stored.get(name) == Some(number) {
                    self.stored.remove(name);
                    futae_systemd::forget(name);
                }
            }
        }
    }
}

/// How far a server is.
#[derive(Clone, Copy, Default)]
enum Phase {
    /// It may not start.
    #[default]
    Starting,
    Serving,
    Leaving,
}

/// Where the memory of a cache is.
#[derive(Clone, PartialEq, Eq)]
enum Place {
    File(PathBuf),
    Systemd { name: String, number: u64 },
}

/// Gives up what is new of a server that does not start. Threads may still have its caches, and end with the process only, so
/// these do not give it up themselves.
pub(super) struct Starting(Arc<Mutex<Ledger>>);

impl Drop for Starting {
    fn drop(&mut self) {
        let mut ledger = locked(&self.0);
        if matches!(ledger.phase, Phase::Starting) {
            ledger.phase = Phase::Leaving;
            for place in std::mem::take(&mut ledger.new) {
                ledger.give_up(&place);
            }
        }
    }
}

/// The memory of a cache, dropped with it.
struct Holding {
    place: Place,
    ledger: Arc<Mutex<Ledger>>,
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut ledger = locked(&self.ledger);
        match (ledger.phase, &self.place) {
            // `Starting` gives up what is new.
            (Phase::Starting | Phase::Leaving, _) => {}
            (Phase::Serving, place) => {
                let new = ledger.new.iter().position(|new| new == place);
                if let Some(at) = new {
                    ledger.new.swap_remove(at);
                }
                // A file that was in use stays: the export may come again, and an operator who knows better can remove the file.
                if new.is_some() || matches!(place, Place::Systemd { .. }) {
                    ledger.give_up(place);
                }
            }
        }
    }
}

/// The server has ended: the next one finds everything as it is.
pub(super) fn leave(engines: &[Arc<Engine>]) {
    for engine in engines {
        engine.leave_memory();
    }
}
