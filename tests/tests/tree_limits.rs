//! What a mounted tree does not do: one test for each sentence of docs/reference/semantics.md that says so.

use futae_tests::tools::{has, has_fuse, text};
use futae_tests::tree::{Tree, read};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File, FileTimes, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

const BLOCK: usize = 4096;

#[test]
fn reading_from_the_cache_leaves_the_time_of_access() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    let (lower, upper) = (tree.lower("file"), tree.upper("file"));
    fs::write(&lower, vec![1; BLOCK]).expect("a file");
    tree.mount(&["--cache", "1MiB"]);
    assert_eq!(read(&upper), vec![1; BLOCK]);
    // Long before it was written: a reader of the plain file changes that, even with `relatime`.
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let times = FileTimes::new().set_accessed(then);
    let file = OpenOptions::new().write(true).open(&upper).expect("opened");
    file.set_times(times).expect("set");
    drop(file);
    assert_eq!(read(&upper), vec![1; BLOCK]);
    let accessed = fs::metadata(&lower).expect("there").accessed();
    assert_eq!(accessed.expect("a time"), then);
    tree.stop();
}

#[test]
fn writing_to_a_pipe_leaves_its_times() {
    if !has_fuse() || !has("mkfifo") {
        return;
    }
    let mut tree = Tree::new();
    let (lower, upper) = (tree.lower("pipe"), tree.upper("pipe"));
    let made = Command::new("mkfifo").arg(&lower).status();
    assert!(made.expect("mkfifo starts").success());
    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    let pipe = |path| {
        let mut both = OpenOptions::new();
        both.read(true).write(true);
        both.custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)
    };
    let plain = pipe(&lower).expect("opened");
    plain
        .set_times(FileTimes::new().set_modified(then))
        .expect("set");
    drop(plain);
    tree.mount(&["--cache", "1MiB"]);
    let mut above = pipe(&upper).expect("opened");
    above.write_all(b"through the mount").expect("written");
    let mut said = [0; 17];
    above.read_exact(&mut said).expect("read");
    assert_eq!(&said, b"through the mount");
    let modified = |path| fs::metadata(path).expect("there").modified().ok();
    assert_eq!(modified(&lower), Some(then));
    drop(above);
    tree.stop();
}

#[test]
fn files_without_names_and_flags_of_inodes_are_refused() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    let upper = tree.upper("file");
    fs::write(tree.lower("file"), "x").expect("a file");
    tree.mount(&["--cache", "1MiB"]);
    let flags = OFlags::TMPFILE | OFlags::RDWR;
    let nameless = rustix::fs::open(&tree.mountpoint, flags, Mode::RUSR);
    assert_eq!(nameless.expect_err("refused"), Errno::OPNOTSUPP);
    let file = File::open(&upper).expect("opened");
    let flags = rustix::fs::ioctl_getflags(&file);
    assert!(
        matches!(flags, Err(Errno::NOTTY | Errno::OPNOTSUPP | Errno::NOSYS)),
        "{flags:?}"
    );
    drop(file);
    tree.stop();
}

/// Asks for a lease for reading, and says whether it came.
const LEASE: &str = "\
import fcntl, sys
file = open(sys.argv[1])
fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
print('granted', flush=True)
sys.stdin.read()
";

#[test]
fn a_lease_hinders_users_of_the_mount_only() {
    if !has_fuse() || !has("python3") {
        return;
    }
    let mut tree = Tree::new();
    fs::write(tree.lower("file"), "x").expect("a file");
    tree.mount(&["--cache", "1MiB"]);
    let mut holder = Command::new("python3");
    holder.args(["-c", LEASE, text(&tree.upper("file"))]);
    let mut holder = holder
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    let mut said = String::new();
    let out = holder.stdout.take().expect("its output");
    BufReader::new(out).read_line(&mut said).expect("a line");
    assert_eq!(said, "granted\n");
    let writer = |path| {
        let mut options = OpenOptions::new();
        let flags = OFlags::NONBLOCK.bits() as i32;
        options.write(true).custom_flags(flags).open(path)
    };
    let held = writer(tree.upper("file")).expect_err("somebody has a lease");
    assert_eq!(held.kind(), std::io::ErrorKind::WouldBlock);
    writer(tree.lower("file")).expect("below nobody has one");
    holder.kill().expect("killed");
    holder.wait().expect("gone");
    tree.stop();
}
