//! Debian's packages: downloaded once, unpacked into a cache, never installed.

use crate::error::{GuestError, file, host};
use rustix::fs::{FlockOperation, flock};
use std::env;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel for guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// Linux 6.1, the kernel of Debian 12.
    Debian61,
    /// Linux 6.12, the kernel of Debian 13, also among Debian 12's security updates.
    Debian612,
}

impl Kernel {
    /// What the names of its packages begin with.
    fn prefix(self) -> &'static str {
        match self {
            Self::Debian61 => "linux-image-6.1.",
            Self::Debian612 => "linux-image-6.12.",
        }
    }

    fn is_name(self, name: &str) -> bool {
        let rest = name.strip_prefix(self.prefix());
        rest.and_then(|rest| rest.strip_suffix("-cloud-amd64"))
            .is_some_and(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    }
}

/// Where packages are kept if nothing else is said: `FUTAE_GUEST_CACHE`, or `futae/guest` in the
/// user's cache directory.
#[must_use]
pub fn default_cache() -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = set("FUTAE_GUEST_CACHE") {
        return path.into();
    }
    let users = set("XDG_CACHE_HOME").map(PathBuf::from);
    let users = users.or_else(|| Some(PathBuf::from(set("HOME")?).join(".cache")));
    users.unwrap_or_else(env::temp_dir).join("futae/guest")
}

/// Unpacked packages in a directory, which is locked while this exists.
pub struct Packages {
    place: PathBuf,
    _lock: File,
}

impl Packages {
    /// Opens or makes the cache; waits for a process that fills it.
    pub fn open(place: &Path) -> Result<Self, GuestError> {
        fs::create_dir_all(place).map_err(file(place))?;
        let path = place.join("lock");
        let lock = File::create(&path).map_err(file(&path))?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| file(&path)(error.into()))?;
        Ok(Self {
            place: place.to_owned(),
            _lock: lock,
        })
    }

    /// The newest package of a kernel, unpacked.
    pub fn kernel(&self, kernel: Kernel) -> Result<PathBuf, GuestError> {
        let entries = fs::read_dir(&self.place).map_err(file(&self.place))?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        if let Some(name) = newest(names.filter(|name| kernel.is_name(name))) {
            return Ok(self.place.join(name));
        }
        let known = output(Command::new("apt-cache").args(["pkgnames", kernel.prefix()]))?;
        let known = known.lines().map(str::to_owned);
        let Some(name) = newest(known.filter(|name| kernel.is_name(name))) else {
            let prefix = kernel.prefix();
            let message = format!("apt knows no package {prefix}*-cloud-amd64");
            return Err(GuestError::Missing(message));
        };
        self.get(&name)
    }

    /// Busybox, linked statically.
    pub fn busybox(&self) -> Result<PathBuf, GuestError> {
        let package = self.get("busybox-static")?;
        let places = ["bin/busybox", "usr/bin/busybox"].map(|place| package.join(place));
        let found = places.into_iter().find(|path| path.is_file());
        found.ok_or_else(|| GuestError::Missing("busybox-static has no busybox".to_owned()))
    }

    /// A package, unpacked.
    fn get(&self, name: &str) -> Result<PathBuf, GuestError> {
        let place = self.place.join(name);
        if place.is_dir() {
            return Ok(place);
        }
        let work = tempfile::tempdir_in(&self.place).map_err(file(&self.place))?;
        let mut download = Command::new("apt-get");
        // As root it would otherwise complain that its own user cannot write here.
        download.args(["download", "--quiet", "-o", "APT::Sandbox::User=root", name]);
        output(download.current_dir(work.path()))?;
        let entries = fs::read_dir(work.path()).map_err(file(work.path()))?;
        let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let archive = paths.find(|path| path.extension().is_some_and(|end| end == "deb"));
        let archive = archive.ok_or_else(|| {
            GuestError::Missing(format!("apt-get download {name} brought no package"))
        })?;
        let unpacked = work.path().join("unpacked");
        output(Command::new("dpkg").arg("-x").arg(&archive).arg(&unpacked))?;
        fs::rename(&unpacked, &place).map_err(file(&place))?;
        Ok(place)
    }
}

/// The package with the highest version in its name.
fn newest(names: impl Iterator<Item = String>) -> Option<String> {
    names.max_by_key(|name| numbers(name))
}

/// The numbers in a name, in their order.
fn numbers(name: &str) -> Vec<u64> {
    let parts = name.split(|c: char| !c.is_ascii_digit());
    parts.filter_map(|digits| digits.parse().ok()).collect()
}

/// What a program prints.
fn output(command: &mut Command) -> Result<String, GuestError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(GuestError::Missing(format!("{name} is not installed")));
        }
        done => done.map_err(host(format!("{name} cannot be started")))?,
    };
    if !done.status.success() {
        let why = String::from_utf8_lossy(&done.stderr);
        let why = why.trim().lines().next_back().unwrap_or_default();
        return Err(GuestError::Missing(format!("{name}: {why}")));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_of_the_right_kernels_is_taken() {
        let names = [
            "linux-image-6.12.99+deb12-cloud-amd64",
            "linux-image-6.12.117+deb12-cloud-amd64",
            "linux-image-6.12.118+deb12-cloud-amd64-unsigned",
            "linux-image-6.12-cloud-amd64",
            "linux-image-6.1.0-56-cloud-amd64",
            "linux-image-6.1.0-9-cloud-amd64",
        ];
        let of = |kernel: Kernel| {
            let names = names.iter().filter(|name| kernel.is_name(name));
            newest(names.map(|&name| name.to_owned()))
        };
        assert_eq!(of(Kernel::Debian61).as_deref(), Some(names[4]));
        assert_eq!(of(Kernel::Debian612).as_deref(), Some(names[1]));
    }
}
