//! The connections of a server: their list, their limits, and how they are closed.

use crate::peer::Peer;
use crate::refusals::{Reason, Refusals};
use crate::traffic::{Traffic, TrafficCounters, of_disk};
use futae_vhost::GuestMemory;
use rustix::fd::OwnedFd;
use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The phase of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not chosen an export.
    #[default]
    Handshake,
    /// It is being closed to make room for another.
    Dismissed,
    /// It uses an export.
    Transmission {
        /// The export's name.
        export: String,
        /// Whether it may demote.
        demotes: bool,
    },
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) socket: OwnedFd,
    pub(crate) peer: Peer,
    /// The address on which it connected.
    pub(crate) gate: Arc<str>,
    /// It stops by itself between two requests when the server stops, and its client is kept.
    parts: AtomicBool,
    /// Nothing more is received on it: the server stops.
    is_hung_up: AtomicBool,
    pub(crate) traffic: TrafficCounters,
    /// The traffic of a virtual machine's disk.
    pub(crate) disk_traffic: Arc<futae_vhost::Traffic>,
    /// Announces changes, if it is a virtual machine's disk.
    pub(crate) announcer: futae_vhost::Announcer,
    /// The memory of the virtual machine.
    pub(crate) disk_memory: GuestMemory,
    phase: Mutex<Phase>,
    /// The export that it has chosen. It stays set while the connection exists, dismissed or not.
    used: OnceLock<String>,
}

impl Link {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it stops by itself when the server stops.
    pub(crate) fn parts(&self) {
        self.parts.store(true, Ordering::Release);
    }

    fn is_in_handshake(&self) -> bool {
        *self.phase() == Phase::Handshake
    }

    fn all_traffic(&self) -> Traffic {
        let mut all = self.traffic.read();
        all += of_disk(&self.disk_traffic);
        all
    }

    fn uses(&self, wanted: Option<&str>) -> bool {
        matches!(&*self.phase(), Phase::Transmission { export, .. }
            if wanted.is_none_or(|wanted| wanted == export))
    }

    /// Whether it was dismissed and may still have requests under way: a store that does not answer keeps its thread.
    fn is_ending(&self) -> bool {
        *self.phase() == Phase::Dismissed && self.used.get().is_some()
    }

    /// Whether it may have requests of an export under way.
    fn has_used(&self, wanted: &str) -> bool {
        self.used.get().is_some_and(|export| export == wanted)
    }

    fn dismiss(&self) {
        *self.phase() = Phase::Dismissed;
        // Its thread then sees the end of the stream.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }
}

/// A connection's place in the registry, freed when dropped.
pub(crate) struct Place {
    registry: Arc<Registry>,
    id: u64,
    pub(crate) link: Arc<Link>,
}

impl Place {
    /// Counts the connection as one that violated the protocol.
    pub(crate) fn blame(&self, why: &str) {
        let mut inner = self.registry.lock();
        inner.totals.protocol_errors += 1;
        inner.totals.last_protocol_error = Some(futae_agent_protocol::printable(why));
    }

    /// Logs that the client is refused, or its connection ended.
    pub(crate) fn refuse(&self, reason: Reason, text: &str) {
        self.registry.refusals.note(reason, &self.link.peer, text);
    }

    /// Ends the handshake: the connection uses an export from now on, unless the server stops. If the server or the export
    /// has reached its limit, a connection of a peer that has more makes room. If there is none,
    /// this connection is turned away, and also if as many of its user's as the server may have made room and have not ended.
    pub(crate) fn begin(&self, export: &str, demotes: bool, limits: &ConnectionLimits) -> bool {
        let mut inner = self.registry.lock();
        let is_hung_up = self.link.is_hung_up.load(Ordering::Relaxed);
        if is_hung_up || *self.link.phase() != Phase::Handshake {
            return false;
        }
        let user = self.link.peer.user;
        let is_ending = |link: &&Arc<Link>| link.peer.user == user && link.is_ending();
        let ending = inner.links.values().filter(is_ending).count();
        if ending >= limits.of_server {
            inner.totals.turned_away += 1;
            let text = format!(
                "refused: {ending} connections of the same user were ended to make room and still wait for requests that a \
                 store does not answer"
            );
            self.refuse(Reason::Full, &text);
            return false;
        }
        let by_export = (limits.of_export, Some(export));
        for (limit, export) in [by_export, (limits.of_server, None)] {
            let those = inner.links.values().filter(|link| link.uses(export));
            let those: Vec<_> = those.collect();
            if those.len() < limit {
                continue;
            }
            let of =
                export.map_or_else(|| "the server".to_owned(), |name| format!("export {name}"));
            let Some(hog) = hog(&those, &self.link.peer) else {
                inner.totals.turned_away += 1;
                let text = format!(
                    "refused: {of} has {limit} connections, as many as it may have, and no other client has more than \
                     this one; raise connections=N of the export or --connections-max"
                );
                self.refuse(Reason::Full, &text);
                return false;
            };
            hog.dismiss();
            let dismissed = hog.peer;
            inner.totals.dismissed += 1;
            let text = format!(
                "one of its connections was ended to make room for client {}: {of} has {limit}, as many as it may have",
                self.link.peer
            );
            self.registry
                .refusals
                .note(Reason::Dismissed, &dismissed, &text);
        }
        let export = export.to_owned();
        let _ = self.link.used.set(export.clone());
        *self.link.phase() = Phase::Transmission { export, demotes };
        true
    }

    /// How many other connections use an export.
    pub(crate) fn others_on(&self, export: &str) -> usize {
        let inner = self.registry.lock();
        let is_other = |link: &&Arc<Link>| !Arc::ptr_eq(link, &self.link);
        let others = inner.links.values().filter(is_other);
        others.filter(|link| link.uses(Some(export))).count()
    }
}

/// Limits on connections that use exports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionLimits {
    pub(crate) of_server: usize,
    pub(crate) of_export: usize,
}

/// The connection that makes room for one more of `newcomer`: the latest connection of the process
/// with the most connections, of the user with the most; otherwise of the newcomer's own user.
/// `None` if that peer would then have fewer than the newcomer's.
fn hog<'a>(links: &[&'a Arc<Link>], newcomer: &Peer) -> Option<&'a Arc<Link>> {
    let of_user = |user| {
        let those = links.iter().filter(move |link| link.peer.user == user);
        those.copied().collect::<Vec<_>>()
    };
    let (user, count) = most(links.iter().map(|link| link.peer.user))?;
    let others = of_user(user);
    if count >= of_user(newcomer.user).len() + 2 {
        let (process, _) = most(others.iter().map(|link| link.peer.process))?;
        return latest_of(&others, process);
    }
    let own = of_user(newcomer.user);
    let (process, count) = most(own.iter().map(|link| link.peer.process))?;
    let same = own.iter().filter(|link| link.peer == *newcomer);
    (count >= same.count() + 2).then(|| latest_of(&own, process))?
}

fn latest_of<'a>(links: &[&'a Arc<Link>], process: u32) -> Option<&'a Arc<Link>> {
    let mut backwards = links.iter().rev();
    backwards.find(|link| link.peer.process == process).copied()
}

/// The most frequent key, and its count.
fn most<K: Ord>(keys: impl Iterator<Item = K>) -> Option<(K, usize)> {
    let mut counts: BTreeMap<K, usize> = BTreeMap::new();
    for key in keys {
        *counts.entry(key).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count)
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.registry.lock();
        inner.links.remove(&self.id);
        inner.totals.traffic += self.link.all_traffic();
        drop(inner);
        self.registry.changed.notify_all();
    }
}

/// Counters of connections, including closed ones.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) accepted: u64,
    pub(crate) turned_away: u64,
    pub(crate) dismissed: u64,
    pub(crate) protocol_errors: u64,
    pub(crate) last_protocol_error: Option<String>,
    pub(crate) traffic: Traffic,
}

#[derive(Default)]
struct Inner {
    /// In order of arrival.
    links: BTreeMap<u64, Arc<Link>>,
    next: u64,
    totals: Totals,
}

/// All connections of a server.
#[derive(Default)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    changed: Condvar,
    pub(crate) refusals: Refusals,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a place for a new connection. If `handshakes_max` handshakes are under way, the oldest
    /// one of the peer with the most is dismissed.
    pub(crate) fn admit(
        self: &Arc<Self>,
        socket: OwnedFd,
        peer: Peer,
        gate: &Arc<str>,
        handshakes_max: usize,
    ) -> Place {
        let mut inner = self.lock();
        let greeting = inner.links.values().filter(|link| link.is_in_handshake());
        let greeting: Vec<_> = greeting.collect();
        if greeting.len() >= handshakes_max {
            let most = most(greeting.iter().map(|link| link.peer));
            let is_most = |link: &&&Arc<Link>| most.is_some_and(|(peer, _)| peer == link.peer);
            if let Some(dawdler) = greeting.iter().find(is_most) {
                dawdler.dismiss();
                let dismissed = dawdler.peer;
                inner.totals.dismissed += 1;
                let text = format!(
                    "its handshake was ended to make room: {handshakes_max} clients have begun one and not chosen an export"
                );
                self.refusals.note(Reason::Dismissed, &dismissed, &text);
            }
        }
        let id = inner.next;
        inner.next += 1;
        inner.totals.accepted += 1;
        let link = Link {
            socket,
            peer,
            gate: Arc::clone(gate),
            parts: AtomicBool::new(false),
            is_hung_up: AtomicBool::new(false),
            traffic: TrafficCounters::default(),
            disk_traffic: Arc::default(),
            announcer: futae_vhost::Announcer::default(),
            disk_memory: GuestMemory::default(),
            phase: Mutex::default(),
            used: OnceLock::new(),
        };
        let link = Arc::new(link);
        inner.links.insert(id, Arc::clone(&link));
        Place {
            registry: Arc::clone(self),
            id,
            link,
        }
    }

    /// Number of connections, including those that were asked to end.
    pub(crate) fn count(&self) -> usize {
        self.lock().links.len()
    }

    /// Counts a connection that was closed at once.
    pub(crate) fn turn_away(&self) {
        self.lock().totals.turned_away += 1;
    }

    /// Ends every connection: `Shutdown::Read` lets them finish requests under way.
    pub(crate) fn hang_up(&self, how: Shutdown) {
        for link in self.lock().links.values() {
            let _ = shutdown(&link.socket, how);
        }
    }

    /// Lets every connection that does not stop by itself finish its requests under way.
    pub(crate) fn hang_up_on_others(&self) {
        for link in self.lock().links.values() {
            if !link.parts.load(Ordering::Acquire) {
                // Under the lock, and so known to one that would use an export only now.
                link.is_hung_up.store(true, Ordering::Relaxed);
                let _ = shutdown(&link.socket, Shutdown::Read);
            }
        }
    }

    /// Number of connections that use an export.
    pub(crate) fn users(&self, export: &str) -> usize {
        let inner = self.lock();
        let links = inner.links.values();
        links.filter(|link| link.has_used(export)).count()
    }

    /// Informs the disks of an export that their configuration has changed. Returns how many were
    /// informed.
    pub(crate) fn announce(&self, export: &str) -> usize {
        let inner = self.lock();
        let links = inner.links.values().filter(|link| link.has_used(export));
        links.filter(|link| link.announcer.config_changed()).count()
    }

    /// The memory of the machines that have one of these exports as a disk, in order of connection.
    pub(crate) fn memories(&self, exports: &[&str]) -> Vec<GuestMemory> {
        let inner = self.lock();
        let uses_any = |link: &&Arc<Link>| exports.iter().any(|export| link.uses(Some(export)));
        let those = inner.links.values().filter(uses_any);
        those
            .map(|link| link.disk_memory.clone())
            .filter(GuestMemory::is_there)
            .collect()
    }

    /// Ends the connections that use an export.
    pub(crate) fn hang_up_on(&self, export: &str) {
        let inner = self.lock();
        for link in inner.links.values().filter(|link| link.has_used(export)) {
            let _ = shutdown(&link.socket, Shutdown::Both);
        }
    }

    /// Waits until all connections are closed. Returns how many are not.
    pub(crate) fn wait_empty(&self, timeout: Duration) -> usize {
        self.wait_without(None, timeout)
    }

    /// Waits until the connections of an export, or all, are closed. Returns how many are not.
    pub(crate) fn wait_without(&self, export: Option<&str>, timeout: Duration) -> usize {
        let deadline = Instant::now() + timeout;
        let mut inner = self.lock();
        let those = |inner: &Inner| {
            let is_one = |link: &&Arc<Link>| export.is_none_or(|name| link.has_used(name));
            inner.links.values().filter(is_one).count()
        };
        while those(&inner) > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self
                .changed
                .wait_timeout(inner, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(inner, _)| inner);
        }
        those(&inner)
    }

    /// The phase of every connection, and the counters.
    pub(crate) fn survey(&self) -> (Vec<Phase>, Totals) {
        let inner = self.lock();
        let phases = inner
            .links
            .values()
            .map(|link| link.phase().clone())
            .collect();
        let mut totals = inner.totals.clone();
        for link in inner.links.values() {
            totals.traffic += link.all_traffic();
        }
        (phases, totals)
    }
}

#[cfg(test)]
mod random;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn peer(user: u32, process: u32) -> Peer {
        Peer {
            user: u128::from(user),
            process,
        }
    }

    const LIMITS: ConnectionLimits = ConnectionLimits {
        of_server: 4,
        of_export: usize::MAX,
    };

    #[test]
    fn who_dawdles_most_makes_room_and_newcomers_are_let_in() {
        let registry = Arc::new(Registry::default());
        let join = |peer| {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            (
                registry.admit(ours.into(), peer, &"unix:a".into(), 3),
                theirs,
            )
        };
        let (modest, _modest_peer) = join(peer(1, 1));
        let (first, mut first_peer) = join(peer(2, 2));
        let (_second, _second_peer) = join(peer(2, 2));
        let (third, _third_peer) = join(peer(2, 2));
        assert_eq!(first_peer.read(&mut [0]).expect("dismissed"), 0);
        assert!(!first.begin("a", false, &LIMITS));
        assert!(
            modest.begin("a", false, &LIMITS),
            "though it was the oldest"
        );
        assert!(third.begin("a", false, &LIMITS));
        drop((first, modest, third));
        drop(_second);
        assert_eq!(registry.wait_empty(Duration::from_secs(5)), 0);
    }

    #[test]
    fn connections_that_cannot_end_are_no_more_than_the_limit() {
        let registry = Arc::new(Registry::default());
        let mut peers = Vec::new();
        let mut join = |peer| {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            peers.push(theirs);
            registry.admit(ours.into(), peer, &"unix:a".into(), 100)
        };
        let begin = |place: &Place| place.begin("a", false, &LIMITS);
        // All of one process wait for a store. The other one of the user comes, takes the place of one of them, and leaves.
        let mut waiting = Vec::new();
        let mut is_refused = false;
        for _ in 0..100 {
            let place = join(peer(1, 1));
            if begin(&place) {
                waiting.push(place);
            }
            let place = join(peer(1, 2));
            is_refused |= !begin(&place);
        }
        let most = 2 * LIMITS.of_server;
        assert!(waiting.len() <= most, "{} threads wait", waiting.len());
        assert!(is_refused);
        let other = join(peer(2, 3));
        assert!(begin(&other), "another user is let in");
        // The store answers.
        drop((waiting, other));
        assert!(begin(&join(peer(1, 1))));
    }

    #[test]
    fn who_has_most_makes_room_but_not_for_one_who_has_as_much() {
        let registry = Arc::new(Registry::default());
        let mut peers = Vec::new();
        let mut join = |peer| {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            peers.push(theirs);
            registry.admit(ours.into(), peer, &"unix:a".into(), 100)
        };
        let begin = |place: &Place| place.begin("a", false, &LIMITS);
        let hogs: Vec<_> = (0..5).map(|_| join(peer(1, 1))).collect();
        assert!(hogs[..4].iter().all(begin));
        assert!(!begin(&hogs[4]), "not for its own");
        let process = join(peer(1, 2));
        assert!(begin(&process), "another process of the same user");
        let user = join(peer(2, 3));
        assert!(begin(&user), "another user");
        let phases = registry.survey().0;
        let busy = |phase: &&Phase| matches!(phase, Phase::Transmission { .. });
        assert_eq!(phases.iter().filter(busy).count(), 4);
        let again = join(peer(1, 2));
        assert!(
            !begin(&again),
            "it would have as much as those that are there"
        );
        let narrow = ConnectionLimits {
            of_export: 1,
            ..LIMITS
        };
        drop(hogs);
        let (one, other) = (join(peer(3, 4)), join(peer(3, 4)));
        assert!(one.begin("b", false, &narrow) && !other.begin("b", false, &narrow));
        let totals = registry.survey().1;
        assert_eq!((totals.turned_away, totals.dismissed), (3, 2));
    }
}
