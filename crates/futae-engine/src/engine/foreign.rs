//! Changes that other programs make to a store while no client has its volume open.
//!
//! Locks keep QEMU's programs and other servers away from an image, but not `cp`, `dd` or a repair from outside. While the guest is
//! off such a change is legitimate: a backup is restored, a file system is checked. The guest must not see a mix of what the cache
//! has from before and what the image has now when it starts again. So the [stamp](crate::StoreStamp) of the store is noted once no
//! client has the volume open and the store is at rest. When the first client comes and the stamp is another one, what was cached is
//! dropped. Stores without stamps, such as devices, are not watched.

use super::flights::Span;
use super::front::Engine;
use super::state::State;
use crate::Store;
use futae_policy::VolumeId;
use std::sync::{Arc, PoisonError};
use tracing::warn;

/// A store at rest, after so many writes.
struct AtRest {
    store: Arc<dyn Store>,
    writes: u64,
}

impl Engine {
    /// Whether a change that another program makes now would be seen when the next client comes: no client has the volume open, and the
    /// stamp of its store is noted. For tests.
    pub fn sees_changes(&self, volume: VolumeId) -> bool {
        let state = self.lock();
        let known = &state.volumes[usize::from(volume.0)];
        let noted = known
            .watch
            .noted
            .filter(|&(after, _)| after == known.watch.writes);
        noted.is_some() && !known.losses.has_clients()
    }

    /// Before a client is registered: what other programs have changed while there was none is not in the cache any more.
    pub(super) fn look_before_joining(&self, volume: VolumeId) {
        let looking = {
            let state = self.lock();
            let known = &state.volumes[usize::from(volume.0)];
            if known.losses.has_clients() || known.grows {
                return;
            }
            Arc::clone(&known.watch.looking)
        };
        let _looks = looking.lock().unwrap_or_else(PoisonError::into_inner);
        let (store, writes, noted) = {
            let state = self.lock();
            let known = &state.volumes[usize::from(volume.0)];
            let Some((writes, noted)) = known.watch.noted else {
                return;
            };
            if known.losses.has_clients() || writes != known.watch.writes {
                return;
            }
            (Arc::clone(&known.store), writes, noted)
        };
        // Without the lock: the call may wait for a disk.
        let Some(stamp) = store.stamp().filter(|stamp| *stamp != noted) else {
            return;
        };
        let blocks = Span::all_of(volume);
        let (mut next, mut dropped) = (Some(0), 0);
        while let Some(from) = next {
            next = self.quiet_step(|state| {
                let before = state.resident_blocks(volume);
                let left = state.invalidate_some(&blocks, from);
                dropped += before - state.resident_blocks(volume);
                left
            });
            self.state.give_way();
        }
        let mut state = self.lock();
        state.forget_contents(&blocks);
        let known = &mut state.volumes[usize::from(volume.0)];
        known.watch.noted = Some((writes, stamp));
        let name = &known.name;
        warn!(
            volume = name,
            "{name}: another program has changed it while no client had it open: {dropped} blocks were dropped from the cache"
        );
    }

    /// After the last client has left, and from time to time: notes the stamp of a store that is at rest.
    pub(super) fn note_unused(&self, volume: VolumeId) {
        let Some(AtRest { store, writes }) = self.lock().unused_at_rest(volume) else {
            return;
        };
        // Without the lock: the call may wait for a disk.
        let stamp = store.stamp();
        let mut state = self.lock();
        let now_ns = state.world.wall_ns();
        let Some(known) = state.volumes.get_mut(usize::from(volume.0)) else {
            return;
        };
        known.watch.is_unstamped = stamp.is_none();
        if known.watch.writes == writes {
            known.watch.noted = stamp
                .filter(|stamp| stamp.is_settled(now_ns))
                .map(|stamp| (writes, stamp));
        }
    }

    /// Whether the stamp of a store is yet to be noted.
    pub(super) fn has_unnoted(&self) -> bool {
        self.lock().unnoted().next().is_some()
    }

    /// The same as [`note_unused`](Self::note_unused) for all volumes.
    pub(super) fn note_all_unused(&self) {
        let unnoted: Vec<VolumeId> = self.lock().unnoted().collect();
        unnoted
            .into_iter()
            .for_each(|volume| self.note_unused(volume));
    }
}

impl State {
    fn resident_blocks(&self, volume: VolumeId) -> u64 {
        self.volumes[usize::from(volume.0)].residents.count()
    }

    /// Volumes whose stamp is to be noted.
    fn unnoted(&self) -> impl Iterator<Item = VolumeId> {
        let all = (0..self.volumes.len()).map(|at| VolumeId(at as u16));
        all.filter(|volume| self.unused_at_rest(*volume).is_some())
    }

    /// The store of a volume that nobody uses, if its stamp is to be noted.
    fn unused_at_rest(&self, volume: VolumeId) -> Option<AtRest> {
        let known = self.volumes.get(usize::from(volume.0))?;
        let writes = known.watch.writes;
        let noted = known.watch.noted.filter(|&(after, _)| after == writes);
        let is_used = known.losses.has_clients() || !known.losses.has_had_clients();
        let is_watched = !known.watch.is_unstamped && !known.grows && !known.is_gone;
        // The cheap questions first: a mounted tree has a volume for each of its files.
        if noted.is_some()
            || !is_watched
            || is_used
            || known.dirt.len() > 0
            || self.writes_under_way(volume)
        {
            return None;
        }
        Some(AtRest {
            store: Arc::clone(&known.store),
            writes,
        })
    }
}
