//! What goes wrong below a mounted tree: the errno that a program expects, a line that names the
//! path, and nothing lost.

use futae_testkit::wait::eventually;
use futae_tests::binary::binary;
use futae_tests::stage::detach;
use futae_tests::tools::{Need, WITHOUT_OTHERS_MOUNTS};
use futae_tests::tools::{has, has_fuse, has_root, run, skip, text};
use futae_tests::tree::{Tree, read};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

/// Somebody who has a name and no rights, as Debian numbers them.
const NOBODY: u32 = 65_534;

fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> Errno {
    let error = result.expect_err("it must fail");
    Errno::from_io_error(&error).expect("an errno")
}

fn mount_small(directory: &Path) {
    let options = ["-t", "tmpfs", "-o", "size=8m", "none"];
    run("mount", &[&options[..], &[text(directory)]].concat());
}

#[test]
fn a_lower_file_system_that_became_read_only_is_erofs() {
    if !has_fuse() || !has_root() {
        return;
    }
    let mut tree = Tree::new();
    mount_small(&tree.source);
    fs::write(tree.lower("file"), vec![1; 10_000]).expect("a file");
    tree.mount(&["--cache", "1MiB"]);
    let lower = text(&tree.source).to_owned();
    run("mount", &["-o", "remount,ro", &lower]);
    let upper = tree.upper("file");
    assert_eq!(
        errno(OpenOptions::new().write(true).open(&upper)),
        Errno::ROFS
    );
    assert_eq!(errno(fs::write(tree.upper("new"), "x")), Errno::ROFS);
    assert_eq!(errno(fs::create_dir(tree.upper("directory"))), Errno::ROFS);
    assert_eq!(errno(fs::remove_file(&upper)), Errno::ROFS);
    assert_eq!(read(&upper), vec![1; 10_000]);
    run("mount", &["-o", "remount,rw", &lower]);
    fs::write(&upper, "again").expect("written");
    assert_eq!(read(&tree.lower("file")), b"again");
    let (ended, _) = tree.stop();
    let says = format!("{lower}/file: opening: Read-only file system");
    assert!(ended.errors.contains(&says), "{}", ended.errors);
}

/// A lower file that root may not write either.
struct Immutable(PathBuf);

impl Immutable {
    fn new(path: PathBuf) -> Option<Self> {
        let output = Command::new("chattr").arg("+i").arg(&path).output();
        let made = output.is_ok_and(|output| output.status.success());
        if !made {
            skip(Need::Root, "no file can be made immutable here (chattr +i)");
        }
        made.then_some(Self(path))
    }
}

impl Drop for Immutable {
    fn drop(&mut self) {
        // It cannot be removed otherwise.
        let _ = Command::new("chattr").arg("-i").arg(&self.0).status();
    }
}

#[test]
fn what_is_refused_below_is_refused_and_said() {
    if !has_fuse() || !has_root() {
        return;
    }
    let mut tree = Tree::new();
    fs::write(tree.lower("file"), "kept").expect("a file");
    let Some(immutable) = Immutable::new(tree.lower("file")) else {
        return;
    };
    tree.mount(&["--cache", "1MiB"]);
    let upper = tree.upper("file");
    assert_eq!(
        errno(OpenOptions::new().write(true).open(&upper)),
        Errno::PERM
    );
    assert_eq!(errno(fs::remove_file(&upper)), Errno::PERM);
    assert_eq!(errno(fs::rename(&upper, tree.upper("other"))), Errno::PERM);
    assert_eq!(read(&upper), b"kept");
    drop(immutable);
    fs::write(&upper, "new").expect("written");
    let (ended, _) = tree.stop();
    let says = format!(
        "{}: opening: Operation not permitted",
        tree.lower("file").display()
    );
    assert!(ended.errors.contains(&says), "{}", ended.errors);
}

#[test]
fn what_the_mount_may_not_read_below_is_eacces_and_a_line_that_names_the_file() {
    if !has_fuse() || !has_root() || !has("setpriv") {
        return;
    }
    let mut tree = Tree::new();
    for name in ["theirs", "everybodys"] {
        fs::write(tree.lower(name), name).expect("a file");
        chown(tree.lower(name), Some(NOBODY), Some(NOBODY)).expect("given away");
    }
    fs::set_permissions(tree.lower("theirs"), fs::Permissions::from_mode(0o600)).expect("set");
    // As root is to a server that knows no foreign root.
    let mount = tree.command(&["--cache", "1MiB"]);
    let mut command = Command::new("setpriv");
    command.arg("--bounding-set=-dac_override,-dac_read_search");
    command.arg(mount.get_program()).args(mount.get_args());
    tree.start(command);
    let theirs = tree.upper("theirs");
    assert_eq!(errno(File::open(&theirs)), Errno::ACCESS);
    assert_eq!(errno(fs::write(&theirs, "mine")), Errno::ACCESS);
    assert_eq!(read(&tree.upper("everybodys")), b"everybodys");
    assert_eq!(read(&tree.lower("theirs")), b"theirs");
    let (ended, _) = tree.stop();
    let says = format!(
        "{}: opening: Permission denied",
        tree.lower("theirs").display()
    );
    assert!(ended.errors.contains(&says), "{}", ended.errors);
}

/// An ext4 as the directory to mount; its disk can be read no more once that is cut short.
fn on_small_ext4(tree: &Tree) -> Option<File> {
    if !has("mkfs.ext4") || !has("losetup") {
        return None;
    }
    let image = tree.beside("disk.img");
    let file = File::create(&image).expect("an image");
    file.set_len(32 << 20).expect("a sparse image");
    run(
        "mkfs.ext4",
        &["-q", "-F", "-O", "^has_journal", text(&image)],
    );
    run("mount", &["-o", "loop", text(&image), text(&tree.source)]);
    Some(file)
}

#[test]
fn a_lower_disk_that_breaks_is_eio_and_what_is_cached_stays() {
    if !has_fuse() || !has_root() {
        return;
    }
    let mut tree = Tree::new();
    let Some(disk) = on_small_ext4(&tree) else {
        return;
    };
    for name in ["cached", "not"] {
        fs::write(tree.lower(name), vec![3; 1 << 20]).expect("a file");
    }
    run("sync", &["--file-system", text(&tree.source)]);
    tree.mount(&["--cache", "4MiB"]);
    assert_eq!(read(&tree.upper("cached")), vec![3; 1 << 20]);
    // Names and places of files are known, so they can be opened as long as that is so.
    let not = File::open(tree.upper("not")).expect("opened");
    disk.set_len(64 << 10).expect("cut short");
    let mut bytes = vec![0; 4096];
    let failed = std::os::unix::fs::FileExt::read_at(&not, &mut bytes, 8192);
    assert_eq!(errno(failed), Errno::IO);
    assert_eq!(read(&tree.upper("cached")), vec![3; 1 << 20]);
    drop(not);
    let (ended, last) = tree.stop();
    let says = format!(
        "{}: reading: Input/output error",
        tree.lower("not").display()
    );
    assert!(ended.errors.contains(&says), "{}", ended.errors);
    assert!(last["status"]["errors"].as_u64() > Some(0), "{last}");
}

/// A lower file system that no change passes while this lives.
struct Frozen(PathBuf);

impl Frozen {
    fn new(path: &Path) -> Option<Self> {
        let output = Command::new("fsfreeze").arg("-f").arg(path).output();
        let frozen = output.is_ok_and(|output| output.status.success());
        if !frozen {
            skip(Need::Root, "no file system can be frozen here (fsfreeze)");
        }
        frozen.then(|| Self(path.to_owned()))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // What waits for it could not end otherwise, this test among it.
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).status();
    }
}

/// How many threads of a process wait and cannot be interrupted.
fn waiting_below(process: u32) -> usize {
    let threads = fs::read_dir(format!("/proc/{process}/task")).expect("its threads");
    let waits = |path: PathBuf| {
        let stat = fs::read_to_string(path.join("stat")).unwrap_or_default();
        let state = stat.rsplit(") ").next().unwrap_or_default();
        state.starts_with('D')
    };
    let threads = threads.flatten().map(|thread| thread.path());
    threads.filter(|path| waits(path.clone())).count()
}

/// Changes that wait below, more than a mount has threads by default.
const STALLED: usize = 12;

#[test]
fn requests_that_a_stalled_file_system_holds_hold_up_no_others() {
    if !has_fuse() || !has_root() {
        return;
    }
    let mut tree = Tree::new();
    if on_small_ext4(&tree).is_none() {
        return;
    }
    fs::write(tree.lower("cached"), vec![3; 1 << 20]).expect("a file");
    let names: Vec<_> = (0..STALLED).map(|index| format!("file{index}")).collect();
    for name in &names {
        fs::write(tree.lower(name), "x").expect("a file");
    }
    tree.mount(&["--cache", "4MiB"]);
    assert_eq!(read(&tree.upper("cached")), vec![3; 1 << 20]);
    let Some(frozen) = Frozen::new(&tree.source) else {
        return;
    };
    let changes: Vec<_> = names
        .iter()
        .map(|name| {
            let path = tree.upper(name);
            thread::spawn(move || fs::set_permissions(path, fs::Permissions::from_mode(0o600)))
        })
        .collect();
    // Without spare threads there are as many as the mount has threads.
    eventually("some changes wait below", || {
        waiting_below(tree.process()) >= 4
    });
    let (cached, other, root) = (
        tree.upper("cached"),
        tree.upper("file0"),
        tree.mountpoint.clone(),
    );
    // On a thread of its own: it could not be interrupted.
    let others = thread::spawn(move || {
        assert_eq!(read(&cached), vec![3; 1 << 20]);
        assert_eq!(fs::metadata(&other).expect("there").len(), 1);
        assert_eq!(fs::read_dir(&root).expect("a list").count(), STALLED + 2);
        rustix::fs::statvfs(&root).expect("its space");
    });
    eventually("other requests are served", || others.is_finished());
    others.join().expect("served");
    eventually("each change waits below", || {
        waiting_below(tree.process()) >= STALLED
    });
    assert!(changes.iter().all(|change| !change.is_finished()));
    drop(frozen);
    for change in changes {
        change.join().expect("it ends").expect("changed");
    }
    tree.stop();
}

#[test]
fn what_only_a_request_has_caused_is_its_errno_and_no_failure() {
    if !has_fuse() || !has_root() {
        return;
    }
    let mut tree = Tree::new();
    if on_small_ext4(&tree).is_none() {
        return;
    }
    tree.mount(&["--cache", "4MiB", "--block", "64KiB"]);
    let path = tree.upper("file");
    let file = File::create(&path).expect("made");
    // Longer than a file of ext4 can be, and than a file of futae.
    for offset in [1 << 44, 1 << 62] {
        let written = std::os::unix::fs::FileExt::write_at(&file, b"far", offset);
        assert_eq!(errno(written), Errno::FBIG);
    }
    // Longer than a block.
    let flags = rustix::fs::XattrFlags::empty();
    let set = rustix::fs::setxattr(&path, "user.long", &[1; 8192], flags);
    assert_eq!(set, Err(Errno::NOSPC));
    drop(file);
    let (ended, last) = tree.stop();
    assert_eq!(ended.errors, "");
    assert_eq!(last["status"]["errors"], 0, "{last}");
}

#[test]
fn a_lower_directory_that_is_unmounted_stays_where_it_is() {
    if !has_fuse() || !has_root() {
        return;
    }
    let mut tree = Tree::new();
    mount_small(&tree.source);
    fs::write(tree.lower("file"), "one").expect("a file");
    tree.mount(&["--cache", "1MiB"]);
    let busy = Command::new("umount").arg(&tree.source).output();
    assert!(
        !busy.expect("umount starts").status.success(),
        "it is in use"
    );
    detach(&tree.source);
    assert!(!tree.lower("file").exists());
    assert_eq!(read(&tree.upper("file")), b"one");
    fs::write(tree.upper("file"), "two").expect("written");
    assert_eq!(read(&tree.upper("file")), b"two");
    tree.stop();
}

#[test]
fn a_lower_directory_that_is_removed_is_enoent() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    fs::write(tree.lower("file"), "open").expect("a file");
    tree.mount(&["--cache", "1MiB"]);
    let open = File::open(tree.upper("file")).expect("opened");
    fs::remove_dir_all(&tree.source).expect("removed");
    // Another of its name is another.
    fs::create_dir(&tree.source).expect("a directory");
    assert_eq!(errno(fs::write(tree.upper("new"), "x")), Errno::NOENT);
    assert_eq!(errno(fs::create_dir(tree.upper("d"))), Errno::NOENT);
    assert_eq!(fs::read_dir(&tree.mountpoint).expect("a list").count(), 0);
    let mut bytes = [0; 4];
    let length = std::os::unix::fs::FileExt::read_at(&open, &mut bytes, 0);
    assert_eq!((length.expect("read"), &bytes), (4, b"open"));
    drop(open);
    tree.stop();
}

/// A script of a shell in which this user's own `/dev/fuse` is everybody's.
fn with_open_fuse(tree: &Tree, script: &str) -> Command {
    let device = tree.beside("dev");
    fs::create_dir(&device).expect("a directory");
    let device = text(&device);
    let open = format!(
        "{WITHOUT_OTHERS_MOUNTS}; mount -t tmpfs none {device} && mknod {device}/fuse c 10 229 && \
         chmod 666 {device}/fuse && mount --bind {device}/fuse /dev/fuse && {script}"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &open]);
    command
}

#[test]
fn a_mount_of_another_user_is_that_users_alone() {
    let tools = ["unshare", "setpriv", "fusermount3"];
    if !has_fuse() || !has_root() || !tools.into_iter().all(has) {
        return;
    }
    let tree = Tree::new();
    fs::set_permissions(tree.beside("."), fs::Permissions::from_mode(0o755)).expect("set");
    fs::write(tree.lower("own"), "own").expect("a file");
    fs::write(tree.lower("roots"), "secret").expect("a file");
    fs::set_permissions(tree.lower("roots"), fs::Permissions::from_mode(0o600)).expect("set");
    for path in [&tree.source, &tree.lower("own"), &tree.mountpoint] {
        chown(path, Some(NOBODY), Some(NOBODY)).expect("given away");
    }
    chown(tree.beside("."), Some(NOBODY), Some(NOBODY)).expect("given away");
    let (futae, source, mountpoint) = (binary(), text(&tree.source), text(&tree.mountpoint));
    let control = tree.beside("control.sock");
    let script = format!(
        "user='setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups'\n\
         $user '{}' mount {source} {mountpoint} --cache 1MiB --control unix:{} &\n\
         for i in $(seq 300); do grep -q ' {mountpoint} ' /proc/mounts && break; sleep 0.1; done\n\
         export LC_ALL=C\n\
         $user cat {mountpoint}/own; echo\n\
         $user sh -c 'echo new >{mountpoint}/new; chmod 640 {mountpoint}/new'\n\
         $user cat {mountpoint}/roots 2>&1\n\
         $user chown 0 {mountpoint}/own 2>&1\n\
         ls {mountpoint} 2>&1\n\
         kill $!; wait $!; echo ended $?",
        text(futae),
        text(&control)
    );
    let output = with_open_fuse(&tree, &script).output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    if said.contains("may not mount") {
        return skip(Need::Root, "a user without rights may not mount here");
    }
    let wanted = [
        "own\n",
        "roots: Permission denied",
        "own': Operation not permitted",
        "mnt': Permission denied",
        "ended 0",
    ];
    for wanted in wanted {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(wanted), "{wanted}: {said}{errors}");
    }
    assert_eq!(read(&tree.lower("new")), b"new\n");
    let mode = fs::metadata(tree.lower("new"))
        .expect("there")
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o640);
}

#[test]
fn sockets_of_killed_mounts_are_swept_and_no_others() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    let runtime = tree.beside("run");
    fs::create_dir(&runtime).expect("a directory");
    let set = |value: &Path| [("XDG_RUNTIME_DIR", value.to_owned())];
    tree.mount_with(&["--cache", "1MiB"], &set(&runtime));
    let sockets = || {
        let entries = fs::read_dir(&runtime).expect("a list");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = names
            .map(|name| name.into_string().expect("text"))
            .collect();
        names.sort();
        names
    };
    let left = sockets();
    assert_eq!(left.len(), 1, "{left:?}");
    tree.kill();
    assert_eq!(sockets(), left, "a killed mount leaves its socket");
    // Not ours to remove: somebody answers, it is no socket, or it has another name.
    let number = left[0]
        .trim_start_matches("futae-")
        .trim_end_matches(".sock");
    let answers = UnixListener::bind(runtime.join(format!("futae-{number}0.sock")));
    let _answers = answers.expect("it listens");
    fs::write(runtime.join(format!("futae-{number}1.sock")), "x").expect("a file");
    drop(UnixListener::bind(runtime.join("futae-disk.sock")).expect("it listens"));
    let mut kept = sockets();
    kept.retain(|name| *name != left[0]);
    tree.mount_with(&["--cache", "1MiB"], &set(&runtime));
    let mut now = sockets();
    now.retain(|name| !kept.contains(name));
    assert!(now.len() == 1 && now != left, "{now:?}");
    tree.stop();
    assert_eq!(sockets(), kept);
}
