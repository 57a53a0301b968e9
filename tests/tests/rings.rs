//! FUSE over io_uring as `futae mount` offers it.

use futae_tests::rings::{SWITCH, Switched};
use futae_tests::tools::{has_fuse, text};
use futae_tests::tree::Tree;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Requests at a time, more than a ring has room for and than a socket takes.
const THREADS: u64 = 96;
const ROUNDS: u64 = 40;

#[test]
fn what_is_asked_for_is_told_or_refused() {
    if !has_fuse() {
        return;
    }
    let words = |transport| ["--cache", "1MiB", "--transport", transport];
    let mut tree = Tree::new();
    if let Some(_off) = Switched::to(false) {
        assert_eq!(tree.mount(&words("auto"))["fuse"]["transport"], "device");
        tree.stop();
        let refused = tree.command(&words("ring")).output();
        let refused = refused.expect("futae starts");
        let said = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(1), "{said}");
        assert!(said.contains(&format!("echo Y > {SWITCH}")), "{said}");
    }
    if let Some(_on) = Switched::to(true) {
        for (asked, told) in [("auto", "ring"), ("ring", "ring"), ("device", "device")] {
            assert_eq!(tree.mount(&words(asked))["fuse"]["transport"], told);
            tree.stop();
        }
    }
}

#[test]
fn many_at_a_time_find_what_they_left() {
    let Some(_on) = has_fuse().then(|| Switched::to(true)).flatten() else {
        return;
    };
    let mut tree = Tree::new();
    tree.mount(&["--cache", "256KiB", "--transport", "ring"]);
    let name = |thread: u64, round: u64| format!("{thread}-{round}-{}", "long".repeat(40));
    let data = |thread: u64, round: u64| vec![(thread * 7 + round) as u8; 5000];
    let (mountpoint, name, data) = (tree.mountpoint.clone(), &name, &data);
    let upper = &|name: &str| mountpoint.join(name);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        let ends = &ends;
        let large = upper("large");
        fs::write(&large, vec![9; 1 << 20]).expect("written");
        let reader = scope.spawn(move || {
            let file = File::open(large).expect("opened");
            let mut reads = 0;
            while !ends.load(Ordering::Relaxed) {
                let mut all = vec![0; 1 << 20];
                file.read_exact_at(&mut all, 0).expect("read");
                assert!(all.iter().all(|&byte| byte == 9));
                reads += 1;
            }
            assert!(reads > 0);
        });
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let path = upper(&name(thread, round));
                        fs::write(&path, data(thread, round)).expect("written");
                        assert_eq!(fs::read(&path).expect("read"), data(thread, round));
                        assert_eq!(fs::metadata(&path).expect("there").len(), 5000);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().expect("it went well");
        }
        ends.store(true, Ordering::Relaxed);
        reader.join().expect("it went well");
    });
    // More than one message has room for.
    let listed = fs::read_dir(&mountpoint).expect("a directory");
    let listed: BTreeSet<String> = listed
        .map(|entry| text(entry.expect("an entry").file_name().as_ref()).to_owned())
        .collect();
    assert_eq!(listed.len() as u64, THREADS * ROUNDS + 1);
    for thread in 0..THREADS {
        assert!((0..ROUNDS).all(|round| listed.contains(&name(thread, round))));
    }
    let (_, last) = tree.stop();
    assert_eq!(last["status"]["errors"], 0, "{last}");
}

#[test]
fn a_mount_that_is_killed_can_be_made_again() {
    let Some(_on) = has_fuse().then(|| Switched::to(true)).flatten() else {
        return;
    };
    let mut tree = Tree::new();
    for round in 0..3u8 {
        let ready = tree.mount(&["--cache", "1MiB", "--transport", "ring"]);
        assert_eq!(ready["fuse"]["transport"], "ring");
        let path = tree.upper(&format!("file-{round}"));
        fs::write(&path, [round; 9000]).expect("written");
        let open = File::open(&path).expect("opened");
        tree.kill();
        let mut byte = [0];
        let error = open
            .read_exact_at(&mut byte, 0)
            .expect_err("nobody is there");
        // ECONNABORTED or ENOTCONN; ECANCELED while the kernel takes the rings down.
        let number = error.raw_os_error();
        assert!(matches!(number, Some(103 | 107 | 125)), "{error}");
        for before in 0..=round {
            let lower = tree.lower(&format!("file-{before}"));
            assert_eq!(fs::read(lower).expect("below"), [before; 9000]);
        }
    }
}
