//! An image whose guest comes by live migration from another server, which has the image open until the guest has come.

use super::Inner;
use super::lock::try_lock;
use crate::SetupError;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;
use tracing::info;

/// The time between two attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether an image is locked for this process.
pub struct Possession {
    /// The guest has come, or comes, from another server. What was cached of the image before is of no use then.
    pub is_incoming: bool,
    is_locked: Arc<AtomicBool>,
}

impl Possession {
    /// Of an image that was locked when it was opened.
    pub fn taken() -> Self {
        Self {
            is_incoming: false,
            is_locked: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Of an image that is not locked yet.
    pub fn coming() -> Self {
        Self {
            is_incoming: true,
            is_locked: Arc::default(),
        }
    }

    pub fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Acquire)
    }
}

/// Takes the lock of an image as soon as it is free, on a thread of its own, as long as the image is open.
///
/// # Errors
///
/// There is no thread.
pub fn take_later(inner: &Arc<Inner>, path: &Path) -> Result<(), SetupError> {
    let refused = |error: std::io::Error| SetupError::Open {
        path: path.to_owned(),
        problem: error.to_string(),
    };
    let locked = inner.direct.as_ref().unwrap_or(&inner.buffered);
    let fd = OwnedFd::from(locked.try_clone().map_err(refused)?);
    let (inner, shown) = (Arc::downgrade(inner), path.display().to_string());
    let wait = move || {
        let mut is_told = false;
        while let Err(error) = attempt(&inner, &fd) {
            if !std::mem::replace(&mut is_told, true) {
                info!(
                    "{shown}: another server has it until the guest has come ({error}); until then writes go through"
                );
            }
            thread::sleep(PAUSE);
            if inner.strong_count() == 0 {
                return;
            }
        }
        if is_told {
            info!("{shown}: no other server has it any more");
        }
    };
    let thread = thread::Builder::new().name("futae-lock".into());
    thread.spawn(wait).map_err(refused)?;
    Ok(())
}

fn attempt(inner: &Weak<Inner>, fd: &OwnedFd) -> Result<(), rustix::io::Errno> {
    try_lock(fd)?;
    if let Some(inner) = inner.upgrade() {
        inner.possession.is_locked.store(true, Ordering::Release);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::{FileStore, Store};
    use std::time::Instant;

    #[test]
    fn an_image_is_locked_when_the_other_server_lets_go_of_it() {
        let image = tempfile::NamedTempFile::new().expect("a file");
        image.as_file().set_len(1 << 20).expect("room");
        let first = FileStore::open(image.path(), false).expect("free");
        assert!(first.is_ours() && first.identity().is_some());
        let second = FileStore::open_incoming(image.path()).expect("opened all the same");
        assert!(!second.is_ours());
        assert!(second.identity().is_none() && second.stamp().is_none());
        FileStore::open_incoming(image.path()).expect("dropped at once");
        drop(first);
        let begun = Instant::now();
        while !second.is_ours() && begun.elapsed() < futae_testkit::wait::PATIENCE {
            std::thread::yield_now();
        }
        assert!(second.is_ours());
        assert!(
            second.identity().is_none(),
            "what was cached before is still of no use"
        );
        assert!(
            FileStore::open(image.path(), false).is_err(),
            "it is locked"
        );
    }
}
