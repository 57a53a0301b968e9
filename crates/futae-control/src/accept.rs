//! Connections to a small server, until it stops.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Between two attempts to accept while descriptors or memory have run out; they come back when connections end.
const SHORTAGE_PAUSE: Duration = Duration::from_millis(20);

/// Hands each new connection to `welcome`, until `stop` can be read.
pub fn accept_until(
    stop: &impl AsFd,
    socket: &impl AsFd,
    flags: SocketFlags,
    mut welcome: impl FnMut(OwnedFd),
) {
    loop {
        let mut fds = [
            PollFd::new(stop, PollFlags::IN),
            PollFd::new(socket, PollFlags::IN),
        ];
        let polled = poll(&mut fds, None);
        if polled.is_ok() && fds[0].revents().contains(PollFlags::IN) {
            return;
        }
        match accept_with(socket, SocketFlags::CLOEXEC | flags) {
            Ok(connection) => welcome(connection),
            Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => {}
            Err(_) => std::thread::sleep(SHORTAGE_PAUSE),
        }
    }
}
