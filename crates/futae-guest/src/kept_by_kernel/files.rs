//! Which file of a mount is which volume of the cache.

use futae_policy::{BlockId, VolumeId};
use std::collections::HashMap;

/// Files by inode number, and back.
#[derive(Default)]
pub(super) struct Files {
    volumes: HashMap<u64, VolumeId>,
    inodes: HashMap<VolumeId, u64>,
}

impl Files {
    /// A file has a volume from now on.
    pub(super) fn add(&mut self, inode: u64, volume: VolumeId) {
        self.volumes.insert(inode, volume);
        self.inodes.insert(volume, inode);
    }

    /// It does not have it any more. The volume may be another file's by now, and stays that.
    pub(super) fn remove(&mut self, inode: u64, volume: VolumeId) {
        if self.volumes.get(&inode) == Some(&volume) {
            self.volumes.remove(&inode);
        }
        if self.inodes.get(&volume) == Some(&inode) {
            self.inodes.remove(&volume);
        }
    }

    /// The inode numbers of all files.
    pub(super) fn inodes(&self) -> Vec<u64> {
        self.volumes.keys().copied().collect()
    }

    /// The volumes of all files.
    pub(super) fn volumes(&self) -> Vec<VolumeId> {
        self.inodes.keys().copied().collect()
    }

    /// The block that a page is, if its file has a volume.
    pub(super) fn block(&self, (inode, page): Page) -> Option<BlockId> {
        let volume = self.volumes.get(&inode)?;
        (page < BlockId::INDEX_LIMIT).then(|| BlockId::new(*volume, page))
    }

    /// The page that a block is.
    pub(super) fn page(&self, block: BlockId) -> Option<Page> {
        let inode = self.inodes.get(&block.volume())?;
        Some((*inode, block.index()))
    }
}

/// A page: the inode number of its file, and which of its pages.
pub(super) type Page = (u64, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_was_given_to_another_file_stays_that_files() {
        let mut files = Files::default();
        let (volume, block) = (VolumeId(3), BlockId::new(VolumeId(3), 7));
        files.add(10, volume);
        assert_eq!(
            (files.block((10, 7)), files.page(block)),
            (Some(block), Some((10, 7)))
        );
        // The other comes before the first is said to be gone.
        files.add(11, volume);
        files.remove(10, volume);
        assert_eq!(
            (files.block((10, 7)), files.page(block)),
            (None, Some((11, 7)))
        );
        assert_eq!(files.block((11, 7)), Some(block));
        files.remove(11, volume);
        assert!(files.page(block).is_none() && files.inodes().is_empty());
    }
}
