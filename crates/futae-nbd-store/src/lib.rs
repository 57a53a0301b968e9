//! A volume behind an NBD connection, as a store of the engine.
//!
//! One connection carries any number of commands at a time. Each is sent as soon as the socket
//! accepts it, many together if many wait, and its reply is received into the buffer that waits for
//! it. If the server agreed to demotion (`docs/reference/wire.md`), evicted blocks travel the same
//! way.
//!
//! The cookie of a command is the operation's sequence number times 2^16, plus the number of the
//! command within the operation. Long operations are split to the server's longest payload, and
//! ranges that the server cannot address are widened to its smallest block.
//!
//! If the connection is lost, commands in flight and new ones are sent over the next connection,
//! for as long as callers are to wait ([`NbdStore::connect_with_timeout`]). By default they do not
//! wait. The store reconnects at once, then at increasing intervals, up to 8 s. If answered writes
//! were not covered by a FLUSH, and the new connection does not lead to the same run of the server,
//! the server may have lost them. So every FLUSH from before fails, or else the next one, once.

mod coverage;
mod error;
mod extents;
mod fence;
mod gather;
mod manager;
mod open;
mod order;
mod outbox;
mod pace;
mod receiver;
mod session;
mod shared;
mod socket;
mod sync;
mod task;
#[cfg(test)]
mod tests;
#[cfg_attr(feature = "tls", path = "tls/mod.rs")]
#[cfg_attr(not(feature = "tls"), path = "tls/absent.rs")]
mod tls;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, RwLock};
use std::thread;
use std::time::Duration;

use futae_engine::{Extent, IoBuf, IoError, IoErrorKind, Store, StoreDone, StoreOperation};

pub use error::ConnectError;
use extents::Extents;
use futae_nbd::client::ClientWish;
use futae_nbd::export::TransmissionFlags;
use futae_nbd::request::{Command, CommandFlags};
use futae_nbd::uri::NbdUri;
use open::{check_sizes, open};
use order::{Body, Finish, Order};
use session::Errand;
use shared::{LOST_WRITES, Shared};
use task::{COMMAND_BITS, Task};

/// How long a caller waits for the extents of a range.
const EXTENTS_TIMEOUT: Duration = Duration::from_secs(30);

/// A volume behind an NBD connection.
pub struct NbdStore {
    shared: Arc<Shared>,
    /// Whether writes are refused, even if the server accepts them.
    refuses_writes: bool,
    /// Whether its guest comes from another server.
    is_incoming: bool,
}

impl NbdStore {
    /// Checks whether an address can be used, without connecting.
    ///
    /// # Errors
    ///
    /// TLS without the directory of its certificates, or in a build without TLS.
    pub fn check(uri: &NbdUri) -> Result<(), ConnectError> {
        let Some(tls) = &uri.tls else { return Ok(()) };
        tls::check(tls).map_err(|problem| ConnectError::new(uri, problem))
    }

    /// Connects to a server and opens its export. `demotion_block_bytes`: negotiate demotion, for a
    /// cache with blocks of this size.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] names the address and what is wrong.
    pub fn connect(uri: &NbdUri, demotion_block_bytes: Option<u32>) -> Result<Self, ConnectError> {
        Self::connect_with_timeout(uri, demotion_block_bytes, Duration::ZERO)
    }

    /// As [`connect`](Self::connect), with a time limit for requests. A request that is not
    /// answered within `timeout` fails, and its connection is closed. While there is no connection,
    /// requests wait up to `timeout` for a new one. Zero: requests fail at once while disconnected,
    /// and never time out while a server is connected but silent. Each step of the handshake has the same limit, but 10 s at
    /// most.
    ///
    /// # Errors
    ///
    /// As [`connect`](Self::connect).
    pub fn connect_with_timeout(
        uri: &NbdUri,
        demotion_block_bytes: Option<u32>,
        timeout: Duration,
    ) -> Result<Self, ConnectError> {
        let wish = ClientWish {
            structured: true,
            base_allocation: true,
            demotion_block_bytes,
            identity: true,
        };
        let (socket, export) = open(uri, &wish, timeout)?;
        let name: Arc<str> = uri.to_string().into();
        check_sizes(&export).map_err(|problem| ConnectError::new(&name, problem))?;
        let (errands, receiver) = mpsc::channel();
        let session = manager::start(&name, 1, &errands, socket, export, timeout)?;
        let shared = Arc::new(Shared {
            uri: uri.clone(),
            name,
            wish,
            timeout,
            size_bytes: export.size_bytes,
            identity: export.identity.map(|identity| identity.volume),
            read_only: export.flags.contains(TransmissionFlags::READ_ONLY),
            errands,
            current: RwLock::new(session),
            fence: Arc::default(),
            lost_writes: AtomicBool::new(false),
            lost_writes_before: AtomicU64::new(0),
            latest: AtomicU64::new(0),
            status_requests: AtomicU64::new(0),
            hints_dropped: AtomicU64::new(0),
        });
        let store = Self {
            shared: Arc::clone(&shared),
            refuses_writes: false,
            is_incoming: false,
        };
        thread::Builder::new()
            .name("futae-nbd".into())
            .spawn(move || manager::run(&shared, &receiver))
            .map_err(|error| {
                store
                    .shared
                    .connect_error(format!("cannot start a thread: {error}"))
            })?;
        Ok(store)
    }

    /// Makes the store read-only, even if the server accepts writes.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.refuses_writes = true;
        self
    }

    /// Makes the store one whose guest comes by live migration from another server. It has no identity, so that nothing that was
    /// cached of it earlier is used.
    #[must_use]
    pub fn incoming(mut self) -> Self {
        self.is_incoming = true;
        self
    }

    /// Whether the server accepts eviction notices.
    #[must_use]
    pub fn takes_notices(&self) -> bool {
        self.shared.session().has(TransmissionFlags::SEND_CACHE)
    }

    /// Demotions and notices that were dropped because the server did not keep up.
    #[must_use]
    pub fn hints_dropped(&self) -> u64 {
        let earlier = self.shared.hints_dropped.load(Ordering::Relaxed);
        earlier + self.shared.session().outbox.hints_dropped()
    }

    /// [`Store::extents`], whose caller waits at most for `patience`.
    fn extents_within(
        &self,
        (offset, length): (u64, u64),
        patience: Duration,
    ) -> Result<Vec<Extent>, IoError> {
        let session = self.shared.session();
        let data = |length| Extent {
            length,
            hole: false,
        };
        let smallest = u64::from(session.export.minimum_block_bytes.max(1));
        let whole = offset.is_multiple_of(smallest) && length.is_multiple_of(smallest);
        if session.export.base_allocation_id.is_none() || !whole || length == 0 {
            return Ok(vec![data(length)]);
        }
        // For a longer range only the start is queried; the rest counts as data.
        let asked = length.min(u64::from(u32::MAX) / smallest * smallest);
        let (sender, answer) = mpsc::sync_channel(1);
        let number = self.shared.status_requests.fetch_add(1, Ordering::Relaxed) % (1 << 15);
        let latest = self.shared.latest.load(Ordering::Relaxed);
        let cookie = latest << COMMAND_BITS | 1 << 15 | number;
        let body = Body::Status(Extents::new(asked));
        let finish = Finish::Extents(sender);
        let order = Order::new(Command::BlockStatus, offset, asked as u32, body, finish);
        session.issue(cookie, order.with(CommandFlags::NONE, true));
        // It stays in flight if nobody waits any longer: a late reply must find it, or it would break the protocol.
        let answered = answer.recv_timeout(patience);
        let mut extents =
            answered.map_err(|_| session.error("the server does not answer BLOCK_STATUS"))??;
        let covered: u64 = extents.iter().map(|extent| extent.length).sum();
        if covered < length {
            extents.push(data(length - covered));
        }
        Ok(extents)
    }

    fn note(&self, sequence: u64) {
        self.shared.latest.fetch_max(sequence, Ordering::Relaxed);
    }
}

impl Store for NbdStore {
    fn identity(&self) -> Option<[u8; 16]> {
        self.shared.identity.filter(|_| !self.is_incoming)
    }

    fn is_incoming(&self) -> bool {
        self.is_incoming
    }

    fn size_bytes(&self) -> u64 {
        self.shared.size_bytes
    }

    fn describe(&self) -> String {
        let demotion = if self.takes_demotions() {
            ", takes demotions"
        } else {
            ""
        };
        format!("{}, 1 connection{demotion}", self.shared.name)
    }

    fn is_read_only(&self) -> bool {
        self.shared.read_only || self.refuses_writes
    }

    fn takes_trims(&self) -> bool {
        self.shared.session().has(TransmissionFlags::SEND_TRIM)
    }

    fn submit(&self, sequence: u64, operation: StoreOperation, done: StoreDone) {
        self.note(sequence);
        let session = self.shared.session();
        let writes = !matches!(
            operation,
            StoreOperation::Read { .. } | StoreOperation::Flush
        );
        if writes && self.is_read_only() {
            let error = session.error("the export is read-only");
            let error = IoError {
                kind: IoErrorKind::ReadOnly,
                ..error
            };
            return session.refuse(Finish::Store(done), error);
        }
        if matches!(operation, StoreOperation::Flush) {
            // The next connection tells whether writes were lost. Only a FLUSH that is sent waits for it.
            let is_in_doubt = session.is_lost() && session.has_unflushed_writes();
            let cannot_wait = !session.has(TransmissionFlags::SEND_FLUSH);
            if (is_in_doubt && cannot_wait) || self.shared.take_lost_writes() {
                return session.refuse(Finish::Store(done), session.error(LOST_WRITES));
            }
        }
        Task::new(session, Arc::clone(&self.shared.fence), sequence).run(operation, done);
    }

    fn together(&self, submit: &mut dyn FnMut()) {
        let session = self.shared.session();
        session.outbox.hold();
        submit();
        session.outbox.release(&session.socket);
    }

    fn takes_demotions(&self) -> bool {
        let block_bytes = self.shared.wish.demotion_block_bytes;
        let terms = self.shared.session().export.demotion;
        terms
            .zip(block_bytes)
            .is_some_and(|(terms, block_bytes)| terms.suits(block_bytes))
    }

    fn generation(&self) -> u64 {
        self.shared.session().generation
    }

    fn demote(&self, sequence: u64, generation: u64, offset: u64, data: IoBuf) {
        self.note(sequence);
        let session = self.shared.session();
        // Another client may have overwritten data from an earlier connection.
        if generation == session.generation {
            session.demote(sequence << COMMAND_BITS, offset, data);
        } else {
            self.shared.hints_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn notice(&self, sequence: u64, offset: u64, length: u64) {
        self.note(sequence);
        let session = self.shared.session();
        let smallest = u64::from(session.export.minimum_block_bytes.max(1));
        let whole = offset.is_multiple_of(smallest) && length.is_multiple_of(smallest);
        let Ok(length) = u32::try_from(length) else {
            return;
        };
        if whole && session.has(TransmissionFlags::SEND_CACHE) {
            if !session.has_room_for_notice() {
                self.shared.hints_dropped.fetch_add(1, Ordering::Relaxed);
                return;
            }
            let order = Order::new(
                Command::Cache,
                offset,
                length,
                Body::Nothing,
                Finish::Nobody,
            );
            session.issue(sequence << COMMAND_BITS, order);
        }
    }

    fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, IoError> {
        self.extents_within((offset, length), EXTENTS_TIMEOUT)
    }
}

impl Drop for NbdStore {
    fn drop(&mut self) {
        self.shared.session().finish();
        // Its thread may have failed to start.
        let _ = self.shared.errands.send(Errand::End);
    }
}
