//! The identity of a file over restarts: its inode in its file system and its time of birth.

use rustix::fs::{AtFlags, StatxFlags, statx};
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The same value for the same file or device, and different values for different ones. `None` if
/// the kernel does not provide it. The value is a digest, so that it does not reveal the numbers
/// themselves.
pub fn identity(file: &File) -> Option<[u8; 16]> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    let found = statx(file, "", AtFlags::EMPTY_PATH, wanted).ok()?;
    let digest = |half: u8| {
        let mut hasher = DefaultHasher::new();
        (
            half,
            found.stx_dev_major,
            found.stx_dev_minor,
            found.stx_ino,
        )
            .hash(&mut hasher);
        (found.stx_rdev_major, found.stx_rdev_minor).hash(&mut hasher);
        if found.stx_mask & StatxFlags::BTIME.bits() != 0 {
            (found.stx_btime.tv_sec, found.stx_btime.tv_nsec).hash(&mut hasher);
        }
        hasher.finish().to_be_bytes()
    };
    let mut identity = [0; 16];
    identity[..8].copy_from_slice(&digest(0));
    identity[8..].copy_from_slice(&digest(1));
    Some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_file_keeps_its_identity_and_another_has_another() {
        let folder = tempfile::tempdir().expect("a folder");
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        std::fs::write(&one, [1; 10]).expect("written");
        std::fs::write(&other, [1; 10]).expect("written");
        let of = |path: &Path| identity(&File::open(path).expect("opened")).expect("known");
        let before = of(&one);
        std::fs::write(&one, [2; 20]).expect("written again");
        let renamed = folder.path().join("renamed");
        std::fs::rename(&one, &renamed).expect("renamed");
        assert_eq!(of(&renamed), before);
        assert_ne!(of(&other), before);
    }
}
