//! Accepts connections: each gets a place and a thread, or is turned away.

use crate::budget::Budget;
use crate::connection::{self, ConnectionOptions, End};
use crate::connection_loop::Limits;
use crate::disk;
use crate::listener::Listener;
use crate::peer::Peer;
use crate::pulse::Pulse;
use crate::refusals::Reason;
use crate::registry::Place;
use crate::shared::Shared;
use crate::tenant::Tenant;
use crate::tls::{ServerTerms, Tls};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};
use std::fs::File;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

/// Stack size of a connection's thread, which calls into the cache and no deeper.
pub(crate) const STACK_BYTES: usize = 512 * 1024;
/// Send buffer requested on unix sockets, so that a batch of replies leaves at once.
const SEND_BUFFER_BYTES: u64 = 4 << 20;
/// The same, with very many connections.
const SEND_BUFFER_BYTES_MIN: u64 = 128 << 10;
/// Pause after running out of descriptors or threads.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(20);

/// Accepts connections until the server stops.
pub(crate) fn accept_all(
    shared: &Arc<Shared>,
    listener: &Listener,
    tenant: &Tenant,
    number: usize,
) {
    let mut spare = spare_descriptor();
    let gate: Arc<str> = listener.address.to_string().into();
    let wait = shared.pulse.as_ref().map(Pulse::wait);
    loop {
        if let Some(pulse) = &shared.pulse {
            pulse.shows_up(number, || shared.exports.engines());
        }
        let mut fds = [
            PollFd::new(&shared.stop, PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        let polled = poll(&mut fds, wait.as_ref());
        if polled.is_ok() && fds[0].revents().contains(PollFlags::IN) {
            return;
        }
        match accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => {
                let peer = Peer::of(&socket, listener.is_tcp());
                prepare(shared, &socket, listener.is_tcp());
                let is_disk = listener.is_vhost_user();
                // Read for each connection: certificates can change while the server runs.
                let tls = shared.tls.as_ref().filter(|_| !listener.is_in_the_clear);
                let tls = tls.map(Tls::now);
                welcome(shared, socket, (peer, &gate), tenant, is_disk, tls);
            }
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            // Accepts with the spare descriptor and closes the connection. Otherwise the client
            // would wait, and this thread would be woken repeatedly.
            Err(Errno::MFILE | Errno::NFILE) => {
                let had_spare = spare.take().is_some();
                if let Ok(socket) = accept_with(listener, SocketFlags::CLOEXEC) {
                    shared.registry.turn_away();
                    let peer = Peer::of(&socket, listener.is_tcp());
                    let text = "refused: no descriptor is left; raise the limit of open files (ulimit -n, LimitNOFILE=)";
                    shared.registry.refusals.note(Reason::Shortage, &peer, text);
                } else if !had_spare {
                    std::thread::sleep(SHORTAGE_PAUSE);
                }
                spare = spare_descriptor();
            }
            // Memory is short; it becomes free when connections end.
            Err(_) => std::thread::sleep(SHORTAGE_PAUSE),
        }
    }
}

/// A descriptor held in reserve, to accept a connection when no other is left.
fn spare_descriptor() -> Option<OwnedFd> {
    File::open("/dev/null").ok().map(OwnedFd::from)
}

/// Sets options that make a socket faster or detect a dead peer; the socket works without them.
fn prepare(shared: &Shared, socket: &OwnedFd, tcp: bool) {
    if tcp {
        let _ = sockopt::set_tcp_nodelay(socket, true);
        let _ = sockopt::set_socket_keepalive(socket, true);
        return;
    }
    // Bounds the kernel's buffers for all sockets together.
    let connections = shared.registry.count().max(1);
    let fair = shared.options.buffer_memory_bytes / 4 / connections as u64;
    let bytes = fair.clamp(SEND_BUFFER_BYTES_MIN, SEND_BUFFER_BYTES) as usize;
    if sockopt::set_socket_send_buffer_size_force(socket, bytes).is_err() {
        // Without privilege, the system's limit applies.
        let _ = sockopt::set_socket_send_buffer_size(socket, bytes);
    }
}

fn welcome(
    shared: &Arc<Shared>,
    socket: OwnedFd,
    (peer, gate): (Peer, &Arc<str>),
    tenant: &Tenant,
    is_disk: bool,
    tls: Option<Arc<ServerTerms>>,
) {
    let options = &shared.options;
    let place = shared
        .registry
        .admit(socket, peer, gate, options.handshakes_max());
    let (tenant, budget) = (tenant.clone(), Arc::clone(&shared.budget));
    let options = connection_options(shared, tls);
    let thread = Builder::new()
        .name("connection".into())
        .stack_size(STACK_BYTES);
    // If no thread starts, the place is dropped, and with it the connection.
    let started = thread.spawn(move || {
        if is_disk {
            attach(&tenant, &budget, &place, &options);
        } else {
            look_after(&tenant, &budget, &place, &options);
        }
    });
    if let Err(error) = started {
        let text = format!("refused: cannot start a thread: {error}");
        shared
            .registry
            .refusals
            .note(Reason::Shortage, &peer, &text);
        std::thread::sleep(SHORTAGE_PAUSE);
    }
}

/// The options of a connection, which begins TLS on these terms if there are any.
pub(crate) fn connection_options(
    shared: &Shared,
    tls: Option<Arc<ServerTerms>>,
) -> ConnectionOptions {
    let options = &shared.options;
    ConnectionOptions {
        tls,
        handshake_timeout: options.handshake_timeout,
        connections_max: options.connections_max,
        limits: Limits {
            requests: options.requests_max.max(1),
            bytes: options.request_bytes_max.max(1),
            linger: options.stop_timeout,
            stall: options.stall_timeout,
        },
        parting: shared.parting.clone(),
    }
}

fn look_after(tenant: &Tenant, budget: &Arc<Budget>, place: &Place, options: &ConnectionOptions) {
    report(
        connection::serve(tenant, budget, place, options),
        place,
        options,
    );
}

/// Counts and logs how a connection ended.
pub(crate) fn report(end: End, place: &Place, options: &ConnectionOptions) {
    match end {
        End::Gone => {}
        End::TooSlow => {
            place.blame("the handshake took too long");
            let seconds = options.handshake_timeout.as_secs_f64();
            let text = format!("refused: it did not finish its handshake in {seconds} s");
            place.refuse(Reason::Slow, &text);
        }
        End::InTheClear => {
            let text = "refused: it did not begin TLS, which this server requires (--tls-cert, --tls-psk); use nbds:// or \
                        nbds+unix://";
            place.refuse(Reason::Insecure, text);
        }
        End::Insecure(problem) => {
            place.blame(&format!("TLS: {problem}"));
            let text = format!("its connection was ended, TLS failed: {problem}");
            place.refuse(Reason::Insecure, &text);
        }
        End::Broken(error) => {
            place.blame(&error.to_string());
            let text = format!("its connection was ended because it broke the protocol: {error}");
            place.refuse(Reason::Protocol, &text);
        }
    }
}

/// Serves a virtual machine's disk.
fn attach(tenant: &Tenant, budget: &Arc<Budget>, place: &Place, options: &ConnectionOptions) {
    if let Err(error) = disk::serve(tenant, budget, place, options) {
        place.blame(&error.to_string());
        let text =
            format!("its connection was ended because it broke the vhost-user protocol: {error}");
        place.refuse(Reason::Protocol, &text);
    }
}
