//! Failed flushes of a volume, and the clients that have yet to learn of them.
//!
//! A store reports lost data once, by one failed flush, and the data may be that of any client. Each client that is connected
//! therefore learns of the failure, once, by its next flush, as each open file does in Linux (`errseq_t`). A client that connects
//! later learns of it only if no client has.

use crate::{ClientId, IoError};
use hashbrown::HashMap;
use std::sync::Arc;

/// The failures of one volume.
#[derive(Default)]
pub struct Losses {
    /// The failure that clients are told.
    error: Option<IoError>,
    /// The number of failures.
    count: u64,
    /// Set until a client with a higher number has been told of the last failure: those that connect until then are told, too.
    unheard: Option<u64>,
    /// The connected clients.
    clients: HashMap<ClientId, Client>,
    /// The number of the client that connected last.
    joined: u64,
}

struct Client {
    /// In order of connection, from 1.
    number: u64,
    /// The number of failures when it last learned of one.
    known: u64,
}

impl Losses {
    /// A client has connected.
    pub fn join(&mut self, client: ClientId) {
        self.joined += 1;
        let joined = Client {
            number: self.joined,
            known: self.count - u64::from(self.is_unheard()),
        };
        self.clients.insert(client, joined);
    }

    /// A client has disconnected.
    pub fn leave(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }

    /// A flush has failed.
    pub fn note(&mut self, error: &IoError) {
        if !self.is_unheard() {
            self.error = Some(error.clone());
        }
        self.count += 1;
        self.unheard.get_or_insert(0);
    }

    /// The client that was told of this failure has left before it could learn of it, and may connect again.
    pub fn pass_on(&mut self, error: &IoError) {
        let last = self.error.as_ref();
        if !last.is_some_and(|last| Arc::ptr_eq(&last.message, &error.message)) {
            self.note(error);
        }
        self.unheard = Some(self.joined);
    }

    /// A client's flush ends: the failure of which it learns by that, if there is one. A client that has not connected, as that of
    /// a mount, learns of what no other client has been told.
    pub fn take(&mut self, client: ClientId) -> Option<IoError> {
        let (is_news, number) = match self.clients.get_mut(&client) {
            Some(client) => {
                let before = std::mem::replace(&mut client.known, self.count);
                (before < self.count, client.number)
            }
            None => (self.is_unheard(), u64::MAX),
        };
        if !is_news {
            return None;
        }
        self.unheard = self.unheard.filter(|&last| number <= last);
        self.error.clone()
    }

    /// Whether the last failure has yet to be told to a client.
    pub fn is_unheard(&self) -> bool {
        self.unheard.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IoErrorKind;

    const A: ClientId = ClientId(1);
    const B: ClientId = ClientId(2);
    const LATE: ClientId = ClientId(3);
    const NOT_CONNECTED: ClientId = ClientId(4);

    fn both() -> Losses {
        let mut losses = Losses::default();
        losses.join(A);
        losses.join(B);
        losses
    }

    fn error(text: &str) -> IoError {
        IoError::new(IoErrorKind::Store, text)
    }

    fn told(losses: &mut Losses, client: ClientId) -> Option<String> {
        losses.take(client).map(|error| error.to_string())
    }

    #[test]
    fn each_client_that_was_connected_learns_of_a_failure_once() {
        let mut losses = both();
        assert_eq!(told(&mut losses, A), None);
        losses.note(&error("one"));
        assert_eq!(told(&mut losses, A).as_deref(), Some("one"));
        losses.join(LATE);
        assert_eq!(told(&mut losses, LATE), None, "another client knows it");
        assert_eq!(told(&mut losses, NOT_CONNECTED), None);
        assert_eq!(told(&mut losses, B).as_deref(), Some("one"));
        assert_eq!((told(&mut losses, A), told(&mut losses, B)), (None, None));
        losses.note(&error("two"));
        losses.note(&error("three"));
        for client in [A, B, LATE] {
            assert_eq!(told(&mut losses, client).as_deref(), Some("two"));
            assert_eq!(told(&mut losses, client), None);
        }
    }

    #[test]
    fn what_nobody_knows_is_told_to_who_comes_next() {
        let mut losses = Losses::default();
        losses.note(&error("one"));
        assert!(losses.is_unheard());
        losses.join(A);
        losses.join(B);
        assert_eq!(told(&mut losses, NOT_CONNECTED).as_deref(), Some("one"));
        assert!(!losses.is_unheard());
        assert_eq!(told(&mut losses, A).as_deref(), Some("one"));
        losses.leave(B);
        losses.join(B);
        assert_eq!(told(&mut losses, B), None);
    }

    #[test]
    fn an_answer_that_did_not_arrive_is_told_to_a_new_connection() {
        let mut losses = both();
        let failure = error("one");
        losses.note(&failure);
        assert!(losses.take(A).is_some() && losses.take(B).is_some());
        losses.leave(A);
        losses.pass_on(&failure);
        assert_eq!(told(&mut losses, B), None, "it has been told");
        losses.join(A);
        losses.leave(A);
        losses.join(A);
        assert_eq!(told(&mut losses, A).as_deref(), Some("one"));
        losses.join(LATE);
        assert_eq!(told(&mut losses, LATE), None);
        losses.pass_on(&error("of a write with FUA"));
        for client in [A, B] {
            let text = told(&mut losses, client);
            assert_eq!(text.as_deref(), Some("of a write with FUA"));
        }
    }
}
