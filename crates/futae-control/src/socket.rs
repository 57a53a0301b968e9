//! Unix sockets that leave no file behind.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{SocketFlags, accept_with};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why a socket cannot be listened on.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Somebody listens there already.
    #[error("unix:{}: socket in use; stop the server that answers there or listen elsewhere", path.display())]
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The path is taken by something else.
    #[error("{}: exists and is not a socket; remove it or listen elsewhere", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The operating system does not let us listen.
    #[error("unix:{}: cannot listen: {source}", path.display())]
    Listen {
        /// The path.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// A unix socket that accepts connections and never waits. Its file is removed with it; one that
/// was left by a program that was killed is replaced.
#[derive(Debug)]
pub struct UnixSocket {
    socket: OwnedFd,
    file: SocketFile,
}

impl UnixSocket {
    /// Listens at `path`, or by `name_in_directory` in it if it is a directory.
    ///
    /// # Errors
    ///
    /// [`SocketError`]; whatever is at the path stays there then.
    pub fn bind(path: &Path, name_in_directory: &str) -> Result<Self, SocketError> {
        let path = if path.is_dir() {
            path.join(name_in_directory)
        } else {
            path.to_owned()
        };
        let refused = |source| SocketError::refused(&path, source);
        let socket = match UnixListener::bind(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                clear_stale(&path)?;
                UnixListener::bind(&path)
            }
            other => other,
        };
        let socket = socket.map_err(refused)?;
        let found = fs::symlink_metadata(&path).map_err(refused)?;
        let file = SocketFile {
            // A relative path must still be found at the end, wherever the process has gone.
            path: std::path::absolute(&path).map_err(refused)?,
            device: found.dev(),
            inode: found.ino(),
        };
        socket.set_nonblocking(true).map_err(refused)?;
        let socket = socket.into();
        Ok(Self { socket, file })
    }

    /// The next connection; an error of the kind "would block" if there is none yet.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    pub fn accept(&self) -> io::Result<UnixStream> {
        Ok(accept_with(self, SocketFlags::CLOEXEC)?.into())
    }

    /// Where it really is: absolute, and completed in a directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.file.path
    }
}

impl AsFd for UnixSocket {
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

impl SocketError {
    fn refused(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::AddrInUse => Self::InUse { path },
            _ => Self::Listen { path, source },
        }
    }
}

/// Removes a socket at which nobody answers, left by a server that was killed.
fn clear_stale(path: &Path) -> Result<(), SocketError> {
    let refused = |source| SocketError::refused(path, source);
    let found = fs::symlink_metadata(path).map_err(refused)?;
    if !found.file_type().is_socket() {
        return Err(SocketError::NotASocket {
            path: path.to_owned(),
        });
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(refused)
        }
        _ => Err(SocketError::InUse {
            path: path.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_socket_is_replaced_a_living_one_is_not() {
        let directory = tempfile::tempdir().expect("a directory");
        let bind = || UnixSocket::bind(directory.path(), "x.sock");
        let path = directory.path().join("x.sock");
        drop(UnixListener::bind(&path).expect("bind")); // leaves its file behind
        let listener = bind().expect("the dead one is replaced");
        let error = bind().expect_err("in use");
        assert!(error.to_string().contains("in use"), "{error}");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_in_the_way_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        fs::write(&path, "precious").expect("write");
        let error = UnixSocket::bind(&path, "").expect_err("not a socket");
        assert!(error.to_string().contains("not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "precious");
    }

    #[test]
    fn a_socket_of_another_server_is_left_alone() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.sock");
        let ours = UnixSocket::bind(&path, "").expect("bind");
        fs::remove_file(&path).expect("remove");
        let _theirs = UnixListener::bind(&path).expect("bind");
        drop(ours);
        assert!(path.exists());
    }
}
