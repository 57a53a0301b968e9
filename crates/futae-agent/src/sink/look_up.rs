//! The addresses of a host by its name. The C library asks each name server several times, for half a minute and longer if none
//! answers, and cannot be interrupted. So a thread of its own waits for it.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

type Found = io::Result<Vec<SocketAddr>>;

/// Looks a name up. There is one thread at most.
#[derive(Default)]
pub(super) struct LookUp {
    under_way: Option<Receiver<Found>>,
}

impl LookUp {
    /// The addresses of `HOST:PORT`, if they are known within `time`. If not, the look-up goes on, and the next call has its answer.
    pub(super) fn addresses(&mut self, address: &str, time: Duration) -> Found {
        if let Ok(number) = address.parse() {
            return Ok(vec![number]);
        }
        let of = address.to_owned();
        self.found(time, move || Ok(of.to_socket_addrs()?.collect()))
    }

    fn found(&mut self, time: Duration, ask: impl FnOnce() -> Found + Send + 'static) -> Found {
        let under_way = match self.under_way.take() {
            Some(under_way) => under_way,
            None => start(ask)?,
        };
        match under_way.recv_timeout(time) {
            Ok(found) => found,
            Err(RecvTimeoutError::Timeout) => {
                self.under_way = Some(under_way);
                Err(io::Error::other("no name server told its address in time"))
            }
            Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("its look-up broke off")),
        }
    }
}

fn start(ask: impl FnOnce() -> Found + Send + 'static) -> io::Result<Receiver<Found>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let thread = thread::Builder::new().name("look-up".to_owned());
    // If the send fails, nobody waits any longer.
    thread.spawn(move || drop(sender.send(ask())))?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_server_that_is_silent_is_asked_once_and_not_waited_for() {
        let mut look_up = LookUp::default();
        let (silent, asked) = mpsc::channel();
        let first = look_up.found(Duration::ZERO, move || {
            asked.recv().map_err(io::Error::other)
        });
        assert!(first.is_err_and(|error| error.to_string().contains("in time")));
        let address = SocketAddr::from(([127, 0, 0, 2], 7));
        silent.send(vec![address]).expect("it still listens");
        let again = || panic!("the first look-up is under way");
        let found = look_up.found(Duration::from_secs(60), again);
        assert_eq!(found.expect("the answer to the first"), [address]);
        let broken = look_up.found(Duration::from_secs(60), || {
            Err(io::ErrorKind::NotFound.into())
        });
        assert_eq!(
            broken.expect_err("asked again").kind(),
            io::ErrorKind::NotFound
        );
    }

    #[test]
    fn addresses_are_found_by_number_and_by_name() {
        let mut look_up = LookUp::default();
        let number = look_up.addresses("[::1]:7", Duration::ZERO);
        assert_eq!(
            number.expect("no name"),
            [([0, 0, 0, 0, 0, 0, 0, 1], 7).into()]
        );
        let found = look_up.addresses("localhost:7", Duration::from_secs(60));
        assert!(found.expect("found").iter().all(|it| it.ip().is_loopback()));
    }
}
