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
}

impl Room for QueueRoom {
    fn take(&mut self, carried_bytes: u64, held_bytes: u64) -> bool {
        let quota = self.quota.as_ref();
        let may_try = self.requests < self.requests_max
            && self.turn.admits(carried_bytes)
            && quota.is_none_or(|quota| quota.take(&self.mailbox));
        if !may_try {
            self.account.step_aside();
            return false;
        }
        if !self.account.take(held_bytes) {
            quota.inspect(|quota| quota.give_back());
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
        self.turn.wait()
    }

    fn rest(&mut self) {
        self.account.trim();
    }

    fn withdraw(&mut self) {
        self.account.withdraw();
    }

    fn bell(&self) -> Option<BorrowedFd<'_>> {
        Some(self.mailbox.bell())
    }

    fn heard(&self) {
        self.mailbox.awake(true);
    }
}
