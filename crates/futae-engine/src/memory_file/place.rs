//! Checks that a memory file is in memory and accessible only to this user.

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, flock, fstat, fstatfs};
use rustix::io::Errno;
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long to retry the lock: a killed server releases it a moment after its end.
const TIMEOUT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(2);

const TMPFS: i64 = 0x0102_1994;
const HUGETLBFS: i64 = 0x9584_58f6;
/// With pages of a gigabyte, the smallest part of the file would be as large.
const PAGE_BYTES_MAX: u64 = 2 << 20;

/// Opens or creates the file, and says whether it is new. It must be private: another user who can read it
/// can read every guest's data, and one who can write it can alter what is served.
pub fn open(path: &Path) -> Result<(File, bool), String> {
    // Checked before a file is created there.
    check_directory(path)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    if let Ok(file) = rustix::fs::open(path, flags | OFlags::EXCL, mode) {
        return Ok((file.into(), true));
    }
    // It is there. With CREATE the kernel may refuse a file of another user in a directory such as /dev/shm, even to root
    // (fs.protected_regular).
    match rustix::fs::open(path, flags - OFlags::CREATE, mode) {
        Ok(file) => Ok((file.into(), false)),
        Err(Errno::LOOP) => Err("is a symbolic link; name the file itself".to_owned()),
        Err(errno) => Err(format!("cannot be opened: {errno}")),
    }
}

/// Checks that the directory of a memory file exists and is in memory.
pub fn check_directory(path: &Path) -> Result<(), String> {
    let directory = path.parent().filter(|path| !path.as_os_str().is_empty());
    match rustix::fs::statfs(directory.unwrap_or(Path::new("."))) {
        Ok(on) if is_memory(&on) => Ok(()),
        Ok(_) => Err(NO_MEMORY.to_owned()),
        Err(Errno::NOENT) => Err("its directory does not exist; make it first".to_owned()),
        Err(errno) => Err(format!("its directory cannot be looked at: {errno}")),
    }
}

/// Creates unnamed memory, accessible only through its descriptor.
pub fn unnamed() -> Result<File, String> {
    let made = rustix::fs::memfd_create("futae-cache", rustix::fs::MemfdFlags::CLOEXEC);
    made.map(File::from)
        .map_err(|errno| format!("no memory without a name (memfd) can be made: {errno}"))
}

/// Whether a file belongs to this process's user, or to `heir`, the user that it is about to become.
pub fn is_of(file: &File, heir: Option<u32>) -> Result<bool, String> {
    let owner = fstat(file).map_err(|errno| errno.to_string())?.st_uid;
    Ok(owner == rustix::process::geteuid().as_raw() || heir == Some(owner))
}

/// Gives a file to `heir`, who could not open it again otherwise. Without the right to do so the file stays as it is, and is used
/// as long as it is open.
pub fn hand_to(file: &File, heir: Option<u32>) {
    if let Some(user) = heir {
        let _ = rustix::fs::fchown(file, Some(rustix::fs::Uid::from_raw(user)), None);
    }
}

/// Checks that a file is in memory and private to this process's user or to `heir`, and takes its lock. Returns its page size in
/// bytes.
pub fn check(file: &File, heir: Option<u32>) -> Result<usize, String> {
    let stat = fstat(file).map_err(|errno| errno.to_string())?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("is no regular file; name one that need not exist yet".to_owned());
    }
    if !is_of(file, heir)? {
        return Err(format!(
            "belongs to user {}, who could have other data served; remove it, or run as that user",
            stat.st_uid
        ));
    }
    // Unnamed memory cannot be opened by path, whatever its mode is.
    if stat.st_nlink > 0 && stat.st_mode & 0o077 != 0 {
        return Err(format!(
            "has mode {:o}, so others may read or change what is cached; remove it, or give it mode 600",
            stat.st_mode & 0o777
        ));
    }
    let of = fstatfs(file).map_err(|errno| errno.to_string())?;
    if !is_memory(&of) {
        return Err(NO_MEMORY.to_owned());
    }
    let page_bytes = u64::try_from(of.f_bsize).unwrap_or(u64::MAX);
    if page_bytes > PAGE_BYTES_MAX {
        return Err(format!(
            "is on a hugetlbfs with pages of {page_bytes} bytes; name a file on one with pages of 2 MiB \
             (mount -o pagesize=2M)"
        ));
    }
    lock(file)?;
    Ok(page_bytes as usize)
}

const NO_MEMORY: &str = "is not on tmpfs or hugetlbfs, and a cache on a disk would be as slow as the disk; name a file \
     in /dev/shm or on a hugetlbfs";

fn is_memory(on: &rustix::fs::StatFs) -> bool {
    matches!(on.f_type, TMPFS | HUGETLBFS)
}

fn lock(file: &File) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < TIMEOUT => thread::sleep(PAUSE),
            Err(Errno::WOULDBLOCK) => {
                return Err(
                    "is in use by another process; stop that one first, or name another file"
                        .to_owned(),
                );
            }
            Err(errno) => return Err(format!("cannot be locked: {errno}")),
        }
    }
}

/// The identity of the machine's boot, as two words.
pub fn boot() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    let word = |part: Option<&str>| u64::from_str_radix(part?, 16).ok();
    Some([word(digits.get(..16))?, word(digits.get(16..32))?])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_on_a_disk_of_others_or_behind_a_link_is_refused() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let path = folder.path().join("memory");
        let (first, is_new) = open(&path).expect("made");
        assert!(is_new && open(&path).is_ok_and(|(_, is_new)| !is_new));
        assert_eq!(check(&first, None), Ok(4096));
        let link = folder.path().join("link");
        symlink(&path, &link).expect("a link");
        assert!(open(&link).is_err_and(|problem| problem.contains("symbolic link")));
        let nowhere = folder.path().join("none/memory");
        assert!(open(&nowhere).is_err_and(|problem| problem.contains("directory")));
        assert!(check(&File::open(folder.path()).expect("opened"), None).is_err());
        let mode = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(&path, mode).expect("allowed");
        assert!(check(&first, None).is_err_and(|problem| problem.contains("mode 640")));
    }

    #[test]
    fn two_users_are_not_let_in_at_once() {
        let folder = tempfile::tempdir_in("/dev/shm").expect("a folder");
        let path = folder.path().join("memory");
        let (first, _) = open(&path).expect("made");
        let (second, _) = open(&path).expect("opened");
        check(&first, None).expect("free");
        assert!(check(&second, None).is_err_and(|problem| problem.contains("in use")));
        drop(first);
        check(&second, None).expect("free again");
    }

    #[test]
    fn a_machine_has_one_start() {
        assert!(boot().is_some() && boot() == boot());
    }
}
