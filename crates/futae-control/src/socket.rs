//! Unix sockets that leave no file behind.

use crate::Access;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock, fstat, open};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with,
};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted, at most; the system may allow fewer.
const BACKLOG: i32 = 1024;

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
    #[error("unix:{}: cannot listen", path.display())]
    Listen {
        /// The path.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
    /// The socket cannot be given its mode, owner or group.
    #[error("unix:{}: cannot give the socket its mode, owner or group", path.display())]
    Access {
        /// The path.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// A unix socket that accepts connections and never waits. Its file is removed with it; one that
/// was left by a program that was killed is replaced. A socket that systemd passes for the path is used in place of a new one;
/// its file, mode and owner are those of its unit.
#[derive(Debug)]
pub struct UnixSocket {
    socket: OwnedFd,
    path: PathBuf,
    /// None of a socket that systemd has passed.
    _file: Option<SocketFile>,
}

impl UnixSocket {
    /// Listens at `path`, or by `name_in_directory` in it if it is a directory. Only the user that runs
    /// the program may connect.
    ///
    /// # Errors
    ///
    /// [`SocketError`]; whatever is at the path stays there then.
    pub fn bind(path: &Path, name_in_directory: &str) -> Result<Self, SocketError> {
        Self::bind_for(path, name_in_directory, &Access::default())
    }

    /// The same for those to whom `access` is given; at no moment may others connect.
    ///
    /// # Errors
    ///
    /// As of [`Self::bind`], and if the mode, the owner or the group cannot be set.
    pub fn bind_for(
        path: &Path,
        name_in_directory: &str,
        access: &Access,
    ) -> Result<Self, SocketError> {
        let path = completed(path, name_in_directory);
        let refused = |source| SocketError::refused(&path, source);
        if let Some(socket) = futae_systemd::take_unix(&path) {
            let path = std::path::absolute(&path).map_err(refused)?;
            return Ok(Self {
                socket,
                path,
                _file: None,
            });
        }
        let _turn = Turn::take(&path)?;
        let socket = match bind_at(&path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                clear_stale(&path)?;
                bind_at(&path)
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
        let denied = |source| SocketError::Access {
            path: path.clone(),
            source,
        };
        access.apply(&path).map_err(denied)?;
        listen(&socket, BACKLOG).map_err(|errno| refused(errno.into()))?;
        Ok(Self {
            socket,
            path: file.path.clone(),
            _file: Some(file),
        })
    }

    /// Whether a socket could be made there as by [`Self::bind`], without making one. One that is in use is no error.
    ///
    /// # Errors
    ///
    /// As of [`Self::bind`], as far as the path shows them.
    pub fn check(path: &Path, name_in_directory: &str) -> Result<(), SocketError> {
        let path = completed(path, name_in_directory);
        let refused = |source| SocketError::refused(&path, source);
        address_of(&path).map_err(refused)?;
        let directory = path.parent().filter(|it| !it.as_os_str().is_empty());
        if let Some(directory) = directory.filter(|it| !it.is_dir()) {
            let problem = format!("there is no directory {}", directory.display());
            return Err(refused(io::Error::new(io::ErrorKind::NotFound, problem)));
        }
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.file_type().is_socket() => Err(SocketError::NotASocket { path }),
            _ => Ok(()),
        }
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
        &self.path
    }
}

impl AsFd for UnixSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The file of a unix socket. It is removed with the socket, unless another program has replaced it.
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

/// The right to make a socket at a path. A socket that is bound and does not listen yet refuses connections, as one of a killed
/// server does. So a server has this right before it removes a dead socket, and from before it binds its own until that listens.
struct Turn {
    /// A file beside the socket, which is locked.
    path: PathBuf,
    _file: OwnedFd,
}

impl Turn {
    fn take(socket: &Path) -> Result<Self, SocketError> {
        let refused = |errno: Errno| SocketError::refused(socket, errno.into());
        let mut name = OsString::from(".");
        name.push(socket.file_name().unwrap_or_default());
        name.push(".lock");
        let path = socket.with_file_name(name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        loop {
            let file = open(&path, flags, Mode::RUSR | Mode::WUSR).map_err(refused)?;
            if let Err(Errno::WOULDBLOCK) = flock(&file, FlockOperation::NonBlockingLockExclusive) {
                let path = socket.to_owned();
                return Err(SocketError::InUse { path });
            }
            let locked = fstat(&file).map_err(refused)?;
            let is_there = fs::symlink_metadata(&path)
                .is_ok_and(|found| (found.dev(), found.ino()) == (locked.st_dev, locked.st_ino));
            // Otherwise somebody had it, and has removed it since it was opened.
            if is_there {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Still locked: who has opened it sees that it is gone.
        let _ = fs::remove_file(&self.path);
    }
}

/// The path of the socket itself: a directory is completed by `name_in_directory`.
fn completed(path: &Path, name_in_directory: &str) -> PathBuf {
    if path.is_dir() {
        path.join(name_in_directory)
    } else {
        path.to_owned()
    }
}

fn address_of(path: &Path) -> io::Result<SocketAddrUnix> {
    SocketAddrUnix::new(path).map_err(|errno| match errno {
        Errno::NAMETOOLONG => io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path of a socket has at most 107 bytes",
        ),
        other => other.into(),
    })
}

/// A socket bound to `path` that does not listen yet, with mode 0600.
fn bind_at(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    // The file gets the socket's mode, less the umask.
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &address_of(path)?)?;
    Ok(socket)
}

/// Removes a dead socket that a killed server left behind.
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
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

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
    fn a_socket_that_does_not_listen_yet_is_not_taken_for_a_dead_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.sock");
        let turn = Turn::take(&path).expect("it is free");
        let bound = bind_at(&path).expect("bound");
        let inode = || fs::metadata(&path).expect("there").ino();
        let before = inode();
        let error = UnixSocket::bind(&path, "").expect_err("another server is about to listen");
        assert!(matches!(error, SocketError::InUse { .. }), "{error}");
        assert_eq!(inode(), before);
        drop((turn, bound));
        let socket = UnixSocket::bind(&path, "").expect("that one has ended");
        let left = fs::read_dir(directory.path()).expect("a list").count();
        assert_eq!(left, 1, "only the socket");
        drop(socket);
    }

    #[test]
    fn a_file_in_the_way_stays() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("data");
        fs::write(&path, "precious").expect("write");
        let error = UnixSocket::bind(&path, "").expect_err("not a socket");
        assert!(error.to_string().contains("not a socket"), "{error}");
        assert_eq!(fs::read_to_string(&path).expect("read"), "precious");
        let foreseen = UnixSocket::check(&path, "").expect_err("not a socket");
        assert_eq!(foreseen.to_string(), error.to_string());
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

    #[test]
    fn a_socket_has_its_mode_and_group_whatever_the_umask() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("x.sock");
        let mode = |access: &Access| {
            let _socket = UnixSocket::bind_for(&path, "", access).expect("bind");
            fs::metadata(&path).expect("there").permissions().mode() & 0o777
        };
        assert_eq!(mode(&Access::default()), 0o600);
        let group = rustix::process::getgid().as_raw();
        let open = Access {
            mode: 0o666,
            group: Some(group),
            ..Access::default()
        };
        assert_eq!(mode(&open), 0o666);
    }

    #[test]
    fn a_problem_is_told_once() {
        let error = UnixSocket::bind(Path::new("/no such directory/x.sock"), "");
        let error = anyhow_chain(&error.expect_err("no directory"));
        assert_eq!(error.matches("No such file").count(), 1, "{error}");
    }

    /// The error and its sources, as a command prints them.
    fn anyhow_chain(error: &dyn std::error::Error) -> String {
        let next = error.source().map(anyhow_chain);
        next.map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
    }
}
