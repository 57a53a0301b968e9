//! A mount that has ended, or was detached, leaves alone what is mounted in its place later.

use futae_tests::process::Running;
use futae_tests::stage::{detach, is_mountpoint};
use futae_tests::tools::{has_fuse, has_root};
use futae_tests::tree::Tree;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::File;

fn mounted(tree: &Tree) -> Running {
    let mut running = Running::start("futae mount", tree.command(&["--cache", "1MiB"]));
    running.line();
    running
}

/// Another file system in its place.
fn mount_other(tree: &Tree) {
    let data: Option<&std::ffi::CStr> = None;
    let other = mount(
        "other",
        &tree.mountpoint,
        "tmpfs",
        MountFlags::empty(),
        data,
    );
    other.expect("mounted");
}

#[test]
fn what_is_mounted_after_an_unmount_stays() {
    if !has_fuse() || !has_root() {
        return;
    }
    let tree = Tree::new();
    let mut running = mounted(&tree);
    // As on a busy machine, it learns late of its end.
    running.hold_up();
    unmount(&tree.mountpoint, UnmountFlags::empty()).expect("unmounted");
    mount_other(&tree);
    running.go_on();
    let ended = running.wait();
    assert!(ended.status.success(), "{}", ended.errors);
    assert!(is_mountpoint(&tree.mountpoint), "it was taken away");
    detach(&tree.mountpoint);
}

#[test]
fn what_is_mounted_after_a_detachment_stays() {
    if !has_fuse() || !has_root() {
        return;
    }
    let tree = Tree::new();
    std::fs::write(tree.lower("file"), "data").expect("a file");
    let mut running = mounted(&tree);
    let file = File::open(tree.upper("file")).expect("opened");
    unmount(&tree.mountpoint, UnmountFlags::DETACH).expect("detached");
    mount_other(&tree);
    assert!(running.is_running(), "the file is open");
    let ended = running.stop();
    assert!(ended.status.success(), "{}", ended.errors);
    assert!(is_mountpoint(&tree.mountpoint), "it was taken away");
    drop(file);
    detach(&tree.mountpoint);
}
