//! A file system of its own for a test, such as a tmpfs of a size.

use crate::stage::detach;
use futae_testkit::need::{Need, skip};
use rustix::mount::MountFlags;
use std::ffi::CString;
use std::path::Path;
use tempfile::TempDir;

/// A mounted file system, until it is dropped.
pub struct Mounted {
    place: TempDir,
}

impl Mounted {
    /// Mounts one of this kind with these options. None, and the reason is printed, if that is not permitted.
    ///
    /// # Panics
    ///
    /// If it is permitted and fails.
    #[must_use]
    pub fn new(kind: &str, options: &str) -> Option<Self> {
        let why = format!("only root can mount a {kind}");
        if !rustix::process::geteuid().is_root() {
            skip(Need::Root, &why);
            return None;
        }
        let place = tempfile::tempdir().expect("a directory can be made");
        let data = CString::new(options).expect("options");
        let mounted = rustix::mount::mount(
            "futae-test",
            place.path(),
            kind,
            MountFlags::empty(),
            data.as_c_str(),
        );
        match mounted {
            Ok(()) => Some(Self { place }),
            Err(rustix::io::Errno::PERM) => {
                skip(Need::Root, &why);
                None
            }
            Err(errno) => panic!("{kind} ({options}): {errno}"),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.place.path()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        detach(self.place.path());
    }
}
