//! The life of a server: start, accept, report, stop.

use crate::accept::{STACK_BYTES, accept_all};
use crate::budget::Budget;
use crate::control;
use crate::export::ExportTable;
use crate::feed::{Feeds, Route};
use crate::gate::SOCKET_NAME;
use crate::kept_clients::Parting;
use crate::listener::Listener;
use crate::options::ServerOptions;
use crate::pulse::Pulse;
use crate::rate::RateLimits;
use crate::registry::Registry;
use crate::shared::Shared;
use crate::status::ServerStatus;
use crate::stop::Flushes;
use crate::tenant::Tenant;
use crate::tls::Tls;
use crate::{Export, HostError, Listen, PendingExport};
use futae_control::Control;
use futae_engine::Engine;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::AsFd;
use rustix::net::Shutdown;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use tracing::{error, info};

/// The result of a stop.
#[derive(Clone, Debug, Default)]
pub struct StopReport {
    /// The final status.
    pub status: ServerStatus,
    /// Connections that did not end in time.
    pub abandoned_connections: usize,
    /// Exports that could not be flushed, with the reason.
    pub flush_errors: Vec<(String, String)>,
}

/// A running server. It stops when dropped; [`Self::stop`] reports the result.
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    pub(crate) addresses: Vec<Listen>,
    /// For each address: whether clients need TLS.
    pub(crate) encrypted: Vec<bool>,
    /// For each address: the exports that it serves.
    pub(crate) tenants: Vec<Tenant>,
    control: Option<Control>,
    acceptors: Vec<JoinHandle<()>>,
    stopped: bool,
}

impl Server {
    /// Starts to serve. On an error nothing stays behind.
    pub fn start(options: ServerOptions, exports: Vec<Export>) -> Result<Self, HostError> {
        let gates = options.all_gates();
        if gates.is_empty() {
            return Err(HostError::NoAddress);
        }
        let control_path = match &options.control {
            None => None,
            Some(Listen::Unix(path)) => Some(path.clone()),
            Some(control @ (Listen::Tcp { .. } | Listen::VhostUser(_))) => {
                let text = control.to_string();
                return Err(HostError::Address {
                    text,
                    problem: "a control socket is a unix socket".into(),
                });
            }
        };
        let routes = Route::of_all(&options, &exports)?;
        let disks = routes.iter().filter_map(Route::disk);
        let disks = disks.collect::<Result<_, HostError>>()?;
        let exports = Arc::new(ExportTable::new(
            exports,
            disks,
            options.demotion,
            &options.clock,
            options.requests_together,
        )?);
        let tls = options.tls.as_ref();
        let tls = tls.map(Tls::new).transpose()?;
        let mut listeners = Vec::new();
        for gate in gates {
            let is_disk = matches!(gate.address, Listen::VhostUser(_));
            // A disk keeps its export when others are added.
            let sole = exports.all();
            let sole = sole.first().filter(|_| is_disk && sole.len() == 1);
            let name = gate.export.as_deref();
            let name = name.or(sole.map(|export| export.name.as_str()));
            let tenant = Tenant::new(&exports, name);
            let tenant = tenant.ok_or_else(|| HostError::NoSuchTenant {
                name: gate.export.clone().unwrap_or_default(),
                address: gate.address.to_string(),
            })?;
            if is_disk && tenant.only().is_none() {
                let address = gate.address.to_string();
                return Err(HostError::WhichExport { address });
            }
            let listener = gate.bind(SOCKET_NAME, options.may_be_reached(&gate))?;
            listeners.push((listener, tenant));
        }
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(io::Error::from)?;
        let registry: Arc<Registry> = Arc::default();
        let feeds = Feeds::start(
            (&options.feeds, &options.relays),
            routes,
            &registry,
            stop.as_fd(),
        )?;
        let budget = Budget::new(
            options.buffer_memory_bytes,
            options.connections_max + options.handshakes_max(),
            exports.count(),
        );
        let tenants = listeners.iter().map(|(_, tenant)| tenant.name());
        let gated = tenants.clone().flatten().map(str::to_owned).collect();
        let serves_all = tenants.clone().any(|name| name.is_none());
        let heartbeat = options.heartbeat.clone();
        let pulse = heartbeat.map(|heartbeat| Pulse::new(heartbeat, listeners.len()));
        let parting = options.keeps_clients.then(Parting::new).transpose()?;
        let shared = Arc::new(Shared {
            pulse,
            parting: parting.map(Arc::new),
            changing: Mutex::default(),
            adding: Mutex::default(),
            gated: (gated, serves_all),
            budget: Arc::new(budget),
            exports,
            feeds: Mutex::new(Some(feeds)),
            registry,
            options,
            tls,
            started: Instant::now(),
            stop,
        });
        let has_tls = shared.tls.is_some();
        let needs_tls =
            |listener: &Listener| has_tls && !listener.is_in_the_clear && !listener.is_vhost_user();
        let mut server = Self {
            encrypted: listeners
                .iter()
                .map(|(listener, _)| needs_tls(listener))
                .collect(),
            addresses: listeners
                .iter()
                .map(|(listener, _)| listener.address.clone())
                .collect(),
            tenants: listeners.iter().map(|(_, tenant)| tenant.clone()).collect(),
            control: None,
            acceptors: Vec::new(),
            stopped: false,
            shared,
        };
        let tls = server.shared.options.tls.as_ref();
        tls.into_iter().for_each(|tls| server.remark_on_rules(tls));
        for (listener, tenant) in listeners {
            server.accept_on(listener, tenant)?;
        }
        if let Some(path) = control_path {
            let orders = control::orders(&server.shared);
            let access = server.shared.options.control_access;
            server.control = Some(Control::start_for(&path, &access, orders)?);
        }
        Ok(server)
    }

    fn accept_on(&mut self, listener: Listener, tenant: Tenant) -> io::Result<()> {
        let (shared, number) = (Arc::clone(&self.shared), self.acceptors.len());
        let thread = Builder::new().name("accept".into()).stack_size(STACK_BYTES);
        self.acceptors
            .push(thread.spawn(move || accept_all(&shared, &listener, &tenant, number))?);
        Ok(())
    }

    /// The addresses on which it listens, with assigned ports and complete paths.
    #[must_use]
    pub fn addresses(&self) -> &[Listen] {
        &self.addresses
    }

    /// The addresses on which an export is served.
    #[must_use]
    pub fn addresses_of(&self, export: &str) -> Vec<&Listen> {
        let gates = self.addresses.iter().zip(&self.tenants);
        let serves = |tenant: &Tenant| tenant.find(export).is_some();
        let those = gates.filter(|(_, tenant)| serves(tenant));
        those.map(|(address, _)| address).collect()
    }

    /// The path of the control socket, if any.
    #[must_use]
    pub fn control_path(&self) -> Option<&Path> {
        self.control.as_ref().map(Control::path)
    }

    /// The cache of an export.
    #[must_use]
    pub fn cache_of(&self, export: &str) -> Option<Arc<Engine>> {
        let export = self.shared.exports.get(export)?;
        Some(export.engine)
    }

    /// Changes the policy of an export's cache, as the order `policy` does. Returns whether it
    /// differs.
    ///
    /// # Errors
    ///
    /// A sentence that says what to do.
    pub fn change_policy(&self, export: &str, policy: &str) -> Result<bool, String> {
        let answer = self.shared.change_policy(Some(export), policy)?;
        Ok(answer["changed"] == true)
    }

    /// Changes the rates of an export. Returns whether they differ.
    ///
    /// # Errors
    ///
    /// The export does not exist, or [`ServerOptions::check_rates`].
    pub fn set_rates(&self, export: &str, rates: RateLimits) -> Result<bool, String> {
        self.shared.set_rates(export, rates)
    }

    /// The names of its exports.
    #[must_use]
    pub fn export_names(&self) -> Vec<String> {
        let all = self.shared.exports.all().into_iter();
        all.map(|export| export.name).collect()
    }

    /// Adds an export, opened by `open`, while the server runs. A stop does not wait for `open`.
    ///
    /// # Errors
    ///
    /// A sentence that says what to do.
    pub fn add_export(
        &self,
        name: &str,
        open: impl FnOnce() -> Result<PendingExport, String>,
    ) -> Result<(), String> {
        self.shared.add_export(name, open).map(drop)
    }

    /// Flushes and removes an export: one without clients, or with `force` any. Returns how many
    /// connections were ended for it.
    ///
    /// # Errors
    ///
    /// A sentence that says why it stays.
    pub fn remove_export(&self, name: &str, force: bool) -> Result<usize, String> {
        self.shared.remove_export(name, force)
    }

    /// The current status.
    #[must_use]
    pub fn status(&self) -> ServerStatus {
        self.shared.status()
    }

    /// A function that returns the current exports, callable from another thread, even after the
    /// server's end.
    pub fn exports(&self) -> impl Fn() -> Vec<Export> + Send + Sync + 'static + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.exports.all()
    }

    /// A function that returns the current caches, callable from another thread, even after the
    /// server's end.
    pub fn caches(&self) -> impl Fn() -> Vec<Arc<Engine>> + Send + Sync + 'static + use<> {
        let shared = Arc::clone(&self.shared);
        move || {
            let mut caches: Vec<Arc<Engine>> = Vec::new();
            for export in shared.exports.all() {
                if !caches
                    .iter()
                    .any(|known| Arc::ptr_eq(known, &export.engine))
                {
                    caches.push(export.engine);
                }
            }
            caches
        }
    }

    /// A function that returns the status, callable from another thread, even after the server's
    /// end.
    pub fn watcher(&self) -> impl Fn() -> ServerStatus + Send + Sync + 'static + use<> {
        let shared = Arc::clone(&self.shared);
        move || shared.status()
    }

    /// Stops the server: accepts no new connections, answers requests in flight (waiting at most
    /// [`ServerOptions::stop_timeout`]), flushes the volumes, removes the sockets.
    #[must_use]
    pub fn stop(mut self) -> StopReport {
        self.wind_down()
    }

    pub(crate) fn wind_down(&mut self) -> StopReport {
        if std::mem::replace(&mut self.stopped, true) {
            return StopReport::default();
        }
        let stop_timeout = self.shared.options.stop_timeout;
        let (begun, connections) = (Instant::now(), self.shared.registry.count());
        let deadline = begun + stop_timeout;
        info!("stopping: {connections} connections are open, and every export is flushed");
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        // Begins before any wait that peers can prolong; later writes are flushed at the end.
        let mut flushes = Flushes::new(self.shared.exports.close());
        // Requests that wait for their turn are carried out now.
        for entry in self.shared.exports.entries().iter() {
            entry.rate.set(RateLimits::default());
        }
        flushes.begin();
        self.control = None;
        // An export that is being removed is flushed by its removal; if that fails, it is there again.
        drop(self.shared.change());
        flushes.cover(self.shared.exports.all());
        for acceptor in self.acceptors.drain(..) {
            let _ = acceptor.join();
        }
        let feeds = self.shared.feeds().take();
        if let Some(feeds) = feeds {
            feeds.join();
        }
        let registry = &self.shared.registry;
        registry.hang_up_on_others();
        if registry.wait_empty(stop_timeout) > 0 {
            registry.hang_up(Shutdown::Both);
        }
        let abandoned_connections = registry.wait_empty(Duration::from_millis(200));
        flushes.begin();
        let hung_up = begun.elapsed();
        let left = deadline.saturating_duration_since(Instant::now());
        let mut flush_errors = flushes.finish(left.max(Duration::from_secs(1)), stop_timeout);
        let flushed = begun.elapsed();
        for export in self.shared.exports.all() {
            if flush_errors.iter().any(|(name, _)| *name == export.name) {
                continue;
            }
            if let Err(error) = export.engine.end_clean(export.volume) {
                let problem = format!("its unclean mark cannot be removed: {error}");
                flush_errors.push((export.name.clone(), problem));
            }
        }
        for engine in self.shared.exports.engines() {
            engine.sync_log();
        }
        for (name, problem) in &flush_errors {
            error!(
                export = name,
                "export {name}: the last writes may not be on stable storage: {problem}"
            );
        }
        let (hung_up, flushed) = (hung_up.as_secs_f64(), flushed.as_secs_f64());
        info!(
            hung_up_seconds = hung_up,
            flushed_seconds = flushed,
            "stopped: connections ended after {hung_up:.1} s, {abandoned_connections} did not, and flushes after \
             {flushed:.1} s"
        );
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
