//! How mounts end, and what is left behind.

use futae_testkit::wait::eventually;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use futae_guest::{Mount, MountError, check_mountpoint};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::common::{MemoryStore, Place, engine, has_fuse, open, path, shown};

fn mounted(place: &Place) -> (Arc<MemoryStore>, Mount) {
    let store = MemoryStore::new(vec![0; 1 << 20]);
    let (engine, volume) = engine(Arc::clone(&store) as Arc<_>, 100);
    let mount = Mount::start(&engine, &shown(volume), &place.options()).expect("mounted");
    (store, mount)
}

fn is_empty(place: &Place) -> bool {
    std::fs::read_dir(place.mountpoint())
        .expect("a directory")
        .next()
        .is_none()
}

#[test]
fn unmounting_flushes() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let (store, mount) = mounted(&place);
    let file = open(path(&mount), false);
    file.write_all_at(&[1; 4096], 0).expect("written");
    assert_eq!(store.unflushed(), 1);
    // Closing the file flushes as well; this one is still open, so the mount is busy.
    let writer = std::thread::spawn(move || {
        // Time for an unmount that does not wait to be over before this write.
        std::thread::sleep(Duration::from_millis(500));
        file.write_all_at(&[2; 4096], 8192).expect("still works");
    });
    mount.unmount().expect("unmounted");
    assert_eq!(store.content()[8192], 2, "it waited for the writer");
    assert_eq!(store.unflushed(), 0);
    writer.join().expect("written");
    assert!(is_empty(&place));
}

#[test]
fn a_flush_that_fails_at_the_end_is_told() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let (store, mount) = mounted(&place);
    let file = open(path(&mount), false);
    file.write_all_at(&[1; 4096], 0).expect("written");
    drop(file);
    store.fail(true);
    assert!(matches!(mount.unmount(), Err(MountError::Flush(_))));
    assert!(is_empty(&place));
}

#[test]
fn a_mount_that_wrote_nothing_ends_without_its_store() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let (store, mount) = mounted(&place);
    let file = open(path(&mount), false);
    file.read_exact_at(&mut [1; 4096], 0).expect("read");
    drop(file);
    store.fail(true);
    mount.unmount().expect("there is nothing to lose");
    assert!(is_empty(&place));
}

#[test]
fn a_busy_mount_is_detached() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let (_store, mount) = mounted(&place);
    let file = open(path(&mount), false);
    let ended = mount.unmount().expect("unmounted");
    assert!(ended.was_busy && ended.is_in_use);
    assert!(is_empty(&place), "out of the tree");
    drop(file);
}

#[test]
fn somebody_else_may_unmount() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let (_store, mount) = mounted(&place);
    assert!(!mount.is_over());
    match rustix::mount::unmount(place.mountpoint(), UnmountFlags::empty()) {
        Ok(()) => {}
        Err(error) => {
            return futae_testkit::need::skip(
                futae_testkit::need::Need::Root,
                &format!("umount: {error}; run as root"),
            );
        }
    }
    eventually("the end is noticed", || mount.is_over());
    mount.unmount().expect("flushed");
}

#[test]
fn a_dropped_mount_is_gone() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    drop(mounted(&place));
    assert!(is_empty(&place));
}

#[test]
fn a_dead_mount_is_cleaned_up() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    // What a killed process leaves: a mount whose device is closed.
    let device: File = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/fuse")
        .expect("the device");
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0\0",
        device.as_raw_fd()
    );
    let data = std::ffi::CStr::from_bytes_with_nul(data.as_bytes()).expect("a C string");
    let made = rustix::mount::mount(
        "dead",
        place.mountpoint(),
        "fuse",
        MountFlags::empty(),
        Some(data),
    );
    if let Err(error) = made {
        return futae_testkit::need::skip(
            futae_testkit::need::Need::Root,
            &format!("mount: {error}; run as root"),
        );
    }
    drop(device);
    assert!(std::fs::read_dir(place.mountpoint()).is_err(), "it is dead");
    check_mountpoint(&place.mountpoint()).expect("cleaned up");
    let (_store, mount) = mounted(&place);
    mount.unmount().expect("unmounted");
}
