//! One frontend of a virtual machine's disk, from its first message to its last.

use crate::budget::{Account, Budget};
use crate::connection::ConnectionOptions;
use crate::export::Entry;
use crate::mailbox::Mailbox;
use crate::quota::Quota;
use crate::rate::Turn;
use crate::registry::{ConnectionLimits, Place};
use crate::tenant::Tenant;
use futae_vhost::{Device, QUEUES_MAX, Room, VhostError};
use rustix::fd::BorrowedFd;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, warn};

/// How often a queue that waits for room tries again by itself, as a connection does: a ring may have been for one that
/// is about to leave.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// Serves a frontend until it disconnects.
pub(crate) fn serve(
    tenant: &Tenant,
    budget: &Arc<Budget>,
    place: &Place,
    options: &ConnectionOptions,
) -> Result<(), VhostError> {
    let Some(entry) = tenant.only() else {
        return Ok(());
    };
    let Entry {
        number: at,
        export,
        quota,
        rate,
        ..
    } = entry.clone();
    let limits = ConnectionLimits {
        of_server: options.connections_max,
        of_export: export.connections_max.unwrap_or(usize::MAX),
    };
    let link = &place.link;
    let Ok(socket) = link.socket.try_clone() else {
        return Ok(());
    };
    if !place.begin(&export.name, false, &limits) {
        return Ok(());
    }
    let _allotment = budget.place();
    let (peer, name) = (link.peer, &export.name);
    debug!(%peer, export = name, "frontend {peer} opened export {name}");
    // No image lock of QEMU's is on the way of a second machine.
    let others = place.others_on(name);
    if others > 0 && !export.is_read_only() {
        let others = match others {
            1 => "another client uses".to_owned(),
            others => format!("{others} others use"),
        };
        warn!(
            %peer, export = name,
            "a virtual machine of {peer} opened the writable export {name}, which {others}: unless that is a \
             migration, two guests that mount it destroy its file system; connections=1 of the export permits one"
        );
    }
    let device = Device {
        engine: Arc::clone(&export.engine),
        volume: export.volume,
        read_only: export.is_read_only(),
        serial: name.clone(),
    };
    if !tenant.still_has(&entry) {
        // The export was removed meanwhile.
        return Ok(());
    }
    let budget = Arc::clone(budget);
    let requests_max = options.limits.requests;
    let rooms = move || -> io::Result<Box<dyn Room>> {
        let mailbox = Arc::new(Mailbox::new()?);
        Ok(Box::new(QueueRoom {
            account: Account::of_queue(QUEUES_MAX as u64, &budget, at, &mailbox),
            quota: quota.clone(),
            turn: Turn::new(&rate, &mailbox),
            requests: 0,
            requests_max,
            mailbox,
            waits: false,
        }))
    };
    let (stream, traffic) = (UnixStream::from(socket), &link.disk_traffic);
    let (announcer, memory) = (&link.announcer, &link.disk_memory);
    let ended = futae_vhost::serve(stream, &device, rooms, traffic, announcer, memory);
    debug!(%peer, export = name, "frontend {peer} left export {name}");
    ended
}

/// The limits of one queue: the server's memory for requests, the export's quota and rates, and the
/// limits of a connection.
struct QueueRoom {
    account: Account,
    quota: Option<Arc<Quota>>,
    turn: Turn,
    requests: usize,
    requests_max: usize,
    mailbox: Arc<Mailbox>,
    /// It was refused a place by the quota.
    waits: bool,
}

impl QueueRoom {
    fn take_place(&mut self) -> bool {
        let quota = self.quota.as_ref();
        self.waits = quota.is_some_and(|quota| !quota.take(&self.mailbox));
        !self.waits
    }

    /// It does not want a place any longer.
    fn leave(&mut self) {
        if std::mem::take(&mut self.waits)
            && let Some(quota) = &self.quota
        {
            quota.leave(Some(&self.mailbox));
        }
    }
}

impl Drop for QueueRoom {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Room for QueueRoom {
    fn take(&mut self, carried_bytes: u64, held_bytes: u64) -> bool {
        let may_try = self.requests < self.requests_max && self.turn.admits(carried_bytes);
        if !may_try {
            self.leave();
        }
        if !may_try || !self.take_place() {
            self.account.step_aside();
            return false;
        }
        if !self.account.take(held_bytes) {
            if let Some(quota) = &self.quota {
                quota.give_back();
            }
            return false;
        }
        self.turn.used();
        self.requests += 1;
        true
    }

    fn give_back(&mut self, held_bytes: u64) {
        self.requests -= 1;
        self.account.give_back(held_bytes);
        if let Some(quota) = &self.quota {
            quota.give_back();
        }
    }

    fn wait(&self) -> Option<Duration> {
        let turn = self.turn.wait().unwrap_or(LOOK_INTERVAL);
        Some(turn.min(LOOK_INTERVAL))
    }

    fn rest(&mut self) {
        self.account.trim();
    }

    fn withdraw(&mut self) {
        self.account.withdraw();
        self.leave();
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        Some(self.mailbox.bell())
    }

    fn heard(&self) {
        self.mailbox.awake(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fair::Fair;
    use crate::rate::{Clock, Rate, RateLimits};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    fn room(budget: &Arc<Budget>, quota: &Arc<Quota>) -> QueueRoom {
        let mailbox = Arc::new(Mailbox::new().expect("an eventfd"));
        let rate = Rate::new("a", RateLimits::default(), &Clock::new(|| Duration::ZERO));
        QueueRoom {
            account: Account::of_queue(QUEUES_MAX as u64, budget, 0, &mailbox),
            quota: Some(Arc::clone(quota)),
            turn: Turn::new(&Arc::new(rate), &mailbox),
            requests: 0,
            requests_max: 256,
            mailbox,
            waits: false,
        }
    }

    fn is_rung(room: &QueueRoom) -> bool {
        let mut bell = [PollFd::from_borrowed_fd(room.mailbox.bell(), PollFlags::IN)];
        poll(&mut bell, Some(&Timespec::default())).expect("poll") > 0
    }

    #[test]
    fn a_queue_that_stops_passes_its_ring_on() {
        let budget = Arc::new(Budget::new(64 << 20, 512, 2));
        for (is_fair, is_dropped) in [(false, false), (false, true), (true, false), (true, true)] {
            // Two places of one export, or of two that share them.
            let fair = is_fair.then(|| Fair::new(2));
            let most = if is_fair { 9 } else { 2 };
            let quota = || {
                let part = fair.as_ref().map(|fair| fair.join(1));
                Arc::new(Quota::new("a", most, part))
            };
            let one = quota();
            let other = if is_fair { quota() } else { Arc::clone(&one) };
            let mut holder = room(&budget, &one);
            assert!(holder.take(512, 512) && holder.take(512, 512));
            let (mut stops, mut waits) = (room(&budget, &one), room(&budget, &other));
            assert!(!stops.take(512, 512) && !waits.take(512, 512));
            holder.give_back(512);
            let rung = is_rung(&stops);
            assert!(rung != is_rung(&waits), "one of them is to try again");
            let (mut first, second) = if rung { (stops, waits) } else { (waits, stops) };
            if is_dropped {
                drop(first);
            } else {
                first.withdraw();
            }
            assert!(
                is_rung(&second),
                "{is_fair} {is_dropped}: nobody else comes"
            );
        }
    }

    #[test]
    fn a_queue_that_waits_looks_again_though_nobody_rings() {
        let budget = Arc::new(Budget::new(64 << 20, 512, 1));
        let quota = Arc::new(Quota::new("a", 1, None));
        let (mut holder, mut waits) = (room(&budget, &quota), room(&budget, &quota));
        assert!(holder.take(512, 512) && !waits.take(512, 512));
        assert_eq!(waits.wait(), Some(LOOK_INTERVAL));
    }
}
