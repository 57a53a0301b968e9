//! The life of a server: start, accept, report, stop.

use crate::budget::Budget;
use crate::connection::{self, End, Manners};
use crate::control;
use crate::export::ExportTable;
use crate::feed::{FeedOptions, Feeds};
use crate::listen::Listener;
use crate::pump::Limits;
use crate::registry::{Phase, Place, Registry};
use crate::status::{ExportReport, ServerStatus};
use crate::{Export, HostError, Listen};
use futae_control::{Control, EngineReport};
use futae_engine::{Engine, Operation, Request};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags, accept_with, sockopt};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// What a socket in a directory is called.
const SOCKET_NAME: &str = "futae.sock";
/// A connection's thread calls into the cache and no deeper.
const STACK_BYTES: usize = 512 * 1024;
/// Asked for on unix sockets, so that a batch of replies leaves at once.
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// How long to let be when descriptors or threads have run out.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(20);

/// How to serve.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Where clients connect.
    pub listen: Vec<Listen>,
    /// Where status is asked for and the cache resized, if anywhere.
    pub control: Option<Listen>,
    /// Whether clients may hand evicted blocks down.
    pub demotion: bool,
    /// Where agents in guests tell of what is evicted there.
    pub feeds: Vec<FeedOptions>,
    /// Whether the policy lives on what guests evict, so that without word of it the cache runs blind.
    pub lives_on_evictions: bool,
    /// Connections at a time. A newcomer beyond displaces the oldest in its handshake, if any.
    pub connections_max: usize,
    /// How long a handshake may take.
    pub handshake_timeout: Duration,
    /// Requests that one connection may have under way, replies that have not left included.
    pub requests_max: usize,
    /// The same in bytes.
    pub request_bytes_max: u64,
    /// Bytes that all connections together may make the server hold, at least
    /// [`crate::BUFFER_MEMORY_MIN`].
    pub buffer_memory_bytes: u64,
    /// How long a peer may neither send nor receive anything to speak of while others wait for the memory
    /// that it takes.
    pub stall_timeout: Duration,
    /// How long a stop waits for requests in flight, and how long a client that says goodbye may
    /// take to receive its replies.
    pub patience: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            listen: Vec::new(),
            control: None,
            demotion: true,
            feeds: Vec::new(),
            lives_on_evictions: false,
            connections_max: 512,
            handshake_timeout: Duration::from_secs(10),
            requests_max: 256,
            request_bytes_max: 64 << 20,
            buffer_memory_bytes: 256 << 20,
            stall_timeout: Duration::from_secs(10),
            patience: Duration::from_secs(10),
        }
    }
}

/// What a stop came to.
#[derive(Clone, Debug, Default)]
pub struct StopReport {
    /// What there was to say at the end.
    pub status: ServerStatus,
    /// Connections that did not end in time.
    pub abandoned_connections: usize,
    /// Exports that could not be flushed, with the reason.
    pub flush_errors: Vec<(String, String)>,
}

/// What every thread of a server shares.
pub(crate) struct Shared {
    pub(crate) exports: Arc<ExportTable>,
    pub(crate) registry: Arc<Registry>,
    budget: Arc<Budget>,
    pub(crate) options: ServerOptions,
    started: Instant,
    /// Taken at the end.
    feeds: Mutex<Option<Feeds>>,
    /// Becomes readable, for good, when the server stops.
    pub(crate) stop: OwnedFd,
}

/// A running server. It stops when dropped; [`Self::stop`] says how that went.
pub struct Server {
    shared: Arc<Shared>,
    addresses: Vec<Listen>,
    control: Option<Control>,
    acceptors: Vec<JoinHandle<()>>,
    stopped: bool,
}

impl Server {
    /// Starts to serve. If anything is in the way, nothing stays behind.
    pub fn start(options: ServerOptions, exports: Vec<Export>) -> Result<Self, HostError> {
        if options.listen.is_empty() {
            return Err(HostError::NoAddress);
        }
        let control_path = match &options.control {
            None => None,
            Some(Listen::Unix(path)) => Some(path.clone()),
            Some(control @ Listen::Tcp { .. }) => {
                let text = control.to_string();
                return Err(HostError::Address {
                    text,
                    problem: "orders are taken on unix sockets only",
                });
            }
        };
        let exports = Arc::new(ExportTable::new(exports, options.demotion)?);
        let listeners: Vec<Listener> = options
            .listen
            .iter()
            .map(|address| address.bind(SOCKET_NAME))
            .collect::<Result<_, _>>()?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
        let feeds = Feeds::start(&options.feeds, &exports, stop.as_fd())?;
        let budget = Budget::new(
            options.buffer_memory_bytes,
            options.connections_max,
            exports.all().len(),
        );
        let shared = Arc::new(Shared {
            budget: Arc::new(budget),
            exports,
            feeds: Mutex::new(Some(feeds)),
            registry: Arc::default(),
            options,
            started: Instant::now(),
            stop,
        });
        let mut server = Self {
            addresses: listeners
                .iter()
                .map(|listener| listener.address.clone())
                .collect(),
            control: None,
            acceptors: Vec::new(),
            stopped: false,
            shared,
        };
        for listener in listeners {
            server.accept_on(listener)?;
        }
        if let Some(path) = control_path {
            let orders = control::orders(&server.shared);
            server.control = Some(Control::start(&path, orders)?);
        }
        Ok(server)
    }

    fn accept_on(&mut self, listener: Listener) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let thread = Builder::new().name("accept".into()).stack_size(STACK_BYTES);
        self.acceptors
            .push(thread.spawn(move || accept_all(&shared, &listener))?);
        Ok(())
    }

    /// Where it listens: ports chosen by the system and sockets in directories by name.
    #[must_use]
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// Where it takes orders, if anywhere.
    #[must_use]
    pub fn control_path(&self) -> Option<&Path> {
        self.control.as_ref().map(Control::path)
    }

    /// What there is to say of it.
    #[must_use]
    pub fn status(&self) -> ServerStatus {
        self.shared.status()
    }

    /// Stops: no new connections, requests in flight are answered (but not waited for beyond
    /// [`ServerOptions::patience`]), volumes flushed, sockets removed.
    #[must_use]
    pub fn stop(mut self) -> StopReport {
        self.wind_down()
    }

    fn wind_down(&mut self) -> StopReport {
        if std::mem::replace(&mut self.stopped, true) {
            return StopReport::default();
        }
        let patience = self.shared.options.patience;
        let deadline = Instant::now() + patience;
        self.control = None;
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        for acceptor in self.acceptors.drain(..) {
            let _ = acceptor.join();
        }
        let feeds = self.shared.feeds().take();
        if let Some(feeds) = feeds {
            feeds.join();
        }
        let registry = &self.shared.registry;
        registry.hang_up(Shutdown::Read);
        if registry.wait_empty(patience) > 0 {
            registry.hang_up(Shutdown::Both);
        }
        let abandoned_connections = registry.wait_empty(Duration::from_millis(200));
        let left = deadline.saturating_duration_since(Instant::now());
        let flush_errors = flush_all(
            &self.shared.exports,
            left.max(Duration::from_secs(1)),
            patience,
        );
        for engine in self.shared.exports.engines() {
            engine.sync_log();
        }
        StopReport {
            status: self.status(),
            abandoned_connections,
            flush_errors,
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.wind_down();
    }
}

impl Shared {
    fn feeds(&self) -> MutexGuard<'_, Option<Feeds>> {
        self.feeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> ServerStatus {
        let (phases, totals) = self.registry.survey();
        let using = |wanted: &str| {
            let uses = |phase: &&Phase| matches!(phase, Phase::Transmission { export, .. } if export == wanted);
            phases.iter().filter(uses).count() as u64
        };
        let demoting = |wanted: &str| {
            let does = |phase: &Phase| matches!(phase, Phase::Transmission { export, demotes: true } if export == wanted);
            phases.iter().any(does)
        };
        let feeds = self.feeds();
        let held = self.budget.held();
        let demotes = |phase: &&Phase| matches!(phase, Phase::Transmission { demotes: true, .. });
        let busy = |phase: &&Phase| matches!(phase, Phase::Transmission { .. });
        let exports = self.exports.all().iter().map(|export| ExportReport {
            name: export.name.clone(),
            size_bytes: export.engine.volume_bytes(export.volume),
            read_only: export.is_read_only(),
            connections: using(&export.name),
            is_blind: self.options.lives_on_evictions
                && !demoting(&export.name)
                && !feeds.as_ref().is_some_and(|feeds| feeds.sees(&export.name)),
        });
        let engines = self.exports.engines();
        let engines = engines.iter().map(|engine| EngineReport {
            exports: self.names_on(engine),
            engine: engine.status(),
        });
        ServerStatus {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_seconds: self.started.elapsed().as_secs_f64(),
            connections: phases.len() as u64,
            handshakes: (phases.len() - phases.iter().filter(busy).count()) as u64,
            demotion_clients: phases.iter().filter(demotes).count() as u64,
            accepted: totals.accepted,
            turned_away: totals.turned_away,
            protocol_errors: totals.protocol_errors,
            last_protocol_error: totals.last_protocol_error,
            buffer_memory_bytes: held.budget,
            buffer_bytes: held.now,
            buffer_bytes_peak: held.peak,
            buffer_waiters: held.waiting,
            stalled_connections: held.stalled,
            traffic: totals.traffic,
            engines: engines.collect(),
            exports: exports.collect(),
            feeds: feeds.as_ref().map(Feeds::reports).unwrap_or_default(),
        }
    }

    fn names_on(&self, engine: &Arc<Engine>) -> Vec<String> {
        let on_it = self
            .exports
            .all()
            .iter()
            .filter(|export| Arc::ptr_eq(&export.engine, engine));
        on_it.map(|export| export.name.clone()).collect()
    }
}

/// Flushes every writable volume, all at once, and waits for `timeout` at most; while what is
/// dirty goes on to become less, for `patience` from each look at it.
fn flush_all(
    exports: &ExportTable,
    timeout: Duration,
    patience: Duration,
) -> Vec<(String, String)> {
    let dirty_blocks = || -> u64 {
        let engines = exports.engines();
        engines.iter().map(|engine| engine.dirty_blocks()).sum()
    };
    let mut dirty = dirty_blocks();
    let mut deadline = Instant::now() + timeout;
    let (sender, results) = mpsc::channel();
    let mut waiting: Vec<usize> = Vec::new();
    for (at, export) in exports.all().iter().enumerate() {
        if export.is_read_only() {
            continue;
        }
        let client = export.engine.join(export.volume);
        let sender = sender.clone();
        waiting.push(at);
        export.engine.submit(Request {
            volume: export.volume,
            client,
            sequence: 0,
            operation: Operation::Flush,
            done: Box::new(move |result| drop(sender.send((at, result)))),
        });
        export.engine.leave(export.volume, client);
    }
    let mut errors = Vec::new();
    let name = |at: usize| exports.all()[at].name.clone();
    while !waiting.is_empty() {
        let left = deadline.saturating_duration_since(Instant::now());
        let Ok((at, result)) = results.recv_timeout(left) else {
            let now = dirty_blocks();
            if now < dirty {
                dirty = now;
                deadline = Instant::now() + patience.max(Duration::from_secs(1));
                continue;
            }
            let stuck = waiting.drain(..);
            errors.extend(stuck.map(|at| (name(at), "the store does not answer".to_owned())));
            break;
        };
        waiting.retain(|&other| other != at);
        if let Err(error) = result {
            errors.push((name(at), error.to_string()));
        }
    }
    errors
}

fn accept_all(shared: &Arc<Shared>, listener: &Listener) {
    loop {
        let mut fds = [
            PollFd::new(&shared.stop, PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        let polled = poll(&mut fds, None);
        if polled.is_ok() && fds[0].revents().contains(PollFlags::IN) {
            return;
        }
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                prepare(&socket, listener.is_tcp());
                welcome(shared, socket);
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            // Descriptors or memory have run out; they come back when connections end.
            Err(_) => std::thread::sleep(SHORTAGE_PAUSE),
        }
    }
}

/// Options that make a socket faster or notice a dead peer; it works without them.
fn prepare(socket: &OwnedFd, tcp: bool) {
    if tcp {
        let _ = sockopt::set_tcp_nodelay(socket, true);
        let _ = sockopt::set_socket_keepalive(socket, true);
    } else if sockopt::set_socket_send_buffer_size_force(socket, SEND_BUFFER_BYTES).is_err() {
        // Without privilege, as much as the system's limit allows.
        let _ = sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER_BYTES);
    }
}

fn welcome(shared: &Arc<Shared>, socket: OwnedFd) {
    let options = &shared.options;
    let Some(place) = shared.registry.admit(socket, options.connections_max) else {
        return;
    };
    let (exports, budget) = (Arc::clone(&shared.exports), Arc::clone(&shared.budget));
    let manners = Manners {
        handshake_timeout: options.handshake_timeout,
        limits: Limits {
            requests: options.requests_max.max(1),
            bytes: options.request_bytes_max.max(1),
            linger: options.patience,
            stall: options.stall_timeout,
        },
    };
    let thread = Builder::new()
        .name("connection".into())
        .stack_size(STACK_BYTES);
    // Without a thread the place is dropped, and with it the connection.
    if thread
        .spawn(move || look_after(&exports, &budget, &place, &manners))
        .is_err()
    {
        std::thread::sleep(SHORTAGE_PAUSE);
    }
}

fn look_after(exports: &Arc<ExportTable>, budget: &Arc<Budget>, place: &Place, manners: &Manners) {
    match connection::serve(exports, budget, &place.link, manners) {
        End::Gone => {}
        End::TooSlow => place.blame("the handshake took too long".to_owned()),
        End::Broken(error) => place.blame(error.to_string()),
    }
}
