//! Locks of files in a mounted tree: they hold between users of the mount.

use futae_tests::tools::{has, has_fuse, text};
use futae_tests::tree::Tree;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// Opens a file, tries a lock without waiting, and says what came of it: of a whole file by
/// `flock`, or of a range by `fcntl`.
const TRY: &str = "\
import errno, fcntl, sys
path, how, start, length = sys.argv[1:]
file = open(path, 'r+')
try:
    if how == 'flock':
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, int(length), int(start))
    print('mine')
except OSError as error:
    print(errno.errorcode[error.errno])
";

/// Has a lock of bytes 10 to 19 by `fcntl` until its input ends.
const HOLD: &str = "\
import fcntl, sys
file = open(sys.argv[1], 'r+')
fcntl.lockf(file, fcntl.LOCK_EX, 10, 10)
print('held', flush=True)
sys.stdin.read()
";

fn attempt(path: &Path, how: &str, start: u32, length: u32) -> String {
    let mut python = Command::new("python3");
    python.args(["-c", TRY, text(path), how]);
    python.args([start.to_string(), length.to_string()]);
    let output = python.output().expect("python3 starts");
    let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

fn tree() -> Option<Tree> {
    if !has_fuse() || !has("python3") {
        return None;
    }
    let mut tree = Tree::new();
    fs::write(tree.lower("file"), vec![0; 100]).expect("a file");
    tree.mount(&["--cache", "1MiB"]);
    Some(tree)
}

#[test]
fn whole_files_are_locked_between_users_of_the_mount() {
    let Some(mut tree) = tree() else {
        return;
    };
    let path = tree.upper("file");
    let [one, other] = [(); 2].map(|()| File::open(&path).expect("opened"));
    flock(&one, FlockOperation::LockShared).expect("locked");
    flock(&other, FlockOperation::LockShared).expect("shared");
    let more = flock(&other, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(more, Err(Errno::WOULDBLOCK));
    assert_eq!(attempt(&path, "flock", 0, 0), "EAGAIN");
    flock(&one, FlockOperation::Unlock).expect("unlocked");
    drop(other);
    assert_eq!(attempt(&path, "flock", 0, 0), "mine");
    // Not against those who use the directory below.
    flock(&one, FlockOperation::LockExclusive).expect("locked");
    assert_eq!(attempt(&tree.lower("file"), "flock", 0, 0), "mine");
    drop(one);
    tree.stop();
}

#[test]
fn ranges_are_locked_between_users_of_the_mount_and_set_free_with_their_process() {
    let Some(mut tree) = tree() else {
        return;
    };
    let path = tree.upper("file");
    let mut holder = Command::new("python3");
    holder.args(["-c", HOLD, text(&path)]);
    holder.stdin(std::process::Stdio::piped());
    holder.stdout(std::process::Stdio::piped());
    let mut holder = holder.spawn().expect("python3 starts");
    let mut said = String::new();
    let mut out = std::io::BufReader::new(holder.stdout.take().expect("its output"));
    std::io::BufRead::read_line(&mut out, &mut said).expect("a line");
    assert_eq!(said, "held\n");
    assert_eq!(attempt(&path, "fcntl", 0, 11), "EAGAIN");
    assert_eq!(attempt(&path, "fcntl", 20, 0), "mine");
    assert_eq!(attempt(&path, "fcntl", 0, 10), "mine");
    assert_eq!(attempt(&tree.lower("file"), "fcntl", 0, 0), "mine", "below");
    holder.kill().expect("killed");
    holder.wait().expect("gone");
    assert_eq!(attempt(&path, "fcntl", 0, 0), "mine");
    tree.stop();
}
