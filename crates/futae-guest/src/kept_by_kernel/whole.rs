//! The pages of one file of a tree.

use super::KernelKeeper;
use futae_policy::VolumeId;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// The pages of a file in the kernel's page cache. When the file was changed past the mount, the next open has the kernel drop
/// them, until a thread has had them dropped for good: a request may not wait for that, since a page that is being read is
/// dropped when its read is answered.
pub(crate) struct FilePages {
    keeper: Arc<KernelKeeper>,
    inode: u64,
    volume: VolumeId,
    /// How often they are still to be dropped.
    stale: Arc<AtomicU64>,
}

impl FilePages {
    /// Those of a file that has a volume from now on.
    pub(crate) fn new(keeper: &Arc<KernelKeeper>, inode: u64, volume: VolumeId) -> Self {
        keeper.files_mut().add(inode, volume);
        Self {
            keeper: Arc::clone(keeper),
            inode,
            volume,
            stale: Arc::default(),
        }
    }

    /// Whether the kernel knows their file by this number.
    pub(crate) fn are_of(&self, inode: u64) -> bool {
        self.inode == inode
    }

    /// The file does not have its volume any more. What is of its pages is unwanted.
    pub(crate) fn end(&self) {
        self.keeper.files_mut().remove(self.inode, self.volume);
    }

    /// None of them is known to be true any more: to be called before the change is known to others.
    pub(crate) fn are_stale(&self) {
        let mut queue = self.keeper.queue();
        queue.note_stale(self.inode, &self.stale);
        self.keeper.wake.notify_one();
    }

    /// Whether an open of the file may believe them.
    pub(crate) fn are_true(&self) -> bool {
        self.stale.load(SeqCst) == 0
    }
}
