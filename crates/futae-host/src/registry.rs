//! The connections of a server: who is there, how many may be, and how they are told to go.

use crate::status::{Traffic, TrafficCounters};
use rustix::fd::OwnedFd;
use rustix::net::{Shutdown, shutdown};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How far a connection has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not chosen an export.
    #[default]
    Handshake,
    /// It has been told to make room for another.
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
    pub(crate) traffic: TrafficCounters,
    phase: Mutex<Phase>,
}

impl Link {
    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, phase: Phase) {
        *self.phase() = phase;
    }
}

/// A connection's place in the registry; dropping it frees the place.
pub(crate) struct Place {
    registry: Arc<Registry>,
    id: u64,
    pub(crate) link: Arc<Link>,
}

impl Place {
    /// Counts the connection as one that broke the rules.
    pub(crate) fn blame(&self, why: String) {
        let mut inner = self.registry.lock();
        inner.totals.protocol_errors += 1;
        inner.totals.last_protocol_error = Some(why);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut inner = self.registry.lock();
        inner.links.remove(&self.id);
        inner.totals.traffic += self.link.traffic.read();
        drop(inner);
        self.registry.changed.notify_all();
    }
}

/// What was counted of connections, gone or not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) accepted: u64,
    pub(crate) turned_away: u64,
    pub(crate) protocol_errors: u64,
    pub(crate) last_protocol_error: Option<String>,
    pub(crate) traffic: Traffic,
}

#[derive(Default)]
struct Inner {
    /// In the order of their arrival.
    links: BTreeMap<u64, Arc<Link>>,
    next: u64,
    totals: Totals,
}

/// All connections of a server.
#[derive(Default)]
pub(crate) struct Registry {
    inner: Mutex<Inner>,
    changed: Condvar,
}

impl Registry {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a place for a new connection. Where `limit` are there already, the one that has
    /// dawdled longest over its handshake is dismissed; where there is none, the new one is
    /// turned away.
    pub(crate) fn admit(self: &Arc<Self>, socket: OwnedFd, limit: usize) -> Option<Place> {
        let mut inner = self.lock();
        let staying = inner
            .links
            .values()
            .filter(|link| *link.phase() != Phase::Dismissed)
            .count();
        if staying >= limit {
            let Some(dawdler) = inner
                .links
                .values()
                .find(|link| *link.phase() == Phase::Handshake)
            else {
                inner.totals.turned_away += 1;
                return None;
            };
            dawdler.enter(Phase::Dismissed);
            // Its thread sees the end of the stream.
            let _ = shutdown(&dawdler.socket, Shutdown::Both);
        }
        let id = inner.next;
        inner.next += 1;
        inner.totals.accepted += 1;
        let link = Link {
            socket,
            traffic: TrafficCounters::default(),
            phase: Mutex::default(),
        };
        let link = Arc::new(link);
        inner.links.insert(id, Arc::clone(&link));
        Some(Place {
            registry: Arc::clone(self),
            id,
            link,
        })
    }

    /// Ends every connection: `Shutdown::Read` lets them finish what they have under way.
    pub(crate) fn hang_up(&self, how: Shutdown) {
        for link in self.lock().links.values() {
            let _ = shutdown(&link.socket, how);
        }
    }

    /// Waits for all to be gone, and says how many are not.
    pub(crate) fn wait_empty(&self, timeout: Duration) -> usize {
        let deadline = Instant::now() + timeout;
        let mut inner = self.lock();
        while !inner.links.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            inner = self
                .changed
                .wait_timeout(inner, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(inner, _)| inner);
        }
        inner.links.len()
    }

    /// The phase of every connection, and what was counted.
    pub(crate) fn survey(&self) -> (Vec<Phase>, Totals) {
        let inner = self.lock();
        let phases = inner
            .links
            .values()
            .map(|link| link.phase().clone())
            .collect();
        let mut totals = inner.totals.clone();
        for link in inner.links.values() {
            totals.traffic += link.traffic.read();
        }
        (phases, totals)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_dawdler_makes_room_and_a_full_house_turns_away() {
        let registry = Arc::new(Registry::default());
        let join = || {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            (registry.admit(ours.into(), 2), theirs)
        };
        let (first, mut first_peer) = join();
        let (second, _second_peer) = join();
        let busy = Phase::Transmission {
            export: "a".into(),
            demotes: false,
        };
        second.as_ref().expect("room").link.enter(busy.clone());
        let (third, _third_peer) = join();
        assert_eq!(first_peer.read(&mut [0]).expect("dismissed"), 0);
        third
            .as_ref()
            .expect("the first made room")
            .link
            .enter(busy);
        assert!(join().0.is_none(), "both are busy");
        drop(first);
        assert_eq!(registry.wait_empty(Duration::from_millis(1)), 2);
        drop((second, third));
        assert_eq!(registry.wait_empty(Duration::from_secs(5)), 0);
        let totals = registry.survey().1;
        assert_eq!((totals.accepted, totals.turned_away), (3, 1));
    }
}
