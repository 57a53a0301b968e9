//! How a connection waits.

use super::ConnectionLoop;
use crate::intake::Filled;
use crate::kept_clients::Parting;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long to poll for the next request before sleeping.
const LOOK_BEFORE_SLEEP: Duration = Duration::from_micros(30);
/// If a request comes within this time of the reply before it, the next one is expected to do so,
/// too.
const CLOSE: Duration = Duration::from_micros(150);
/// How often a connection that holds much memory, or waits for room, checks the needs of others.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl ConnectionLoop<'_, '_> {
    /// Waits for the next request when there is nothing else to do. Sleeping and waking take longer
    /// than a client with one request at a time needs for its next one. As long as requests follow
    /// closely, the thread therefore polls for a moment before it sleeps, and yields in between. It
    /// sleeps in `poll`: a thread that sleeps in `recv` on a unix socket is woken each time the
    /// peer has received a reply.
    pub(super) fn wait_for_request(&mut self) -> io::Result<Filled> {
        let begin = Instant::now();
        loop {
            match self.intake.fill(self.wire)? {
                Filled::WouldBlock => {}
                filled => {
                    self.follows_closely = true;
                    return Ok(filled);
                }
            }
            if !self.follows_closely || begin.elapsed() >= LOOK_BEFORE_SLEEP {
                break;
            }
            std::thread::yield_now();
        }
        // Granted memory is kept while requests follow closely, and returned before a long wait.
        self.account.trim();
        if !self.account.has_grant() {
            let socket = PollFd::from_borrowed_fd(self.wire.socket(), PollFlags::IN);
            // The loop finds out by itself what ended the sleep.
            let _ = match self.parting {
                Some(parting) => {
                    let bell = PollFd::from_borrowed_fd(parting.bell(), PollFlags::IN);
                    poll(&mut [socket, bell], None)
                }
                None => poll(&mut [socket], None),
            };
        }
        let filled = self.intake.fill(self.wire);
        self.follows_closely = begin.elapsed() < CLOSE;
        filled
    }

    /// Waits until the socket can make progress or the cache has completed a request.
    pub(super) fn sleep(&mut self) {
        if self.in_flight > 0 && !self.mailbox.may_sleep() {
            return;
        }
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, self.may_receive());
        wanted.set(PollFlags::OUT, self.has_unsent());
        let mailbox = Arc::clone(&self.mailbox);
        // A socket without pending interest would still report repeatedly that its peer has
        // disconnected, so it is left out. If a request waits for room or for its turn, it is
        // watched: the request need not be carried out for a client that has disconnected.
        let is_watched = self.reading && self.is_held_back;
        let needs_socket = !wanted.is_empty() || is_watched;
        // Once heard, the bell of the server's stop would ring for ever.
        let parting = self.parting.filter(|_| !self.parts);
        let stop = parting.map_or_else(|| mailbox.bell(), Parting::bell);
        let socket = if needs_socket {
            self.wire.socket()
        } else {
            stop
        };
        let mut fds = [
            PollFd::from_borrowed_fd(mailbox.bell(), PollFlags::IN),
            PollFd::from_borrowed_fd(socket, if needs_socket { wanted } else { PollFlags::IN }),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
        ];
        let count = 1 + usize::from(needs_socket) + usize::from(parting.is_some());
        match poll(&mut fds[..count], self.sleep_timeout().as_ref()) {
            Ok(0) => self.waited_in_vain(),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => std::thread::sleep(Duration::from_millis(10)), // out of kernel memory
        }
        let is_gone = fds[1].revents().intersects(PollFlags::HUP | PollFlags::ERR);
        // The bell may have been rung for an earlier sleep that another event ended.
        let rung = fds[0].revents().contains(PollFlags::IN);
        if rung || self.in_flight > 0 {
            mailbox.awake(rung);
        }
        if is_gone && is_watched {
            self.lose_peer();
        }
        let peers_turn = self.has_unsent() || self.intake.is_in_payload();
        if self.account.is_stalled(peers_turn, self.limits.stall) {
            self.lose_peer();
        }
    }

    /// The remaining time of a disconnecting peer.
    fn farewell(&self) -> Option<Duration> {
        let goodbye = self.goodbye.filter(|_| self.has_unsent())?;
        Some(self.limits.linger.saturating_sub(goodbye.elapsed()))
    }

    fn waited_in_vain(&mut self) {
        if self.farewell().is_some_and(|left| left.is_zero()) {
            self.lose_peer();
        }
    }

    /// How long the next request has to wait for its turn, if it has to.
    fn turn_comes_in(&self) -> Option<Duration> {
        let waits = self.reading && self.is_held_back;
        self.turn.wait().filter(|_| waits)
    }

    /// The longest sleep before the next periodic check.
    fn sleep_timeout(&self) -> Option<Timespec> {
        let looks = self.account.has_grant() || self.is_held_back;
        let look = looks.then(|| LOOK_INTERVAL.min(self.limits.stall));
        let waits = self.farewell().into_iter().chain(look);
        let least = waits.chain(self.turn_comes_in()).min()?;
        Timespec::try_from(least.max(Duration::from_millis(1))).ok()
    }
}
