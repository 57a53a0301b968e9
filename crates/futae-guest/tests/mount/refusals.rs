//! What cannot be done, and what is said about it.

use std::fs::{File, OpenOptions, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::SystemTime;

use futae_guest::{Mount, MountError, MountOptions, ShownFile, default_file_name};

use crate::common::{MemoryStore, Place, engine, has_fuse, open, path, shown};

const EPERM: Option<i32> = Some(1);
const EROFS: Option<i32> = Some(30);
const ENOSPC: Option<i32> = Some(28);

fn start(options: &MountOptions, read_only: bool) -> Result<Mount, MountError> {
    let content = vec![0; 1_000_000];
    let store = match read_only {
        true => MemoryStore::read_only(content),
        false => MemoryStore::new(content),
    };
    let (engine, volume) = engine(store, 100);
    Mount::start(&engine, &shown(volume), options)
}

#[test]
fn the_size_cannot_change_and_nothing_is_lost() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let mount = start(&place.options(), false).expect("mounted");
    let file = open(path(&mount), false);
    file.write_all_at(&[9; 4096], 0).expect("written");
    let refused = |result: std::io::Result<()>| {
        assert_eq!(result.expect_err("refused").raw_os_error(), EPERM);
    };
    refused(file.set_len(0));
    refused(file.set_len(2_000_000));
    file.set_len(1_000_000).expect("it has that size");
    refused(File::create(path(&mount)).map(drop));
    refused(File::create(place.mountpoint().join("other")).map(drop));
    refused(std::fs::create_dir(place.mountpoint().join("other")));
    refused(std::fs::remove_file(path(&mount)));
    refused(std::fs::rename(
        path(&mount),
        place.mountpoint().join("other"),
    ));
    refused(std::fs::set_permissions(
        path(&mount),
        Permissions::from_mode(0o777),
    ));
    file.set_modified(SystemTime::UNIX_EPOCH).expect("harmless");
    // Like a disk: what fits is taken.
    assert_eq!(
        file.write_at(&[9; 4096], 999_990).expect("the last bytes"),
        10
    );
    let beyond = file
        .write_at(&[9; 10], 1_000_000)
        .expect_err("beyond the end");
    assert_eq!(beyond.raw_os_error(), ENOSPC);
    let mut bytes = [0; 8192];
    assert_eq!(file.read_at(&mut bytes, 999_990).expect("read"), 10);
    assert_eq!(file.read_at(&mut bytes, 1_000_000).expect("the end"), 0);
    assert_eq!(file.read_at(&mut bytes, 0).expect("read"), 8192);
    assert!(bytes[..4096] == [9; 4096], "nothing was destroyed");
    let attributes = file.metadata().expect("attributes");
    assert_eq!(
        (attributes.len(), attributes.permissions().mode() & 0o777),
        (1_000_000, 0o600)
    );
    drop(file);
    let names: Vec<_> = std::fs::read_dir(place.mountpoint())
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, ["volume"]);
    let space = rustix::fs::statvfs(place.mountpoint()).expect("figures");
    assert_eq!(space.f_blocks * space.f_frsize, 1_003_520);
    mount.unmount().expect("unmounted");
}

#[test]
fn a_read_only_volume_stays_as_it_is() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let mount = start(&place.options(), true).expect("mounted");
    let error = OpenOptions::new()
        .write(true)
        .open(path(&mount))
        .expect_err("read-only");
    assert_eq!(error.raw_os_error(), EROFS);
    let file = File::open(path(&mount)).expect("opened");
    let mut bytes = [1; 4096];
    file.read_exact_at(&mut bytes, 4096).expect("read");
    let mode = file.metadata().expect("attributes").permissions().mode();
    assert_eq!((bytes, mode & 0o777), ([0; 4096], 0o400));
    drop(file);
    mount.unmount().expect("unmounted");
}

#[test]
fn a_mountpoint_must_be_an_empty_directory() {
    if !has_fuse() {
        return;
    }
    let place = Place::new();
    let said = |options: &MountOptions| start(options, false).err().expect("refused").to_string();
    let mut options = place.options();
    options.mountpoint = place.folder.path().join("nowhere");
    assert!(said(&options).contains("create it"), "{}", said(&options));
    options.mountpoint = place.image(4096);
    assert!(
        said(&options).contains("not a directory"),
        "{}",
        said(&options)
    );
    options.mountpoint = place.folder.path().to_owned();
    assert!(said(&options).contains("not empty"), "{}", said(&options));
    options.mountpoint = place.mountpoint();
    let named = |names: &[&str]| {
        let (engine, volume) = engine(MemoryStore::new(vec![0; 4096]), 1);
        let named = names.iter().map(|name| ShownFile {
            volume,
            name: (*name).to_owned(),
        });
        let shown: Vec<_> = named.collect();
        let refused = Mount::start(&engine, &shown, &options).err();
        refused.expect("refused").to_string()
    };
    for name in ["", ".", "..", "a/b", "a\0b", &"x".repeat(256)] {
        assert!(named(&[name]).contains("--name"), "{}", named(&[name]));
    }
    assert!(named(&["a", "b", "a"]).contains("two files"));
    let entries = std::fs::read_dir(place.mountpoint()).expect("nothing is mounted");
    assert_eq!(entries.count(), 0);
    let gone = std::fs::metadata(place.folder.path().join("nowhere"));
    assert_eq!(gone.expect_err("not made").kind(), ErrorKind::NotFound);
}

#[test]
fn the_file_has_the_name_of_its_source() {
    let name = |source: &str| default_file_name(source.as_ref());
    assert_eq!(name("/images/disk.img"), "disk.img");
    assert_eq!(name("vm1"), "vm1");
    assert_eq!(name(""), "disk");
    assert_eq!(name("/"), "disk");
    assert_eq!(name(".."), "disk");
}
