//! Files with secrets.

use crate::HostError;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Permission bits of other users on a file.
const OTHERS: u32 = 0o007;

/// Refuses a file that every user of this machine may read or change. `what` it holds, in the
/// singular.
pub(super) fn refuse_if_open_to_all(path: &Path, what: &str) -> Result<(), HostError> {
    let attributes = std::fs::metadata(path).map_err(|error| wrong(path, &error))?;
    if attributes.mode() & OTHERS == 0 {
        return Ok(());
    }
    Err(HostError::Certificate {
        file: path.display().to_string(),
        problem: format!(
            "every user of this machine may read this {what}; chmod o= it, and make a new one if it was so for long"
        ),
    })
}

/// The error of a file that cannot be used.
pub(super) fn wrong(file: &Path, error: &dyn std::error::Error) -> HostError {
    HostError::Certificate {
        file: file.display().to_string(),
        problem: error.to_string(),
    }
}
