//! Log lines about failures of the lower file system, with the path; those that a program has caused
//! are for debugging.

use crate::lock::locked;
use rustix::io::Errno;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use tracing::{Level, debug, enabled, warn};

/// The shortest time between two equal lines.
pub(super) const SILENCE: Duration = Duration::from_secs(60);
/// The number of lines remembered.
const REMEMBERED_MAX: usize = 256;

/// Whether operators should know of an error: the disk is full, broken or gone, or futae lacks a
/// permission.
fn matters(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::IO
            | Errno::NOSPC
            | Errno::ACCESS
            | Errno::PERM
            | Errno::ROFS
            | Errno::NFILE
            | Errno::MFILE
            | Errno::NOMEM
            | Errno::NODEV
            | Errno::NXIO
    )
}

/// Whether only the request has caused an error: it exceeds the longest file, or its user's quota.
fn is_the_users(errno: Errno) -> bool {
    matches!(errno, Errno::FBIG | Errno::DQUOT)
}

/// What was attempted, on which path, and the number of the error.
type Line = (&'static str, PathBuf, i32);

/// Logs each failure once a minute.
#[derive(Default)]
pub(crate) struct Log {
    said: Mutex<HashMap<Line, Instant>>,
}

impl Log {
    /// `what` was attempted on `path`, and failed.
    pub(crate) fn note(&self, what: &'static str, path: &Path, errno: Errno) {
        let matters = matters(errno);
        if !(matters || is_the_users(errno) && enabled!(Level::DEBUG)) {
            return;
        }
        if self.is_news((what, path.to_owned(), errno.raw_os_error())) {
            let path = path.display();
            if matters {
                warn!(%path, "{path}: {what}: {errno}");
            } else {
                debug!(%path, "{path}: {what}: {errno}");
            }
        }
    }

    fn is_news(&self, line: Line) -> bool {
        let mut said = locked(&self.said);
        if said.len() >= REMEMBERED_MAX {
            said.retain(|_, when| when.elapsed() < SILENCE);
        }
        if said.len() >= REMEMBERED_MAX {
            return false;
        }
        let is_news = said.get(&line).is_none_or(|when| when.elapsed() >= SILENCE);
        if is_news {
            said.insert(line, Instant::now());
        }
        is_news
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_equal_line_is_held_back() {
        let log = Log::default();
        let line = |what: &'static str, path: &str, errno: Errno| {
            (what, path.into(), errno.raw_os_error())
        };
        assert!(log.is_news(line("writing back", "a", Errno::NOSPC)));
        assert!(!log.is_news(line("writing back", "a", Errno::NOSPC)));
        assert!(log.is_news(line("syncing", "a", Errno::NOSPC)));
        assert!(log.is_news(line("writing back", "b", Errno::NOSPC)));
        assert!(log.is_news(line("writing back", "a", Errno::IO)));
    }
}
