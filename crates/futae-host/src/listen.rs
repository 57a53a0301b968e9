//! Addresses to listen on, and sockets that leave no file behind.

use crate::HostError;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::fmt;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `unix:PATH`: a socket at a path; in it, by a name of its own, if the path is a directory.
    Unix(PathBuf),
    /// `tcp:HOST:PORT`: a name or an address, and a port.
    Tcp {
        /// The host, an IPv6 address without its brackets.
        host: String,
        /// The port; 0 lets the system choose.
        port: u16,
    },
}

impl FromStr for Listen {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let bad = |problem| {
            Err(HostError::Address {
                text: text.to_owned(),
                problem,
            })
        };
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return bad("the path is missing");
            }
            return Ok(Self::Unix(path.into()));
        }
        let Some(address) = text.strip_prefix("tcp:") else {
            return bad("not an address");
        };
        let Some((host, port)) = address.rsplit_once(':') else {
            return bad("the port is missing");
        };
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        match port.parse() {
            _ if host.is_empty() => bad("the host is missing"),
            Ok(port) => Ok(Self::Tcp {
                host: host.to_owned(),
                port,
            }),
            Err(_) => bad("the port is not a number from 0 to 65535"),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

impl Listen {
    /// Starts to listen. In a directory, a unix socket is named `name_in_directory`.
    pub(crate) fn bind(&self, name_in_directory: &str) -> Result<Listener, HostError> {
        match self {
            Self::Unix(path) => {
                let path = if path.is_dir() {
                    path.join(name_in_directory)
                } else {
                    path.clone()
                };
                let (socket, file) = bind_unix(&path)?;
                let address = Self::Unix(file.path.clone());
                Ok(Listener {
                    socket,
                    address,
                    _file: Some(file),
                })
            }
            Self::Tcp { host, port } => {
                let socket = TcpListener::bind((host.as_str(), *port))
                    .map_err(|source| self.refused(source))?;
                let port = socket
                    .local_addr()
                    .map_err(|source| self.refused(source))?
                    .port();
                socket
                    .set_nonblocking(true)
                    .map_err(|source| self.refused(source))?;
                let address = Self::Tcp {
                    host: host.clone(),
                    port,
                };
                Ok(Listener {
                    socket: socket.into(),
                    address,
                    _file: None,
                })
            }
        }
    }

    fn refused(&self, source: io::Error) -> HostError {
        let address = self.to_string();
        match source.kind() {
            io::ErrorKind::AddrInUse => HostError::InUse { address },
            _ => HostError::Listen { address, source },
        }
    }
}

/// A socket that accepts connections; never waits.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: OwnedFd,
    /// Where it really is: the port chosen, the path completed.
    pub(crate) address: Listen,
    _file: Option<SocketFile>,
}

impl Listener {
    pub(crate) fn is_tcp(&self) -> bool {
        matches!(self.address, Listen::Tcp { .. })
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The file of a unix socket, removed with it; unless somebody has put another in its place.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn bind_unix(path: &Path) -> Result<(OwnedFd, SocketFile), HostError> {
    let address = Listen::Unix(path.to_owned());
    let socket = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            clear_stale(path)?;
            UnixListener::bind(path)
        }
        other => other,
    };
    let socket = socket.map_err(|source| address.refused(source))?;
    let found = fs::symlink_metadata(path).map_err(|source| address.refused(source))?;
    // A relative path must still be found at the end, wherever the process has gone.
    let path = std::path::absolute(path).map_err(|source| address.refused(source))?;
    let file = SocketFile {
        path,
        device: found.dev(),
        inode: found.ino(),
    };
    socket
        .set_nonblocking(true)
        .map_err(|source| address.refused(source))?;
    Ok((socket.into(), file))
}

/// Removes a socket at which nobody answers, left by a server that was killed.
fn clear_stale(path: &Path) -> Result<(), HostError> {
    let address = Listen::Unix(path.to_owned());
    let found = fs::symlink_metadata(path).map_err(|source| address.refused(source))?;
    if !found.file_type().is_socket() {
        return Err(HostError::NotASocket {
            path: path.to_owned(),
        });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(|source| address.refused(source))
        }
        _ => Err(HostError::InUse {
            address: address.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["unix:/run/futae.sock", "tcp:localhost:10809", "tcp:[::1]:0"] {
            assert_eq!(text.parse::<Listen>().expect("valid").to_string(), text);
        }
        for text in [
            "",
            "unix:",
            "tcp:",
            "tcp:host",
            "tcp::1",
            "tcp:host:65536",
            "/run/x",
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_dead_socket_is_replaced_a_living_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let listen = Listen::Unix(directory.path().to_owned());
        let path = directory.path().join("x.sock");
        drop(UnixListener::bind(&path).expect("bind")); // leaves its file behind
        let listener = listen.bind("x.sock").expect("the dead one is replaced");
        let error = listen.bind("x.sock").expect_err("in use");
        assert!(error.to_string().contains("in use"), "{error}");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_in_the_way_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        fs::write(&path, "precious").expect("write");
        let error = Listen::Unix(path.clone())
            .bind("")
            .expect_err("not a socket");
        assert!(error.to_string().contains("not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "precious");
    }

    #[test]
    fn a_socket_of_another_server_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.sock");
        let ours = Listen::Unix(path.clone()).bind("").expect("bind");
        fs::remove_file(&path).expect("remove");
        let _theirs = UnixListener::bind(&path).expect("bind");
        drop(ours);
        assert!(path.exists());
    }
}
