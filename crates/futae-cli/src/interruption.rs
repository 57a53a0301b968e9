//! The end of a command that goes on until it is interrupted.

use futae_terminal::failure::Failure;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;

/// Whether the program was told to end.
pub struct Interruption(Receiver<()>);

impl Interruption {
    /// From now on SIGHUP, SIGINT and SIGTERM are such a word.
    pub fn listen() -> Result<Self, Failure> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let (sender, receiver) = mpsc::channel();
        let wait = move || {
            signals.forever().next();
            // Nobody listens any more if the program is at its end.
            let _ = sender.send(());
        };
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(wait)?;
        Ok(Self(receiver))
    }

    /// Waits so long, or until the program is told to end. Says whether it was; once it was, every further wait ends
    /// at once.
    #[must_use]
    pub fn within(&self, time: Duration) -> bool {
        !matches!(self.0.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }
}
