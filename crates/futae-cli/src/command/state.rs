//! `--state`: which blocks a cache held, remembered over a restart of it or of the machine. Mounts and servers have
//! it.

mod lock;

use super::volumes::Source;
use crate::save::check_place;
use futae_engine::{Engine, Identity, NamedVolume, SavedState, WarmState, WarmStateError};
use futae_policy::VolumeId;
use futae_terminal::failure::Failure;
use futae_units::Size;
use lock::StateLock;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{error, info, warn};

/// How often it is saved.
const EVERY_SECONDS_DEFAULT: f64 = 60.0;

/// The flags.
#[derive(Clone, Debug, clap::Args)]
pub struct StateArgs {
    /// Save the list of resident blocks and their history in FILE, so that the next start is warm,
    /// also after a reboot: the blocks are read from their sources in the background. The caches of
    /// exports with a share are in FILE.NAME. One process at a time can use a file (FILE.lock). Not
    /// with --decision-log: the log could not be replayed without the history. For a mounted
    /// directory, files are found by their paths, and the history is not saved
    #[arg(long, value_name = "FILE", conflicts_with = "decision_log")]
    state: Option<PathBuf>,
    /// Seconds between saves of --state; the state is also saved at the end
    #[arg(long, value_name = "SECONDS", requires = "state")]
    state_every: Option<f64>,
}

/// A volume of a cache, and its source by name ([`name_of`]).
pub type Sourced = (VolumeId, String);

/// Where the state of one cache is kept, and when it was saved.
pub struct StateFile {
    path: PathBuf,
    saved: Instant,
    /// Whether the log has the failure to save.
    complained: bool,
    /// Whether the file is of use to another cache, and goes out of the way of this one's.
    goes_aside: bool,
    lock: Arc<StateLock>,
}

impl StateArgs {
    /// Where the state is to be kept, if anywhere.
    pub fn path(&self) -> Option<&Path> {
        self.state.as_deref()
    }

    /// Whether anything is to be kept.
    pub fn is_asked(&self) -> bool {
        self.state.is_some()
    }

    /// Whether the flags can be meant.
    pub fn check(&self) -> Result<(), Failure> {
        if !(0.1..=1e6).contains(&self.every_seconds()) {
            return Err(Failure::usage(
                "--state-every is between 0.1 and a million seconds",
            ));
        }
        let state = self.state.as_deref();
        state.map_or(Ok(()), |path| check_place("--state", path))
    }

    fn every_seconds(&self) -> f64 {
        self.state_every.unwrap_or(EVERY_SECONDS_DEFAULT)
    }

    /// How often the state is saved.
    pub fn every(&self) -> Duration {
        Duration::from_secs_f64(self.every_seconds())
    }
}

impl StateFile {
    /// A file that counts as just saved. No other process has it until it is dropped.
    ///
    /// # Errors
    ///
    /// Another process has it.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let lock = Arc::new(StateLock::take(path)?);
        Ok(Self::locked(path, lock))
    }

    /// The same file, for a cache that takes the place of another one of this process.
    pub fn again(&self) -> Self {
        Self::locked(&self.path, Arc::clone(&self.lock))
    }

    fn locked(path: &Path, lock: Arc<StateLock>) -> Self {
        Self {
            path: path.to_owned(),
            saved: Instant::now(),
            complained: false,
            goes_aside: false,
            lock,
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Gives a cache what an earlier one has saved of these volumes, if that is of use; otherwise says why not. Returns
    /// how many blocks are being loaded again.
    pub fn recall(&mut self, engine: &Arc<Engine>, volumes: &[Sourced]) -> u64 {
        let loaded = WarmState::load(&self.path, &identity(engine, volumes));
        let Some(loaded) = self.of_use(loaded) else {
            return 0;
        };
        let path = self.path.display();
        self.warn_of_policy(loaded.other_policy.as_deref(), engine);
        for left_out in &loaded.left_out {
            warn!("--state {path}: {left_out}; its blocks are not loaded");
        }
        engine.recall(&loaded.state);
        let blocks = engine.status().resident_blocks;
        let size = Size::Bytes(blocks * engine.block_bytes());
        info!(
            blocks,
            "--state {path}: {blocks} blocks ({size}) are being loaded again"
        );
        blocks
    }

    /// What an earlier mount of a directory has saved, if that is of use; otherwise says why not.
    pub fn saved_below(&mut self, directory: &Path, engine: &Engine) -> Option<SavedState> {
        let fits = |saved: &SavedState| {
            saved.check_block(engine.block_bytes())?;
            saved.check_below(directory)
        };
        let saved = SavedState::load(&self.path).and_then(|saved| {
            saved.as_ref().map_or(Ok(()), fits)?;
            Ok(saved)
        });
        let saved = self.of_use(saved)?;
        let other_policy = saved.other_policy(&engine.status().policy);
        self.warn_of_policy(other_policy.as_deref(), engine);
        Some(saved)
    }

    /// What was loaded, if anything; otherwise says why not.
    fn of_use<T>(&mut self, loaded: Result<Option<T>, WarmStateError>) -> Option<T> {
        loaded.unwrap_or_else(|error| {
            let path = self.path.display();
            self.goes_aside = error.is_of_another();
            let kept = match self.goes_aside {
                true => format!("; the file is kept as {path}.old"),
                false => String::new(),
            };
            warn!("--state {path}: {error}; it is ignored, and the cache begins cold{kept}");
            None
        })
    }

    fn warn_of_policy(&self, other: Option<&str>, engine: &Engine) {
        let Some(other) = other else { return };
        let (path, here) = (self.path.display(), engine.status().policy);
        warn!(
            "--state {path}: its policy is {other}, and here it is {here}: the blocks are loaded in the order of \
             {other}, without its history"
        );
    }

    /// Whether it was saved as long ago as this.
    pub fn is_due(&self, every: Duration) -> bool {
        self.saved.elapsed() >= every
    }

    /// Saves what a cache holds of these volumes. A state that cannot be saved is no reason to end: it is said once.
    pub fn save(&mut self, engine: &Engine, volumes: &[Sourced]) {
        self.saved = Instant::now();
        let state = engine.warm_state();
        let saved = match self.goes_aside {
            true => WarmState::set_aside(&self.path),
            false => Ok(()),
        };
        let saved = saved.and_then(|()| state.save(&self.path, &identity(engine, volumes)));
        match saved {
            Ok(()) => (self.complained, self.goes_aside) = (false, false),
            Err(error) => {
                if !std::mem::replace(&mut self.complained, true) {
                    let path = self.path.display();
                    error!("--state {path}: cannot be saved: {error}");
                }
            }
        }
    }
}

fn identity(engine: &Engine, volumes: &[Sourced]) -> Identity {
    let volumes = volumes.iter().map(|(volume, source)| NamedVolume {
        volume: *volume,
        source: source.clone(),
        size_bytes: engine.volume_bytes(*volume),
    });
    Identity {
        block_bytes: engine.block_bytes(),
        policy: engine.status().policy,
        volumes: volumes.collect(),
    }
}

/// The name by which a source is known after a reboot: a file or a directory by where it really is, a device as it was
/// named. The kernel numbers devices anew at every boot, so what a link to one leads to is of no use then.
pub fn name_of(source: &Source) -> String {
    let real = match source {
        Source::File(path) if is_device(path) => std::path::absolute(path).ok(),
        Source::File(path) => path.canonicalize().ok(),
        Source::Nbd(_) => None,
    };
    real.map_or_else(
        || source.to_string(),
        |path| path.to_string_lossy().into_owned(),
    )
}

fn is_device(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| {
        let kind = found.file_type();
        kind.is_block_device() || kind.is_char_device()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_file_is_known_by_where_it_is_and_a_device_by_its_lasting_name() {
        let directory = tempfile::tempdir().expect("a directory");
        let directory = directory.path().canonicalize().expect("it is there");
        let path = |name: &str| directory.join(name);
        std::fs::write(path("image"), "").expect("written");
        symlink("image", path("link")).expect("a link");
        symlink("/dev/null", path("device")).expect("a link");
        let name = |name: &str| name_of(&Source::File(path(name)));
        let expected = |name: &str| path(name).to_string_lossy().into_owned();
        assert_eq!(name("link"), expected("image"));
        assert_eq!(name("device"), expected("device"));
    }
}
