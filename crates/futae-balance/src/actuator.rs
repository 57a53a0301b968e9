//! What makes a guest larger or smaller, and says how large it is.

mod cgroup;
mod qmp;
mod share;
pub(crate) mod virsh;

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a guest may take to answer.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// By what a guest's memory is changed.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum Actuator {
    /// QEMU's balloon, over its monitor.
    Qmp {
        /// The unix socket of the monitor (`-qmp unix:PATH,server=on,wait=off`).
        socket: PathBuf,
    },
    /// libvirt, by `virsh setmem`.
    Virsh {
        /// The domain.
        domain: String,
        /// The hypervisor; none: virsh's own choice.
        uri: Option<String>,
    },
    /// A memory cgroup of version 1: `memory.limit_in_bytes`.
    Cgroup1 {
        /// Its directory.
        path: PathBuf,
    },
    /// A cgroup of version 2: `memory.high`.
    Cgroup2 {
        /// Its directory.
        path: PathBuf,
    },
    /// An export's share of the cache of a `futae serve`.
    Share {
        /// The server's control socket.
        control: PathBuf,
        /// The export.
        export: String,
    },
}

impl fmt::Display for Actuator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Qmp { socket } => write!(formatter, "the monitor {}", socket.display()),
            Self::Virsh { domain, .. } => write!(formatter, "virsh domain {domain}"),
            Self::Cgroup1 { path } | Self::Cgroup2 { path } => {
                write!(formatter, "the cgroup {}", path.display())
            }
            Self::Share { control, export } => {
                write!(formatter, "share {export} of {}", control.display())
            }
        }
    }
}

impl Actuator {
    /// Whether both change the same memory, however they are written.
    pub(crate) fn is_that_of(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Qmp { socket: one }, Self::Qmp { socket: other })
            | (Self::Cgroup1 { path: one }, Self::Cgroup1 { path: other })
            | (Self::Cgroup2 { path: one }, Self::Cgroup2 { path: other }) => {
                real(one) == real(other)
            }
            (
                Self::Virsh { domain, uri },
                Self::Virsh {
                    domain: other,
                    uri: its,
                },
            ) => {
                // The hypervisor of one that does not say it is most likely that of the other.
                domain == other && (uri.is_none() || its.is_none() || uri == its)
            }
            (
                Self::Share { control, export },
                Self::Share {
                    control: its,
                    export: other,
                },
            ) => export == other && real(control) == real(its),
            _ => false,
        }
    }

    /// Bytes that the guest has in fact.
    ///
    /// # Errors
    ///
    /// Why that cannot be read, in a sentence.
    pub fn achieved(&self) -> Result<u64, String> {
        match self {
            Self::Qmp { socket } => qmp::achieved(socket, TIMEOUT),
            Self::Virsh { domain, uri } => virsh::achieved(domain, uri.as_deref(), TIMEOUT),
            Self::Cgroup1 { path } => cgroup::achieved_v1(path),
            Self::Cgroup2 { path } => cgroup::achieved_v2(path),
            Self::Share { control, export } => {
                share::status(control, export, TIMEOUT).map(|one| one.bytes)
            }
        }
    }

    /// Tells it to have this many bytes. It may take a while to get there.
    ///
    /// # Errors
    ///
    /// Why it was not told, in a sentence.
    pub fn order(&self, bytes: u64) -> Result<(), String> {
        match self {
            Self::Qmp { socket } => qmp::order(socket, bytes, TIMEOUT),
            Self::Virsh { domain, uri } => virsh::order(domain, uri.as_deref(), bytes, TIMEOUT),
            Self::Cgroup1 { path } => cgroup::order(path, cgroup::LIMIT_V1, &bytes.to_string()),
            Self::Cgroup2 { path } => cgroup::order(path, cgroup::HIGH_V2, &bytes.to_string()),
            Self::Share { control, export } => share::order(control, export, bytes, TIMEOUT),
        }
    }

    /// Whether the host gets the pages that the guest frees (free page reporting); none where there is no balloon, or nobody says.
    pub(crate) fn reports_free_pages(&self) -> Option<bool> {
        let told = match self {
            Self::Qmp { socket } => qmp::reports_free_pages(socket, TIMEOUT),
            Self::Virsh { domain, uri } => {
                virsh::reports_free_pages(domain, uri.as_deref(), TIMEOUT)
            }
            Self::Cgroup1 { .. } | Self::Cgroup2 { .. } | Self::Share { .. } => Ok(None),
        };
        told.ok().flatten()
    }

    /// What must be told to have it as it is now: more than a size where there was no limit.
    pub(crate) fn remember(&self) -> Option<String> {
        match self {
            Self::Cgroup1 { path } => cgroup::text(path, cgroup::LIMIT_V1).ok(),
            Self::Cgroup2 { path } => cgroup::text(path, cgroup::HIGH_V2).ok(),
            _ => self.achieved().ok().map(|bytes| bytes.to_string()),
        }
    }

    /// Has it as it was when [`Self::remember`] said this.
    pub(crate) fn restore(&self, remembered: &str) -> Result<(), String> {
        match self {
            Self::Cgroup1 { path } => {
                // The kernel shows no limit as a number that it rounds when told.
                let unlimited = remembered.len() >= 19;
                let value = if unlimited { "-1" } else { remembered };
                cgroup::order(path, cgroup::LIMIT_V1, value)
            }
            Self::Cgroup2 { path } => cgroup::order(path, cgroup::HIGH_V2, remembered),
            _ => self.order(
                remembered
                    .parse()
                    .map_err(|_| "it had no size".to_owned())?,
            ),
        }
    }

    /// What a share's guest asked for since the server began, and what was found: a share needs no
    /// agent to be heard.
    pub(crate) fn requests(&self) -> Option<(u64, u64)> {
        match self {
            Self::Share { control, export } => {
                let status = share::status(control, export, TIMEOUT).ok()?;
                Some((status.requests, status.hits))
            }
            _ => None,
        }
    }
}

/// Where a path leads to. What is not there yet, such as the socket of a guest that does not run, has a directory mostly.
fn real(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let in_directory = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    let found = path.canonicalize().ok().or_else(in_directory);
    found.unwrap_or(path)
}
