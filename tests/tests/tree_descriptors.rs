//! Files of a mounted tree that are open take descriptors of `futae mount`: no user takes those of the others.

use futae_testkit::wait::eventually;
use futae_tests::tools::{has, has_fuse, has_root, text};
use futae_tests::tree::{Tree, read};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Descriptors that the mount may have.
const LIMIT: u64 = 1024;
/// Files that are made one after the other.
const FILES: u64 = 4000;
/// How often a user's files are counted until all that were open before have been closed.
const COUNTS_MAX: usize = 200;

/// What a file that is open to be read and written takes: its place, and one for each way of reading, writing and
/// sweeping it.
const DESCRIPTORS_A_FILE: u64 = 6;

/// A tree with a directory for everybody, mounted by a process that may have few descriptors.
fn tree() -> Tree {
    let (mut tree, _) = Tree::for_everybody();
    let plain = tree.command(&["--cache", "8MiB"]);
    let mut command = Command::new("sh");
    let script = format!("ulimit -n {LIMIT} && exec \"$@\"");
    command.args(["-c", &script, "sh"]);
    command.arg(plain.get_program()).args(plain.get_args());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    tree.start(command);
    tree
}

#[test]
fn files_that_are_closed_again_leave_their_descriptors_to_the_next() {
    if !has_fuse() {
        return;
    }
    let mut tree = tree();
    let mut failed = Vec::new();
    for number in 0..FILES {
        let path = tree.upper(&format!("everybody/{number}"));
        // No whole page, so it goes through the page cache below.
        if let Err(error) = fs::write(&path, b"short") {
            failed.push((number, error));
        }
    }
    let first = failed.first();
    assert!(first.is_none(), "{} of {FILES}, {first:?}", failed.len());
    assert_eq!(read(&tree.upper("everybody/1")), b"short");
    tree.stop();
}

/// Becomes the user of the first argument, and opens things in the directory of the second as the third says,
/// until there are no descriptors left; says how many, and keeps them until its input ends.
const GREEDY: &str = "\
import errno, os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
os.chdir(sys.argv[2])
opened = []
try:
    while len(opened) < 4096:
        if sys.argv[3] == 'directories':
            opened.append(os.open('.', os.O_RDONLY | os.O_DIRECTORY))
        else:
            opened.append(os.open('greedy%s-%d' % (sys.argv[1], len(opened)), os.O_RDWR | os.O_CREAT))
            os.write(opened[-1], b'greedy')
    print('no end', flush=True)
except OSError as error:
    if error.errno == errno.EMFILE:
        print(len(opened), flush=True)
    else:
        print(error, flush=True)
sys.stdin.read()
";

/// Makes, writes and reads files one after the other as a user, as many as the third argument says.
const MODEST: &str = "\
import os, sys
user = int(sys.argv[1])
os.setgid(user)
os.setuid(user)
for number in range(int(sys.argv[3])):
    path = '%s/modest%d-%d' % (sys.argv[2], user, number)
    with open(path, 'wb+', buffering=0) as file:
        file.write(b'modest')
        file.seek(0)
        assert file.read() == b'modest'
    os.listdir(sys.argv[2]) if number == 0 else None
";

fn python(script: &str, user: u32, directory: &Path, third: &str) -> Command {
    let mut command = Command::new("python3");
    command.args(["-c", script, &user.to_string(), text(directory), third]);
    command
}

/// A user who has as much open as can be, and how much that is.
fn greedy(user: u32, directory: &Path, what: &str) -> (Child, u64) {
    let mut command = python(GREEDY, user, directory, what);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("python3 starts");
    let out = child.stdout.take().expect("its output");
    let mut said = String::new();
    BufReader::new(out).read_line(&mut said).expect("a line");
    let count = said.trim().parse();
    (child, count.unwrap_or_else(|_| panic!("{user}: {said}")))
}

fn end(mut child: Child) {
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
}

fn modest(user: u32, directory: &Path, files: u64) {
    let done = python(MODEST, user, directory, &files.to_string()).output();
    let done = done.expect("python3 starts");
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{user}: {errors}");
}

#[test]
fn a_user_with_as_many_files_open_as_can_be_leaves_some_to_others() {
    if !has_fuse() || !has_root() || !has("python3") {
        return;
    }
    let mut tree = tree();
    let everybody = tree.upper("everybody");
    for what in ["files", "directories"] {
        let (first, count) = greedy(65534, &everybody, what);
        assert!((16..LIMIT / 2).contains(&count), "{what}: {count}");
        modest(65533, &everybody, 1);
        // What one user may not have, another takes; then root still has files.
        let (second, _) = greedy(65532, &everybody.join("../everybody"), "directories");
        let own = tree.upper(&format!("root's-{what}"));
        let mut file = OpenOptions::new();
        let file = file.read(true).write(true).create(true).open(&own);
        let mut file = file.expect("root opens a file");
        file.write_all(b"root's").expect("written");
        file.sync_all().expect("synced");
        assert_eq!(read(&own), b"root's");
        let mut below = String::new();
        let lower = fs::File::open(tree.lower(&format!("root's-{what}")));
        let mut lower = lower.expect("below");
        lower.read_to_string(&mut below).expect("read");
        assert_eq!(below, "root's");
        assert!(fs::read_dir(&everybody).expect("a directory").count() > 0);
        end(first);
        end(second);
        // All of it has been given back, once: the kernel says so after a file was closed.
        let counts = (0..COUNTS_MAX).map(|_| {
            let (again, count) = greedy(65534, &everybody, what);
            end(again);
            count
        });
        let mut last = 0;
        let is_back = counts.inspect(|it| last = *it).any(|it| it == count);
        assert!(is_back, "{what}: {count} at first, {last} in the end");
    }
    // One after the other, as many as anybody likes.
    modest(65533, &everybody, FILES / 4);
    // Once, not for each file that could not be opened.
    let (ended, _) = tree.stop();
    let remarks = ended.errors.matches("can open no more files").count();
    let refused = "user 65534 can open no more files: ";
    assert!(
        remarks == 1 && ended.errors.contains(refused),
        "{}",
        ended.errors
    );
}

#[test]
fn nobody_is_turned_away_while_a_fifth_of_the_descriptors_is_free() {
    if !has_fuse() || !has_root() || !has("python3") {
        return;
    }
    let mut tree = tree();
    let everybody = tree.upper("everybody");
    // Files that are known and closed take descriptors, too, until others need them.
    modest(65533, &everybody, FILES / 4);
    let crowd = [65534, 65532].map(|user| greedy(user, &everybody, "files"));
    let files: u64 = crowd.iter().map(|(_, files)| files).sum();
    let users = files * DESCRIPTORS_A_FILE;
    assert!(users * 5 >= LIMIT * 4, "users have {users} of {LIMIT}");
    let all = tree.descriptors();
    assert!(all <= LIMIT, "{all} of {LIMIT}");
    for (user, _) in crowd {
        end(user);
    }
    tree.stop();
}

/// Whether the mount has a descriptor of a file that was deleted below it.
fn has_deleted(tree: &Tree, name: &str) -> bool {
    let folder = fs::read_dir(format!("/proc/{}/fd", tree.process())).expect("its descriptors");
    let targets = folder.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let mut targets = targets.map(|target| target.to_string_lossy().into_owned());
    let deleted = format!("{} (deleted)", text(&tree.lower(name)));
    targets.any(|target| target == deleted)
}

#[test]
fn files_that_others_deleted_below_give_their_space_back() {
    if !has_fuse() {
        return;
    }
    let mut tree = Tree::new();
    for name in ["closed", "open"] {
        fs::write(tree.lower(name), vec![7; 1 << 20]).expect("written");
    }
    tree.mount(&["--cache", "8MiB"]);
    let mut open = fs::File::open(tree.upper("open")).expect("opened");
    assert_eq!(read(&tree.upper("closed")), vec![7; 1 << 20]);
    for name in ["closed", "open"] {
        fs::remove_file(tree.lower(name)).expect("removed");
        assert!(has_deleted(&tree, name), "the mount knows {name}");
    }
    eventually("the closed file is gone", || !has_deleted(&tree, "closed"));
    // As with any other file system, a program that has it open keeps it.
    let mut all = Vec::new();
    open.read_to_end(&mut all).expect("read");
    assert_eq!(all, vec![7; 1 << 20]);
    assert!(has_deleted(&tree, "open"));
    drop(open);
    eventually("the other one, too", || !has_deleted(&tree, "open"));
    tree.stop();
}
