//! Stamps that reveal writes to an image by other programs.

use crate::StoreStamp;
use rustix::fs::{AtFlags, FileType, StatxFlags, StatxTimestamp, fstatfs, statx};
use std::fs::File;

/// File systems that record every write in the attributes of a file, by the clock of this machine,
/// and whose files other machines cannot write to. ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, ZFS,
/// bcachefs, overlayfs.
const LOCAL: [i64; 8] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0xF2F5_2010,
    0x2FC1_2FC1,
    0xCA45_1A4E,
    0x794C_7630,
];

/// A value that changes with every write to a file. `None` for a device, which records no writes,
/// and for a file that other machines can write to.
pub fn stamp(file: &File) -> Option<StoreStamp> {
    let on = fstatfs(file).ok()?;
    if !LOCAL.contains(&on.f_type) {
        return None;
    }
    let found = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).ok()?;
    if FileType::from_raw_mode(u32::from(found.stx_mode)) != FileType::RegularFile {
        return None;
    }
    Some(StoreStamp {
        size_bytes: found.stx_size,
        modified_ns: nanoseconds(&found.stx_mtime)?,
        changed_ns: nanoseconds(&found.stx_ctime)?,
    })
}

fn nanoseconds(time: &StatxTimestamp) -> Option<u64> {
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let all = seconds.checked_mul(1_000_000_000)?;
    all.checked_add(u64::from(time.tv_nsec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn whatever_is_done_to_a_file_changes_its_stamp() {
        let mut file = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file");
        let mut known = stamp(file.as_file()).expect("tmpfs has stamps");
        let mut differs = |file: &File| {
            let now = stamp(file).expect("as before");
            let differs = now != known;
            known = now;
            differs
        };
        assert!(!differs(file.as_file()));
        // File time stamps have a coarse granularity.
        let coarse = std::time::Duration::from_millis(20);
        std::thread::sleep(coarse);
        file.write_all(b"x").expect("written");
        assert!(differs(file.as_file()));
        std::thread::sleep(coarse);
        let mode = std::fs::Permissions::from_mode(0o600);
        file.as_file().set_permissions(mode).expect("changed");
        assert!(differs(file.as_file()));
    }

    #[test]
    fn what_is_no_file_has_none() {
        let device = File::open("/dev/zero").expect("a device");
        assert_eq!(stamp(&device), None);
    }
}
