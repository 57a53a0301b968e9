//! A small disk of an experiment's own: ext4 on a loop device, so that what reading it costs can be
//! said.

use anyhow::{Context, anyhow};
use futae_terminal::failure::Failure;
use rustix::mount::{UnmountFlags, unmount};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A mounted disk, unmounted at the end.
pub struct Disk {
    path: PathBuf,
    device: String,
}

impl Disk {
    /// Makes an image of this many bytes at `image`, and mounts it at `path`, which must be an empty
    /// directory.
    pub fn new(image: &Path, bytes: u64, path: &Path) -> Result<Self, Failure> {
        if !rustix::process::geteuid().is_root() {
            return Err(anyhow!("this experiment needs root, for a disk of its own").into());
        }
        let file = File::create(image).with_context(|| image.display().to_string())?;
        file.set_len(bytes)?;
        let mkfs = run("mkfs.ext4", |mkfs| mkfs.args(["-q", "-F"]).arg(image));
        mkfs.context("needs mkfs.ext4 (Debian: e2fsprogs), and space where TMPDIR is")?;
        // Past the page cache below, so that nothing is kept where nothing bounds it.
        let device = run("losetup", |losetup| {
            losetup
                .args(["--find", "--show", "--direct-io=on"])
                .arg(image)
        })?;
        let device = device.trim();
        let mounted = run("mount", |mount| mount.arg(device).arg(path));
        // From now on it lives as long as it is mounted.
        run("losetup", |losetup| losetup.args(["--detach", device]))?;
        mounted?;
        let id = fs::metadata(path).map(|metadata| metadata.dev())?;
        let (major, minor) = (rustix::fs::major(id), rustix::fs::minor(id));
        Ok(Self {
            path: path.to_owned(),
            device: format!("{major}:{minor}"),
        })
    }

    /// From now on what is opened on it is read as it is asked for, and nothing ahead.
    pub fn without_read_ahead(self) -> Result<Self, Failure> {
        let path = format!("/sys/dev/block/{}/queue/read_ahead_kb", self.device);
        fs::write(&path, "0").with_context(|| path.clone())?;
        Ok(self)
    }

    /// Its device, as `major:minor`.
    pub fn device(&self) -> &str {
        &self.device
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // If it is still in use, it goes with its last user; there is nobody to tell.
        let _ = unmount(&self.path, UnmountFlags::DETACH);
    }
}

fn run(tool: &str, arguments: impl FnOnce(&mut Command) -> &mut Command) -> anyhow::Result<String> {
    let mut command = Command::new(tool);
    let output = arguments(&mut command).output();
    let output = output.with_context(|| format!("{tool} cannot be started"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(anyhow!(
            "{tool}, for a disk of the experiment's own: {}",
            said.trim()
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
