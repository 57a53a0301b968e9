//! The holder of a lock on a file, for messages.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Who holds a lock on a file.
enum Holder {
    /// This process, which has it open a second time.
    This,
    /// The name and number of another process.
    Other(String),
}

/// Why a file cannot be locked.
pub fn in_use(file: &OwnedFd) -> String {
    match holder(file) {
        Some(Holder::This) => {
            "is in use by this process already; name it once, several clients may use it".to_owned()
        }
        Some(Holder::Other(by)) => {
            format!("is in use by another process: {by}; stop that one first")
        }
        None => "is in use by another process; stop that one first".to_owned(),
    }
}

/// Who holds a lock on the same file, if this process may see it.
fn holder(file: &OwnedFd) -> Option<Holder> {
    let own = rustix::fs::fstat(file.as_fd()).ok()?;
    let is_same = |path: &Path| {
        let known = rustix::fs::stat(path);
        known.is_ok_and(|known| (known.st_dev, known.st_ino) == (own.st_dev, own.st_ino))
    };
    let this = std::process::id();
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let name = process.file_name();
        let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else {
            continue; // Another user's process, or one that has exited.
        };
        for descriptor in descriptors.flatten() {
            let about = process.path().join("fdinfo").join(descriptor.file_name());
            let is_locked = || fs::read_to_string(about).is_ok_and(|about| about.contains("lock:"));
            if !is_same(&descriptor.path()) || !is_locked() {
                continue;
            }
            if id == this {
                return Some(Holder::This);
            }
            let comm = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            let comm: String = comm.trim().chars().filter(|c| !c.is_control()).collect();
            return Some(Holder::Other(format!("{comm} ({id})")));
        }
    }
    None
}
