//! What other users than root see and leave of a mounted tree's files, beside a plain directory: set-id bits, and names of attributes.

use futae_tests::tools::{has, has_fuse, has_root, run};
use futae_tests::tree::Tree;
use std::fs;
use std::path::PathBuf;

/// What set-id bits are left of files of several modes and groups when several users change them in several
/// ways: a line each, of the directory in the first argument.
const SET_ID: &str = "\
import itertools, os, sys
path = os.path.join(sys.argv[1], 'file')
def grow(): os.posix_fallocate(os.open(path, os.O_WRONLY), 0, 9000)
def write(flags): os.write(os.open(path, os.O_WRONLY | flags), b'x')
changes = dict(write=lambda: write(0), append=lambda: write(os.O_APPEND),
    truncate=lambda: os.truncate(path, 3), rewrite=lambda: write(os.O_TRUNC), grow=grow,
    regroup=lambda: os.chown(path, -1, os.getegid()), chmod=lambda: os.chmod(path, 0o6646),
    regroup_to_other=lambda: os.chown(path, -1, (os.getgroups() + [os.getegid()])[0]))
users = [(1, 2, []), (1, 3, [2]), (1, 4, []), (9, 2, []), (9, 3, [2]), (9, 4, []), (0, 0, [])]
modes = [0o2646, 0o2666, 0o6666, 0o6677, 0o2676, 0o6646]
for mode, owner, who, change in itertools.product(modes, [2, 3, 0], users, changes):
    with open(path, 'w') as file:
        file.write('content' * 50)
    os.chown(path, 1, owner)
    os.chmod(path, mode)
    child = os.fork()
    if child == 0:
        status = 0
        try:
            os.setgroups(who[2]); os.setgid(who[1]); os.setuid(who[0])
            changes[change]()
        except OSError as error:
            status = error.errno
        os._exit(status)
    status = os.waitpid(child, 0)[1] >> 8
    stat = os.stat(path)
    print(oct(mode), owner, who, change, status, oct(stat.st_mode), stat.st_gid)
    os.unlink(path)
";

/// A mounted tree and a plain directory beside it, both for every user.
fn tree_and_plain() -> (Tree, PathBuf) {
    let mut tree = Tree::new();
    let plain = tree.beside("plain");
    fs::create_dir(&plain).expect("a directory");
    for path in [&plain, &tree.source, &tree.beside(".")] {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .expect("set");
    }
    tree.mount(&["--cache", "1MiB"]);
    (tree, plain)
}

#[test]
fn set_id_bits_are_lost_as_on_a_plain_directory() {
    if !has_fuse() || !has_root() || !has("python3") {
        return;
    }
    let (mut tree, plain) = tree_and_plain();
    let [above, beside] = [&tree.mountpoint, &plain].map(|root| {
        let said = run("python3", &["-c", SET_ID, root.to_str().expect("text")]).stdout;
        String::from_utf8(said).expect("text")
    });
    assert_eq!(beside.lines().count(), 6 * 3 * 7 * 8);
    let lost = |line: &&str| line.contains(" 0 0o100");
    assert!(beside.lines().filter(lost).count() > 100, "{beside}");
    for (above, beside) in above.lines().zip(beside.lines()) {
        assert_eq!(above, beside);
    }
    tree.stop();
}

/// The names of a file's attributes as root and as another user see them.
const ATTRIBUTES: &str = "\
import os, sys
path = os.path.join(sys.argv[1], 'attributes')
open(path, 'w').close()
for name in ['trusted.one', 'user.two', 'trusted.three']:
    os.setxattr(path, name, b'1')
print(sorted(os.listxattr(path)), flush=True)
os.setuid(65534)
print(os.listxattr(path))
";

#[test]
fn attributes_for_administrators_are_shown_to_root_only() {
    if !has_fuse() || !has_root() || !has("python3") {
        return;
    }
    let (mut tree, plain) = tree_and_plain();
    for root in [&plain, &tree.mountpoint] {
        let said = run("python3", &["-c", ATTRIBUTES, root.to_str().expect("text")]).stdout;
        assert_eq!(
            String::from_utf8(said).expect("text"),
            "['trusted.one', 'trusted.three', 'user.two']\n['user.two']\n",
            "{}",
            root.display()
        );
    }
    tree.stop();
}

/// The mode after each change, asked for as `stat` of coreutils does: of nothing but the mode, which the kernel may know.
const MODE_ONLY: &str = "\
set -e; cd \"$1\"
as() { setpriv --reuid 1 --regid 9 --clear-groups \"$@\"; }
for mode in 6664 6775; do
    rm -f file; head -c 8192 /dev/zero >file; chown 1:2 file; chmod $mode file; stat -c 'before %a' file
    as dd if=/dev/zero of=file bs=4096 count=1 conv=notrunc status=none; stat -c 'written %a' file
    chmod $mode file; as truncate -s 100 file; stat -c 'cut %a' file
    chmod $mode file; stat -c 'before %a' file
    as setfacl -m u::rwx,g::rwx,o::rwx file; stat -c 'list %a' file
    rm -rf folder; mkdir folder; chown 1:2 folder; chmod 2775 folder; stat -c 'before %a' folder
    as setfacl -m u::rwx,g::rwx,o::rwx folder; stat -c 'list of a directory %a' folder
    chmod 2775 folder; setfacl -m u::rwx,g::rwx,o::rwx folder; stat -c 'list by root %a' folder
done";

#[test]
fn a_lost_set_id_bit_is_seen_at_once() {
    if !has_fuse() || !has_root() || !has("setpriv") || !has("setfacl") {
        return;
    }
    let (mut tree, plain) = tree_and_plain();
    let [above, beside] = [&tree.mountpoint, &plain].map(|root| {
        let root = root.to_str().expect("text");
        let said = run("bash", &["-c", MODE_ONLY, "bash", root]).stdout;
        String::from_utf8(said).expect("text")
    });
    assert_eq!(beside.lines().count(), 2 * 8, "{beside}");
    assert!(beside.contains("written 775"), "{beside}");
    assert_eq!(above, beside);
    tree.stop();
}
