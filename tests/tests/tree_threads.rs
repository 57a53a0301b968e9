//! A mounted tree whose process may have no more threads: it finds a change of a file from below nevertheless.

use futae_testkit::need::{Need, skip};
use futae_testkit::wait::PATIENCE;
use futae_tests::tools::has_fuse;
use futae_tests::tree::Tree;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;

/// A group of processes that may have no more threads, gone at the end.
struct Group(PathBuf);

impl Group {
    /// The group of a process; says why if there can be none.
    fn of(process: u32) -> Option<Self> {
        for root in ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"] {
            let path = Path::new(root).join(format!("futae-threads-{}", std::process::id()));
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Self(path);
            let enter = || {
                fs::write(group.0.join("pids.max"), "1")?;
                fs::write(group.0.join("cgroup.procs"), process.to_string())
            };
            if enter().is_ok() {
                return Some(group);
            }
        }
        skip(
            Need::Cgroup,
            "no group with a limit of threads can be made here",
        );
        None
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The result of work that hangs if the mount does.
fn answered<T: Send + 'static>(
    what: &str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> T {
    let (done, result) = channel();
    thread::spawn(move || done.send(work()));
    let result = result.recv_timeout(PATIENCE);
    let result = result.unwrap_or_else(|_| panic!("{what}: no answer"));
    result.unwrap_or_else(|error| panic!("{what}: {error}"))
}

#[test]
fn without_further_threads_a_read_of_a_file_that_is_cut_below_is_answered() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    for name in ["cut", "other"] {
        fs::write(tree.lower(name), vec![1; 1 << 20]).expect("a file");
    }
    tree.mount(&["--cache", "4MiB"]);
    let open = |name: &str| {
        let file = File::options()
            .read(true)
            .write(true)
            .open(tree.upper(name));
        file.expect("opened")
    };
    let (cut, other) = (open("cut"), open("other"));
    // The kernel takes a thread of the process for a read below, which it may not have later.
    other.read_exact_at(&mut [0; 4096], 0).expect("cached");
    let below = File::options().write(true).open(tree.lower("cut"));
    below.and_then(|it| it.set_len(100)).expect("cut");
    let Some(group) = Group::of(tree.process()) else {
        return;
    };
    let length = answered("a read behind the new end", move || {
        cut.read_at(&mut [0; 4096], 512 << 10)
    });
    assert_eq!(length, 0);
    let length = answered("another file", move || other.read_at(&mut [0; 4096], 0));
    assert_eq!(length, 4096);
    tree.stop();
    drop(group);
}
