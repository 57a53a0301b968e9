//! `futae serve` as a service of systemd: what it says of itself, and sockets that it did not want.

use futae_host::{Heartbeat, Server};
use futae_systemd::Watchdog;
use std::sync::{Mutex, PoisonError};
use tracing::warn;

/// What feeds the watchdog of the unit, if it has one.
pub(super) fn heartbeat() -> Option<Heartbeat> {
    let watchdog = Watchdog::from_environment()?;
    let every = watchdog.every();
    let watchdog = Mutex::new(watchdog);
    let hear = move || {
        let mut watchdog = watchdog.lock().unwrap_or_else(PoisonError::into_inner);
        watchdog.alive();
    };
    Some(Heartbeat::new(every, hear))
}

/// Says that clients may come.
pub(super) fn ready(server: &Server) {
    for socket in futae_systemd::unclaimed() {
        warn!(
            "systemd passes the socket {socket}, and no option names this address: it is closed; add it to --listen, \
             --control, --feed, --metrics or --web, or take it out of the .socket unit"
        );
    }
    say_ready(server);
}

/// Says that the configuration is read again, until the answer is dropped.
pub(super) fn reloading(server: &Server) -> Reloading<'_> {
    futae_systemd::reloading();
    Reloading(server)
}

/// The configuration is read again.
pub(super) struct Reloading<'a>(&'a Server);

impl Drop for Reloading<'_> {
    fn drop(&mut self) {
        say_ready(self.0);
    }
}

fn say_ready(server: &Server) {
    let names = server.export_names();
    let noun = if names.len() == 1 {
        "export"
    } else {
        "exports"
    };
    futae_systemd::ready(&format!("serving {} {noun}", names.len()));
}
