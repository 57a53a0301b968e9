//! The outgoing commands of a connection to an NBD server, and what surrounds them.

/// Outgoing commands, in order.
mod outbox {
    include!(concat!(env!("OUT_DIR"), "/outbox.rs"));
}

use crate::IoBuf;
use crate::constants::REQUEST_HEADER_BYTES;
use crate::socket::Socket;
use outbox::{Frame, Outbox};
use std::sync::Arc;

/// How soon a command must leave.
#[derive(Clone, Copy, Debug)]
pub enum Urgency {
    /// At once.
    Now,
    /// Soon.
    Soon,
    /// With others.
    Hint,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    outbox: Outbox,
    /// Its socket.
    pub socket: Socket,
}

/// Bytes of a command: all of them are its number.
pub const FRAME_BYTES: usize = REQUEST_HEADER_BYTES + 1;

fn frame(number: u8) -> Frame {
    let payload = (Arc::new(IoBuf(vec![number])), 0..1);
    Frame {
        header: [number; REQUEST_HEADER_BYTES],
        payload: Some(payload),
    }
}

impl Connection {
    /// One over this socket.
    #[must_use]
    pub fn over(socket: Socket) -> Self {
        Self {
            outbox: Outbox::new(),
            socket,
        }
    }

    /// Adds a command.
    pub fn push(&self, number: u8, urgency: Urgency) {
        let urgency = match urgency {
            Urgency::Now => outbox::Urgency::Now,
            Urgency::Soon => outbox::Urgency::Soon,
            Urgency::Hint => outbox::Urgency::Hint,
        };
        self.outbox.push(&self.socket, frame(number), urgency);
    }

    /// Begins a group.
    pub fn hold(&self) {
        self.outbox.hold();
    }

    /// Ends it.
    pub fn release(&self) {
        self.outbox.release(&self.socket);
    }

    /// The sender thread.
    pub fn run(&self) {
        self.outbox.run(&self.socket);
    }

    /// Sends no more.
    pub fn close(&self) {
        self.outbox.close();
    }

    /// Sends a last command, and ends.
    pub fn finish(&self, number: u8) {
        self.outbox.finish(frame(number));
    }

    /// Whether it ends once everything is sent.
    pub fn is_ending(&self) -> bool {
        self.outbox.is_ending()
    }

    /// How many hints it had no room for.
    pub fn hints_dropped(&self) -> u64 {
        self.outbox.hints_dropped()
    }
}
