//! What another program has written in the source directory is seen, also if the next that this mount does to the file is a change
//! of attributes, of names or of the size.

use futae_testkit::wait::later_file_time;
use futae_tests::kernel_pages;
use futae_tests::tools::{has_fuse, has_root};
use futae_tests::tree::{Tree, read};
use futae_tests::{LATE, cached};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Timespec, Timestamps, UTIME_NOW, XattrFlags, fallocate,
    fsetxattr, utimensat,
};
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::time::SystemTime;

const BYTES: usize = 40_960;

/// Whether the other program gives the file its former time of modification again, and a change by this mount: it has the
/// file open and knows its path. None of them asks the kernel for the attributes before.
type Change = (&'static str, bool, fn(&File, &Path));

const CHANGES: [Change; 9] = [
    ("touch", false, |_, path| {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_NOW,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        utimensat(CWD, path, &times, AtFlags::empty()).expect("set");
    }),
    ("futimens", false, |file, _| {
        file.set_modified(SystemTime::now()).expect("set");
    }),
    ("allocate", false, |file, _| {
        fallocate(file, FallocateFlags::KEEP_SIZE, 0, 4096).expect("allocated");
    }),
    ("punch", false, |file, _| {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(file, how, 8192, 4096).expect("punched");
    }),
    ("cut", false, |file, _| file.set_len(20_000).expect("cut")),
    ("lengthen", false, |file, _| {
        file.set_len(50_000).expect("longer");
    }),
    ("chmod", true, |file, _| {
        let mode = Permissions::from_mode(0o600);
        file.set_permissions(mode).expect("set");
    }),
    ("attribute", true, |file, _| {
        fsetxattr(file, "user.a", b"b", XattrFlags::empty()).expect("set");
    }),
    ("rename", true, |_, path| {
        fs::rename(path, path.with_extension("moved")).expect("renamed");
        fs::rename(path.with_extension("moved"), path).expect("renamed");
    }),
];

fn followed(words: &[&str]) {
    if !has_fuse() || !has_root() {
        return;
    }
    let mut tree = Tree::new();
    for (name, ..) in CHANGES {
        fs::write(tree.lower(name), vec![1; BYTES]).expect("a file");
    }
    tree.mount(words);
    let mut hidden = Vec::new();
    for (name, hides, change) in CHANGES {
        let (lower, upper) = (tree.lower(name), tree.upper(name));
        assert_eq!(read(&upper), vec![1; BYTES]);
        let file = OpenOptions::new().read(true).write(true).open(&upper);
        let file = file.expect("opened");
        let below = OpenOptions::new().write(true).open(&lower);
        let below = below.expect("opened");
        let before = below.metadata().expect("there").modified();
        // On a kernel whose clock of files is coarse, the other time must be another one.
        let _ = later_file_time();
        below.write_all_at(&vec![2; BYTES], 0).expect("written");
        if hides {
            below.set_modified(before.expect("a time")).expect("set");
        }
        change(&file, &upper);
        let is_same = || read(&upper) == fs::read(&lower).expect("below");
        if !is_same() {
            hidden.push(name);
            continue;
        }
        // A file that stays open is written to as others have left it.
        file.write_all_at(&[3], 100).expect("written");
        file.sync_all().expect("synced");
        assert!(is_same(), "{name}");
    }
    assert!(hidden.is_empty(), "hidden by {hidden:?}");
    tree.stop();
}

#[test]
fn a_change_here_does_not_hide_what_others_wrote() {
    followed(&["--cache", "4MiB"]);
}

#[test]
fn a_change_here_does_not_hide_what_others_wrote_under_write_back() {
    followed(&cached("4MiB", &LATE));
}

#[test]
fn also_held_by_the_kernel() {
    kernel_pages::again(&["others_wrote"]);
}
