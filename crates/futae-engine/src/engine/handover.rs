//! Volumes whose guest comes by live migration from another server, with a cache of its own over the same store.
//!
//! The other server writes to the store until the guest has come, and this one does not see these writes. What it reads before is
//! thus out of date afterwards. It is read nevertheless: QEMU looks at the first block when it starts, and waits for the guest
//! then. No protocol says when the guest comes. But QEMU writes nothing before. So until its first write such a volume is
//! not cached: every read goes to the store, and neither its data nor its hash is kept.

use super::state::State;
use futae_policy::VolumeId;

impl State {
    /// Whether the guest of a volume may not have come yet.
    pub fn awaits_guest(&self, volume: VolumeId) -> bool {
        self.volumes[usize::from(volume.0)].awaits_guest
    }

    /// A client writes to a volume: its guest is there.
    pub fn note_guest(&mut self, volume: VolumeId) {
        self.volumes[usize::from(volume.0)].awaits_guest = false;
    }
}
