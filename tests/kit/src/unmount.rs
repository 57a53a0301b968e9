//! Unmounting what a test has mounted.

use crate::wait::obtain;
use std::path::Path;
use std::process::Command;

/// Unmounts a file system with umount(8). While it is busy, this waits: a program that another test is just starting has the
/// open files of all threads for a moment.
///
/// # Panics
///
/// If it is busy for longer than [`PATIENCE`](crate::wait::PATIENCE), or cannot be unmounted.
#[track_caller]
pub fn unmount(point: &Path) {
    obtain("umount", || {
        let output = Command::new("umount").arg(point).output();
        let output = output.expect("umount starts");
        let said = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok(());
        }
        assert!(said.contains("busy"), "umount {}: {said}", point.display());
        Err(said.into_owned())
    });
}
