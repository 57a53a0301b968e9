//! Failures that clients of a volume have yet to learn of.
//!
//! A store reports lost data once, by one failed flush, and the data may be that of any client. Each client that is connected
//! therefore learns of the failure, once, by its next flush, as each open file does in Linux (`errseq_t`). A client that connects
//! later learns of it only if no client has. The flushes that a client had under way when it was told fail, too: in whatever order
//! their answers arrive, none of them says that its writes are safe.
//!
//! A client can leave before it learns of its failure, and may have connected again before it is seen to have left. Then those
//! that connected after it learn of the failure.

use crate::{ClientId, IoError};
use hashbrown::HashMap;
use std::sync::Arc;

/// The failures of one volume.
#[derive(Default)]
pub struct Losses {
    /// The failure that clients are told.
    error: Option<IoError>,
    /// `Some(n)`: no client with a number above n has been told of the last failure. Clients that connect meanwhile will be told.
    unheard: Option<u64>,
    /// How many times a connected client was told of a failure.
    tellings: u64,
    /// The connected clients.
    clients: HashMap<ClientId, Client>,
    /// The number of the client that connected last.
    joined: u64,
    /// The same when a flush last failed.
    joined_before: u64,
}

struct Client {
    /// In order of connection, from 1.
    number: u64,
    news: News,
}

/// What a client knows of the last failure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum News {
    /// Nothing, and it need not.
    None,
    /// Its next flush fails.
    Owed,
    /// It has been told, as this one of all [`Losses::tellings`].
    Told(u64),
}

impl Losses {
    /// A client has connected.
    pub fn join(&mut self, client: ClientId) {
        self.joined += 1;
        let news = match self.is_unheard() {
            true => News::Owed,
            false => News::None,
        };
        let number = self.joined;
        self.clients.insert(client, Client { number, news });
    }

    /// Whether a client is connected.
    pub fn has_clients(&self) -> bool {
        !self.clients.is_empty()
    }

    /// Whether a client was ever connected.
    pub fn has_had_clients(&self) -> bool {
        self.joined > 0
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
        self.unheard.get_or_insert(0);
        self.joined_before = self.joined;
        for client in self.clients.values_mut() {
            client.news = News::Owed;
        }
    }

    /// This client cannot be told of a failure any more, and leaves. It may connect again, or has already: those that connected
    /// after it learn of the failure. What the store's flush has reported, [`Self::note`] tells the others. Another failure, as of
    /// a write with FUA, concerns none of them.
    pub fn pass_on(&mut self, leaving: ClientId, error: &IoError) {
        let last = self.error.as_ref();
        let is_last = last.is_some_and(|last| Arc::ptr_eq(&last.message, &error.message));
        if !is_last && !self.is_unheard() {
            self.error = Some(error.clone());
        }
        let leaving = self.clients.get(&leaving);
        let number = leaving.map_or(self.joined, |client| client.number);
        for client in self.clients.values_mut() {
            let knows = is_last && matches!(client.news, News::Told(_));
            if client.number > number && !knows {
                client.news = News::Owed;
            }
        }
        // One that was connected when the flush failed is told for itself. Another may have left untold before.
        let heard = if is_last { self.joined_before } else { 0 };
        self.unheard = self.unheard.max(Some(number.max(heard)));
    }

    /// The time at which a flush begins, for [`Self::take`].
    pub fn now(&self) -> u64 {
        self.tellings
    }

    /// Returns the failure with which this client's flush, which began at a time, must end, if there is one. A client that has not
    /// connected, as that of a mount, learns of what no other client has been told.
    pub fn take(&mut self, client: ClientId, begun: u64) -> Option<IoError> {
        let (is_news, number) = match self.clients.get_mut(&client) {
            Some(client) => {
                let is_news = match client.news {
                    News::None => false,
                    News::Owed => {
                        self.tellings += 1;
                        client.news = News::Told(self.tellings);
                        true
                    }
                    News::Told(telling) => begun < telling,
                };
                (is_news, client.number)
            }
            None => (self.is_unheard(), u64::MAX),
        };
        if !is_news {
            return None;
        }
        self.unheard = self.unheard.filter(|&last| number <= last);
        self.error.clone()
    }

    /// Whether the next flush of a connected client fails because of an earlier failure.
    pub fn are_owed_to(&self, client: ClientId) -> bool {
        let client = self.clients.get(&client);
        client.is_some_and(|client| client.news == News::Owed)
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
        let now = losses.now();
        losses.take(client, now).map(|error| error.to_string())
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
    fn flushes_that_a_client_had_under_way_when_it_was_told_fail_too() {
        let mut losses = both();
        losses.note(&error("zero"));
        assert!(told(&mut losses, B).is_some());
        let begun = losses.now();
        losses.note(&error("one"));
        for _ in 0..2 {
            let text = losses.take(A, begun).map(|error| error.to_string());
            assert_eq!(text.as_deref(), Some("one"));
        }
        assert_eq!(told(&mut losses, A), None, "it began later");
        assert!(losses.are_owed_to(B));
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
        assert!(!losses.are_owed_to(B), "it is forgotten");
        losses.join(B);
        assert_eq!(told(&mut losses, B), None);
    }

    #[test]
    fn an_answer_that_did_not_arrive_is_told_to_a_new_connection() {
        let mut losses = both();
        let failure = error("one");
        losses.note(&failure);
        assert!(told(&mut losses, A).is_some() && told(&mut losses, B).is_some());
        losses.pass_on(A, &failure);
        losses.leave(A);
        assert_eq!(told(&mut losses, B), None, "it has been told");
        losses.join(A);
        losses.leave(A);
        losses.join(A);
        assert_eq!(told(&mut losses, A).as_deref(), Some("one"));
        losses.join(LATE);
        assert_eq!(told(&mut losses, LATE), None);
    }

    #[test]
    fn it_is_told_to_a_connection_that_was_there_before_the_old_one_was_seen_to_be_gone() {
        let mut losses = both();
        let failure = error("one");
        losses.note(&failure);
        assert!(told(&mut losses, A).is_some() && told(&mut losses, B).is_some());
        losses.join(LATE);
        losses.pass_on(A, &failure);
        assert!(losses.are_owed_to(LATE) && !losses.are_owed_to(B));
        assert_eq!(told(&mut losses, LATE).as_deref(), Some("one"));
        assert!(!losses.is_unheard());
        assert_eq!(told(&mut losses, LATE), None);
    }

    #[test]
    fn of_two_that_left_untold_each_is_told_when_it_is_back() {
        let mut losses = both();
        losses.join(LATE);
        let failure = error("one");
        losses.note(&failure);
        for client in [A, B, LATE] {
            assert!(told(&mut losses, client).is_some());
        }
        losses.pass_on(LATE, &failure);
        losses.leave(LATE);
        losses.pass_on(A, &error("of a write with FUA"));
        losses.leave(A);
        let text = told(&mut losses, B);
        assert_eq!(text.as_deref(), Some("one"), "it may be A's new connection");
        losses.join(LATE);
        assert_eq!(told(&mut losses, LATE).as_deref(), Some("one"));
    }

    #[test]
    fn a_failure_that_no_flush_reported_is_told_only_to_those_that_connected_later() {
        let mut losses = both();
        losses.join(LATE);
        losses.pass_on(B, &error("of a write with FUA"));
        assert!(!losses.are_owed_to(B), "it cannot be told any more");
        losses.leave(B);
        assert_eq!(told(&mut losses, A), None, "it was connected before");
        losses.join(B);
        for client in [LATE, B] {
            assert!(losses.are_owed_to(client));
        }
        let text = told(&mut losses, LATE);
        assert_eq!(text.as_deref(), Some("of a write with FUA"));
    }
}
