//! Log lines about a failing store: the first error at once, then a count per minute, and finally a
//! line when the errors have stopped. A dead disk fails thousands of requests a second, and one
//! line says as much as a line for each.

use super::ticket::Ticket;
use crate::{IoError, IoErrorKind};
use futae_policy::VolumeId;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tracing::{error, info, warn};

/// Time between two counts.
pub const INTERVAL: Duration = Duration::from_secs(60);
/// The largest number of volumes whose errors are counted separately; a tree has a volume for each
/// file.
const VOLUMES_MAX: usize = 32;

/// Store errors that were not logged individually.
#[derive(Default)]
pub struct Complaints {
    volumes: BTreeMap<VolumeId, Trouble>,
    /// Errors of volumes beyond [`VOLUMES_MAX`].
    others: u64,
    /// Dropping the sender ends the thread that counts; `None` while there is nothing to count.
    pub counts: Option<Sender<()>>,
}

/// Errors of one volume's store.
struct Trouble {
    name: String,
    unsaid: u64,
    last: IoError,
}

/// A line to log once the cache's lock is released.
#[derive(Debug, PartialEq, Eq)]
pub enum Remark {
    /// The first error of a volume's store.
    First { name: String, text: String },
    /// The number of errors since the last remark.
    More {
        name: String,
        count: u64,
        last: String,
    },
    /// No errors since the last remark.
    NoMore { name: String },
    /// The number of errors of volumes that are not counted separately.
    Others(u64),
}

/// Whether an error of a store operation is a failure of the store: also if it refuses writes that the cache may send. An
/// invalid request, or an operation that the store does not support, is none.
pub fn matters(error: &IoError) -> bool {
    matches!(
        error.kind,
        IoErrorKind::Store | IoErrorKind::NoSpace | IoErrorKind::ReadOnly
    )
}

/// The line about an error; `errno` is what the requests got that failed with it.
pub fn sentence(of: Ticket, error: &IoError, errno: i32) -> String {
    match of {
        Ticket::Run(_) => format!(
            "a write-back failed: {error}; its blocks stay in the cache, dirty, and are written again"
        ),
        Ticket::Flush(_) | Ticket::Mark(_) => format!(
            "a flush failed: {error}; writes that were answered may not be on stable storage"
        ),
        Ticket::Flight(_) | Ticket::Write(_) => {
            let errno = name_of(errno);
            format!("its store failed: {error}; the requests concerned got {errno}")
        }
    }
}

/// The name of an error number that stores often have.
fn name_of(errno: i32) -> Cow<'static, str> {
    match errno {
        1 => "EPERM".into(),
        5 => "EIO".into(),
        28 => "ENOSPC".into(),
        30 => "EROFS".into(),
        122 => "EDQUOT".into(),
        _ => format!("error {errno}").into(),
    }
}

impl Complaints {
    /// Counts an error, of which `text` is the line. Returns a remark that must be logged at once, if any.
    pub fn note(
        &mut self,
        volume: VolumeId,
        name: &str,
        text: String,
        error: IoError,
    ) -> Option<Remark> {
        if let Some(trouble) = self.volumes.get_mut(&volume) {
            trouble.unsaid += 1;
            trouble.last = error;
            return None;
        }
        if self.volumes.len() >= VOLUMES_MAX {
            self.others += 1;
            return None;
        }
        let name = name.to_owned();
        let trouble = Trouble {
            name: name.clone(),
            unsaid: 0,
            last: error,
        };
        self.volumes.insert(volume, trouble);
        Some(Remark::First { name, text })
    }

    /// Called every minute. Returns the remarks to log.
    pub fn count(&mut self) -> Vec<Remark> {
        let mut remarks = Vec::new();
        self.volumes.retain(|_, trouble| {
            let name = trouble.name.clone();
            let count = std::mem::take(&mut trouble.unsaid);
            remarks.push(match count {
                0 => Remark::NoMore { name },
                count => Remark::More {
                    name,
                    count,
                    last: trouble.last.to_string(),
                },
            });
            count > 0
        });
        match std::mem::take(&mut self.others) {
            0 => {}
            count => remarks.push(Remark::Others(count)),
        }
        if self.volumes.is_empty() {
            self.counts = None;
        }
        remarks
    }
}

impl Remark {
    /// Logs the remark.
    pub fn say(self) {
        match self {
            Self::First { name, text } => error!(volume = name, "{name}: {text}"),
            Self::More { name, count, last } => warn!(
                volume = name,
                errors = count,
                "{name}: {count} more errors of its store since the last message; the last: {last}"
            ),
            Self::NoMore { name } => info!(
                volume = name,
                "{name}: no error of its store for {} s",
                INTERVAL.as_secs()
            ),
            Self::Others(count) => {
                warn!(
                    errors = count,
                    "{count} errors of the stores of other volumes"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_said_at_once_and_the_others_are_counted() {
        let mut complaints = Complaints::default();
        let fail = |complaints: &mut Complaints, volume: u16, message: &str| {
            let error = IoError::new(IoErrorKind::Store, message);
            let text = sentence(Ticket::Flight(0), &error, error.kind.errno());
            complaints.note(VolumeId(volume), "vm1", text, error)
        };
        let first = fail(&mut complaints, 0, "gone");
        assert!(
            matches!(&first, Some(Remark::First { text, .. }) if text == "its store failed: gone; the requests concerned got EIO"),
            "{first:?}"
        );
        for _ in 0..2 {
            assert_eq!(fail(&mut complaints, 0, "gone for good"), None);
        }
        let name = || "vm1".to_owned();
        let more = Remark::More {
            name: name(),
            count: 2,
            last: "gone for good".to_owned(),
        };
        assert_eq!(complaints.count(), [more]);
        assert_eq!(complaints.count(), [Remark::NoMore { name: name() }]);
        assert!(fail(&mut complaints, 0, "again").is_some());
        for volume in 1..100 {
            fail(&mut complaints, volume, "a tree has many");
        }
        let others = 100 - VOLUMES_MAX as u64;
        assert_eq!(complaints.count().pop(), Some(Remark::Others(others)));
        assert_eq!(complaints.count(), []);
    }

    #[test]
    fn a_request_for_more_than_a_file_can_hold_is_no_failure_of_the_store() {
        let of = |errno| IoError::os("a write", &std::io::Error::from_raw_os_error(errno));
        let (efbig, enospc) = (of(27), of(28));
        assert!(!matters(&efbig) && matters(&enospc));
        let said = sentence(Ticket::Write(0), &enospc, enospc.kind.errno());
        assert!(
            said.ends_with("the requests concerned got ENOSPC"),
            "{said}"
        );
    }
}
