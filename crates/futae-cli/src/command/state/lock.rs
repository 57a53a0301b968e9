//! The lock of a `--state` file, which has one user at a time.

use crate::command::file_lock::{FileLock, NotLocked, shown};
use anyhow::anyhow;
use futae_terminal::failure::Failure;
use std::path::Path;
use tracing::warn;

/// The right to save a state, until it is dropped.
pub(super) struct StateLock {
    /// None if no lock can be had here; then a state cannot be saved, either.
    _held: Option<FileLock>,
}

impl StateLock {
    /// Takes the lock of the state file at `path`.
    ///
    /// # Errors
    ///
    /// Another process has it.
    pub(super) fn take(path: &Path) -> Result<Self, Failure> {
        match FileLock::take(path) {
            Ok(lock) => Ok(Self { _held: Some(lock) }),
            Err(NotLocked::Held(holder)) => Err(anyhow!(
                "--state {}: another server or mount{} keeps its state there; stop it first, or name another file",
                path.display(),
                shown(holder)
            )
            .into()),
            Err(NotLocked::Impossible(errno)) => {
                warn!(
                    "--state {}: {} cannot be locked: {errno}; see that no other server or mount has the same --state",
                    path.display(),
                    FileLock::beside(path).display()
                );
                Ok(Self { _held: None })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_the_lock_and_its_process_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let state = directory.path().join("state");
        let first = StateLock::take(&state).map_err(|it| it.to_string());
        let first = first.expect("free");
        let refused = StateLock::take(&state).err().expect("it is held");
        let said = refused.to_string();
        assert!(
            said.contains(&format!("--state {}", state.display())),
            "{said}"
        );
        assert!(
            said.contains(&format!("process {}", std::process::id())),
            "{said}"
        );
        drop(first);
        assert!(StateLock::take(&state).is_ok(), "free again");
        assert!(!state.exists(), "only the lock is made");
    }
}
