//! Names and attributes in a mounted tree: the same random operations on the mount and on a plain
//! directory beside it must have the same results and leave the same trees, for root and for a
//! user with fewer rights.

use futae_policy::Prng;
use futae_tests::tools::{has_fuse, has_root};
use futae_tests::tree::Tree;
use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
use rustix::fd::OwnedFd;
use rustix::fs::{
    AtFlags, CWD, FileType, Gid as LowerGid, Mode, OFlags, RenameFlags, SeekFrom, Timespec,
    Timestamps, Uid as LowerUid, XattrFlags, makedev,
};
use rustix::io::Errno;
use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const STEPS: usize = 12_000;
/// Someone without rights of their own.
const USER: u32 = 12_345;

/// One of two places in which the same is done.
struct Side {
    root: PathBuf,
    /// Files that are held open, by where they were opened.
    held: HashMap<usize, OwnedFd>,
}

/// What is done, the same on both sides.
struct Step {
    what: u64,
    a: String,
    b: String,
    number: u64,
}

fn name(dice: &mut Prng) -> String {
    const PARTS: [&str; 5] = ["a", "b", "c", "d", "e"];
    let mut name = String::new();
    for depth in 0..=dice.below(3) {
        let separator = if depth > 0 { "/" } else { "" };
        let part = PARTS[dice.below(5) as usize];
        name.push_str(separator);
        name.push_str(part);
    }
    match dice.below(200) {
        0 => name.push('/'),
        1 => name.push_str("/."),
        2 => name.push_str("/.."),
        3 => name.push_str(&"x".repeat(256)),
        4 => name.push_str(&"y".repeat(255)),
        _ => {}
    }
    name
}

impl Step {
    fn new(dice: &mut Prng) -> Self {
        Self {
            what: dice.below(26),
            a: name(dice),
            b: name(dice),
            number: dice.below(1 << 20),
        }
    }
}

type Said = Result<String, Errno>;

impl Side {
    fn at(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn done(result: Result<(), Errno>) -> Said {
        result.map(|()| String::new())
    }

    #[expect(clippy::too_many_lines, reason = "one arm an operation")]
    fn take(&mut self, step: &Step) -> Said {
        let (a, b, number) = (self.at(&step.a), self.at(&step.b), step.number);
        let mode = Mode::from_raw_mode((number & 0o7777) as u32);
        let usual = Mode::from_raw_mode((number & 0o777 | 0o700) as u32);
        let handle = (number % 8) as usize;
        match step.what {
            0 | 1 => Self::done(rustix::fs::mkdir(&a, usual)),
            2 | 3 => {
                let flags = [OFlags::RDWR, OFlags::WRONLY, OFlags::RDWR | OFlags::EXCL];
                let flags = flags[(number % 3) as usize] | OFlags::CREATE | OFlags::NONBLOCK;
                let file = rustix::fs::open(&a, flags, usual)?;
                let data = vec![number as u8; (number % 9000) as usize];
                let written = rustix::io::write(&file, &data)?;
                self.held.insert(handle, file);
                Ok(written.to_string())
            }
            4 => Self::done(rustix::fs::unlink(&a)),
            5 => Self::done(rustix::fs::rmdir(&a)),
            6..=8 => Self::done(rustix::fs::rename(&a, &b)),
            9 => Self::done(rustix::fs::renameat_with(
                CWD,
                &a,
                CWD,
                &b,
                RenameFlags::NOREPLACE,
            )),
            10 => Self::done(rustix::fs::renameat_with(
                CWD,
                &a,
                CWD,
                &b,
                RenameFlags::EXCHANGE,
            )),
            11 | 12 => Self::done(rustix::fs::link(&a, &b)),
            13 => Self::done(rustix::fs::symlink(&step.b, &a)),
            14 => Ok(format!("{:?}", rustix::fs::readlink(&a, Vec::new())?)),
            15 => {
                let kinds = [FileType::Fifo, FileType::Socket, FileType::RegularFile];
                let kind = kinds[(number % 3) as usize];
                Self::done(rustix::fs::mknodat(CWD, &a, kind, usual, 0))
            }
            16 => Self::done(rustix::fs::chmod(&a, mode)),
            17 => {
                let who = |bit: u64| (number & bit != 0).then_some(USER + (number % 2) as u32);
                let (user, group) = (
                    who(4).map(LowerUid::from_raw),
                    who(8).map(LowerGid::from_raw),
                );
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                Self::done(rustix::fs::chownat(CWD, &a, user, group, flags))
            }
            18 => {
                let time = |tv_nsec: u64| Timespec {
                    // Some before 1970.
                    tv_sec: ((number as i64) << 8) - (1 << 27),
                    tv_nsec: tv_nsec as _,
                };
                let times = Timestamps {
                    last_access: time(number),
                    last_modification: time(number + 5),
                };
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                Self::done(rustix::fs::utimensat(CWD, &a, &times, flags))
            }
            19 => {
                let file = rustix::fs::open(&a, OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())?;
                Self::done(rustix::fs::ftruncate(&file, number % 20_000))
            }
            20 => {
                let flags = [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE];
                let flags = flags[(number % 3) as usize];
                let attribute = ["user.one", "user.two", "trusted.three"][(number % 3) as usize];
                let value = vec![b'v'; (number % 500) as usize];
                Self::done(rustix::fs::lsetxattr(&a, attribute, &value, flags))
            }
            21 => Self::done(rustix::fs::lremovexattr(&a, "user.one")),
            22 => {
                let mut value = vec![0; (number % 600) as usize];
                let length = rustix::fs::lgetxattr(&a, "user.two", &mut value[..])?;
                Ok(length.to_string())
            }
            23 => {
                let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::TRUNC;
                let asked = if number.is_multiple_of(3) {
                    flags
                } else {
                    flags - OFlags::TRUNC
                };
                let file = rustix::fs::open(&a, asked, Mode::empty())?;
                let mut bytes = vec![0; 30_000];
                let length = rustix::io::read(&file, &mut bytes[..])?;
                let sum: u64 = bytes[..length].iter().map(|&byte| u64::from(byte)).sum();
                self.held.insert(handle, file);
                Ok(format!("{length} {sum}"))
            }
            24 => {
                let Some(file) = self.held.get(&handle) else {
                    return Ok(String::new());
                };
                let end = rustix::fs::seek(file, SeekFrom::End(0))?;
                let written = rustix::io::write(file, &vec![7; (number % 5000) as usize])?;
                let stat = rustix::fs::fstat(file)?;
                let (links, size) = (stat.st_nlink, stat.st_size);
                Ok(format!("{end} {written} {links} {size} {:o}", stat.st_mode))
            }
            _ => {
                self.held.remove(&handle);
                let access = rustix::fs::access(&a, rustix::fs::Access::WRITE_OK);
                let stat = fs::symlink_metadata(&a);
                let stat = stat.map_err(|error| Errno::from_io_error(&error).expect("an errno"))?;
                let size = if stat.is_dir() { 0 } else { stat.size() };
                Ok(format!(
                    "{access:?} {:o} {size} {}",
                    stat.mode(),
                    stat.nlink()
                ))
            }
        }
    }
}

/// All that can be seen of a tree, but for what differs of itself.
fn picture(root: &Path) -> String {
    let mut picture = String::new();
    let mut numbers = HashMap::new();
    let mut left = vec![PathBuf::new()];
    while let Some(name) = left.pop() {
        let path = root.join(&name);
        let stat = fs::symlink_metadata(&path).expect("there");
        let next = numbers.len();
        let number = *numbers.entry(stat.ino()).or_insert(next);
        let size = if stat.is_dir() { 0 } else { stat.size() };
        let (mode, links, user, group) = (stat.mode(), stat.nlink(), stat.uid(), stat.gid());
        let line = format!(
            "{} #{number} {mode:o} {links} {user} {group} {size}",
            name.display()
        );
        // Times that nobody set are those of two different moments.
        // Those of a pipe change when it is written to, which the mount does not see.
        let is_pipe = FileType::from_raw_mode(mode) == FileType::Fifo;
        let set = stat.mtime() < 1 << 29 && !is_pipe;
        let time = if set {
            (stat.mtime(), stat.mtime_nsec())
        } else {
            (0, 0)
        };
        let mut names = vec![0; 1000];
        let length = rustix::fs::llistxattr(&path, &mut names[..]).expect("attributes");
        names.truncate(length);
        let mut names: Vec<_> = names.split(|&byte| byte == 0).collect();
        names.sort_unstable();
        let content = if stat.is_file() {
            let bytes = fs::read(&path).expect("its content");
            bytes
                .iter()
                .fold(0u64, |sum, &byte| sum.wrapping_mul(31) + u64::from(byte))
        } else {
            0
        };
        let target = fs::read_link(&path).ok();
        let device = stat.rdev();
        writeln!(
            picture,
            "{line} {time:?} {device} {target:?} {content} {names:?}"
        )
        .expect("text");
        if stat.is_dir() {
            let entries = fs::read_dir(&path).expect("a directory");
            let mut names: Vec<_> = entries
                .map(|entry| name.join(entry.expect("an entry").file_name()))
                .collect();
            names.sort();
            left.extend(names);
        }
    }
    picture
}

fn same(one: &Path, other: &Path, when: &str) {
    let (one, other) = (picture(one), picture(other));
    for (line, wanted) in one.lines().zip(other.lines()) {
        assert_eq!(line, wanted, "{when}");
    }
    assert_eq!(one.lines().count(), other.lines().count(), "{when}");
}

/// The same steps in a mount and beside it, some of them as another user.
fn compare(seed: u64, user: Option<u32>) {
    let mut tree = Tree::new();
    let plain = tree.beside("plain");
    fs::create_dir(&plain).expect("a directory");
    for root in [&plain, &tree.source] {
        fs::set_permissions(root, std::os::unix::fs::PermissionsExt::from_mode(0o1777))
            .expect("set");
    }
    let parent = plain.parent().expect("a parent");
    fs::set_permissions(parent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
    tree.mount(&["--cache", "1MiB"]);
    let mut sides = [&tree.mountpoint, &plain].map(|root| Side {
        root: root.clone(),
        held: HashMap::new(),
    });
    let mut dice = Prng::new(seed);
    let mut met: HashMap<(u64, String), u32> = HashMap::new();
    for at in 0..STEPS {
        let step = Step::new(&mut dice);
        let is_other = dice.below(2) == 0;
        let [upper, lower] = sides.each_mut().map(|side| {
            if let (Some(user), true) = (user, is_other) {
                setfsgid(Gid::from_raw(user));
                setfsuid(Uid::from_raw(user));
            }
            let said = side.take(&step);
            setfsuid(Uid::from_raw(0));
            setfsgid(Gid::from_raw(0));
            said
        });
        let Step { what, a, b, number } = &step;
        assert_eq!(
            upper, lower,
            "seed {seed}, step {at}, as another: {is_other}: {what} {a} {b} {number}"
        );
        let kind = lower.map_or_else(|errno| errno.to_string(), |_| "done".to_owned());
        *met.entry((*what, kind)).or_default() += 1;
        if at % 3000 == 2999 {
            same(&tree.mountpoint, &plain, &format!("seed {seed}, step {at}"));
        }
    }
    assert!(met.len() > 60, "too little has happened: {met:?}");
    drop(sides);
    same(&tree.source, &plain, &format!("seed {seed}: below"));
    tree.stop();
}

#[test]
fn random_operations_have_the_results_that_they_have_on_a_plain_directory() {
    if !has_fuse() || !has_root() {
        return;
    }
    for seed in 1..=3 {
        compare(seed, None);
    }
}

#[test]
fn devices_are_shown_and_cannot_be_opened_and_set_id_bits_mean_nothing() {
    if !has_fuse() || !has_root() {
        return;
    }
    let mut tree = Tree::new();
    tree.mount(&["--cache", "1MiB"]);
    let (upper, mode) = (tree.upper("null"), Mode::from_raw_mode(0o666));
    let null = makedev(1, 3);
    rustix::fs::mknodat(CWD, &upper, FileType::CharacterDevice, mode, null).expect("made");
    for path in [&upper, &tree.lower("null")] {
        assert_eq!(fs::metadata(path).expect("there").rdev(), null);
    }
    assert_eq!(
        fs::read(&upper).expect_err("refused").raw_os_error(),
        Some(13)
    );
    let mounts = fs::read_to_string("/proc/self/mounts").expect("the list");
    let point = tree.mountpoint.to_str().expect("text");
    let line = mounts
        .lines()
        .find(|line| line.contains(point))
        .expect("mounted");
    assert!(line.contains("nosuid") && line.contains("nodev"), "{line}");
    tree.stop();
}

#[test]
fn a_chown_to_nobody_of_anothers_file_does_nothing() {
    if !has_fuse() || !has_root() {
        return;
    }
    let mut tree = Tree::new();
    fs::set_permissions(
        tree.beside("."),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .expect("set");
    let file = tree.lower("file");
    fs::write(&file, "x").expect("a file");
    std::os::unix::fs::chown(&file, Some(USER + 1), Some(USER + 1)).expect("given away");
    rustix::fs::chmod(&file, Mode::from_raw_mode(0o2646)).expect("set");
    tree.mount(&["--cache", "1MiB"]);
    let results = [file.clone(), tree.upper("file")].map(|path| {
        setfsgid(Gid::from_raw(USER));
        setfsuid(Uid::from_raw(USER));
        let done = rustix::fs::chownat(CWD, &path, None, None, AtFlags::empty());
        setfsuid(Uid::from_raw(0));
        setfsgid(Gid::from_raw(0));
        done
    });
    let refused_below_only = [Err(Errno::PERM), Ok(())];
    assert_eq!(results, refused_below_only, "if it is refused now, say so");
    assert_eq!(fs::metadata(&file).expect("there").mode() & 0o7777, 0o2646);
    tree.stop();
}

#[test]
fn the_rights_of_others_are_those_that_they_have_on_a_plain_directory() {
    if !has_fuse() || !has_root() {
        return;
    }
    for seed in 4..=6 {
        compare(seed, Some(USER));
    }
}
