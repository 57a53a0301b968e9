//! What an agent says about the page cache of its machine, on a file system that is really mounted.

use futae_agent::proc;
use futae_testkit::need::{Need, skip};
use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

/// The least that `mkfs.xfs` accepts.
const IMAGE_BYTES: u64 = 300 << 20;

/// A loop device, detached at the end.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-q", &self.0]).output();
        let _ = Command::new("losetup").args(["--detach", &self.0]).output();
    }
}

/// None where the program is missing.
fn run(program: &str, arguments: &[&str]) -> Option<Output> {
    let output = Command::new(program).args(arguments).output().ok()?;
    assert!(output.status.success(), "{program}: {output:?}");
    Some(output)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("ASCII")
}

#[test]
fn a_disk_has_large_folios_while_xfs_is_mounted_from_it() {
    let folder = tempfile::tempdir().expect("a directory");
    let image = folder.path().join("image");
    let file = File::create(&image).expect("an image");
    file.set_len(IMAGE_BYTES).expect("a hole");
    if run("mkfs.xfs", &["-q", text(&image)]).is_none() {
        return skip(Need::Tools, "no mkfs.xfs");
    }
    let mut losetup = Command::new("losetup");
    let attached = losetup.args(["--find", "--show", text(&image)]).output();
    let Some(attached) = attached.ok().filter(|attached| attached.status.success()) else {
        return skip(Need::Loop, "losetup attaches nothing");
    };
    let device = String::from_utf8(attached.stdout).expect("ASCII");
    let device = Loop(device.trim().to_owned());
    let name = device.0.trim_start_matches("/dev/");
    let mut disks = proc::disks();
    disks.retain(|disk| disk.name == name);
    assert_eq!(disks.len(), 1, "{name}");
    let has_large_folios = || proc::page_cache(&disks).large_folios;
    assert!(!has_large_folios());
    let place = folder.path().join("place");
    std::fs::create_dir(&place).expect("a directory");
    run("mount", &[&device.0, text(&place)]).expect("mount");
    assert!(has_large_folios());
    run("umount", &[text(&place)]).expect("umount");
    assert!(!has_large_folios());
}
