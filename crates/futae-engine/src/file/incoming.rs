//! An image whose guest comes by live migration from another server, which has the image open until the guest has come.

use super::lock::{lock, try_lock};
use crate::SetupError;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tracing::info;

/// The time between two attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether an image is locked for this process.
pub struct Possession {
    /// The guest has come, or comes, from another server. What was cached of the image before is of no use then.
    pub is_incoming: bool,
    is_locked: AtomicBool,
}

impl Possession {
    /// Of an image that was locked when it was opened.
    pub fn taken() -> Self {
        Self {
            is_incoming: false,
            is_locked: AtomicBool::new(true),
        }
    }

    fn take(&self) {
        self.is_locked.store(true, Ordering::Release);
    }

    pub fn is_locked(&self) -> bool {
        self.is_locked.load(Ordering::Acquire)
    }
}

/// Takes the lock of an image: now, or of one that another process has, as soon as it is free, on a thread of its own, as long as
/// the image is open.
///
/// # Errors
///
/// There is no thread.
pub fn take(fd: OwnedFd, path: &Path) -> Result<Arc<Possession>, SetupError> {
    let possession = Arc::new(Possession {
        is_incoming: true,
        is_locked: AtomicBool::new(false),
    });
    let Err(error) = lock(&fd, false) else {
        possession.take();
        return Ok(possession);
    };
    let (owner, shown) = (Arc::downgrade(&possession), path.display().to_string());
    info!(
        "{shown}: another server has it until the guest has come ({error}); until then writes go through"
    );
    let wait = move || {
        while try_lock(&fd, false).is_err() {
            thread::sleep(PAUSE);
            if owner.strong_count() == 0 {
                return;
            }
        }
        if let Some(possession) = owner.upgrade() {
            possession.take();
            info!("{shown}: no other server has it any more");
        }
    };
    let thread = thread::Builder::new().name("futae-lock".into());
    let started = thread.spawn(wait);
    started.map_err(|error| SetupError::Open {
        path: path.to_owned(),
        problem: error.to_string(),
    })?;
    Ok(possession)
}

#[cfg(test)]
mod tests {
    use crate::{FileStore, Store};

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
        while !second.is_ours() {
            std::thread::yield_now();
        }
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
