//! A loop device over the file, and a file system on that.

use std::path::Path;
use std::process::Command;

use crate::common::{Place, has_fuse, mount_image, path, tool};

/// A loop device, released at the end.
struct Loop(String);

impl Drop for Loop {
    fn drop(&mut self) {
        drop(Command::new("losetup").args(["-d", &self.0]).output());
    }
}

/// A mount of the loop device, detached at the end.
struct Inner<'p>(&'p Path);

impl Drop for Inner<'_> {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.0).output());
    }
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = tool(program, arguments).expect("it was there before");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{errors}"
    );
    text
}

#[test]
fn a_file_system_lives_on_a_loop_device() {
    if !has_fuse() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return futae_testkit::need::skip(
            futae_testkit::need::Need::Root,
            "loop devices need root",
        );
    }
    let tools = [
        ("losetup", "--version"),
        ("mkfs.ext4", "-V"),
        ("fsck.ext4", "-V"),
        ("umount", "-V"),
    ];
    if tools
        .iter()
        .any(|(program, option)| tool(program, &[option]).is_none())
    {
        return;
    }
    for direct in ["off", "on"] {
        let place = Place::new();
        let image = place.image(64 << 20);
        let (_engine, mount) = mount_image(&place, &image, 1000, &place.options());
        let path = path(&mount).to_string_lossy().into_owned();
        let direct_io = format!("--direct-io={direct}");
        let Some(output) = tool("losetup", &["-f", "--show", &direct_io, &path]) else {
            return;
        };
        if !output.status.success() {
            let why = String::from_utf8_lossy(&output.stderr);
            return futae_testkit::need::skip(
                futae_testkit::need::Need::Loop,
                &format!("no loop device: {why}"),
            );
        }
        let device = Loop(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        run("mkfs.ext4", &["-q", &device.0]);
        let inner = place.folder.path().join("inner");
        std::fs::create_dir(&inner).expect("a mountpoint");
        run("mount", &[&device.0, &inner.to_string_lossy()]);
        let guard = Inner(&inner);
        let data: Vec<u8> = (0..5 << 20u32).map(|at| (at >> 8) as u8).collect();
        for number in 0..4 {
            std::fs::write(inner.join(format!("file{number}")), &data).expect("written");
        }
        std::fs::remove_file(inner.join("file1")).expect("removed");
        futae_testkit::unmount::unmount(&inner);
        run("mount", &[&device.0, &inner.to_string_lossy()]);
        assert!(std::fs::read(inner.join("file3")).expect("read") == data);
        futae_testkit::unmount::unmount(&inner);
        drop(guard);
        run("fsck.ext4", &["-fn", &device.0]);
        drop(device);
        mount.unmount().expect("unmounted");
        // The image by itself, without any cache.
        run("fsck.ext4", &["-fn", &image.to_string_lossy()]);
    }
}
