//! An NBD client with many requests under way. Two threads send and receive; what happened comes back by a channel.

use futae_nbd::{
    ClientExport, ClientWish, Command, CommandFlags, ErrorNumber, RequestHeader, extension,
};
use futae_testkit::nbd::{self, Answer, Reads};
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

/// Something that happened on a connection.
pub enum Event {
    /// A request was answered.
    Answered {
        connection: u64,
        cookie: u64,
        result: Result<Vec<u8>, ErrorNumber>,
    },
    /// Nothing more will come.
    Gone { connection: u64 },
}

/// A connection to one export.
pub struct Client {
    stream: UnixStream,
    outgoing: Sender<Vec<u8>>,
    reads: Reads,
    /// What the server granted.
    pub export: ClientExport,
}

impl Client {
    /// Connects. Its events carry the number of the connection.
    pub fn connect(
        socket: &Path,
        export: &str,
        wish: &ClientWish,
        connection: u64,
        events: &Sender<Event>,
    ) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut client = nbd::Client::over(stream.try_clone()?, export, wish)?;
        stream.set_read_timeout(None)?;
        let (reads, export) = (client.reads(), client.export);
        let (outgoing, messages) = channel();
        let to = stream.try_clone()?;
        thread::spawn(move || send(to, &messages));
        let events = events.clone();
        thread::spawn(move || {
            while let Ok(answer) = client.try_receive() {
                // A test that listens no more has ended.
                let _ = events.send(answered(connection, answer));
            }
            // However it ended, nothing more comes.
            let _ = events.send(Event::Gone { connection });
        });
        Ok(Self {
            stream,
            outgoing,
            reads,
            export,
        })
    }

    /// Sends a request. If the connection is gone, its event says so.
    pub fn ask(
        &self,
        command: Command,
        flags: CommandFlags,
        cookie: u64,
        offset: u64,
        length: usize,
        data: &[u8],
    ) {
        let length_bytes = u32::try_from(length).expect("short requests");
        let mut header = RequestHeader::new(command, cookie, offset, length_bytes);
        header.flags = flags;
        self.reads.note(&header);
        // If the thread is gone, so is the connection.
        let _ = self.outgoing.send([&header.encode()[..], data].concat());
    }

    /// Demotes a block. There is no answer.
    pub fn demote(&self, sequence: u64, offset: u64, data: &[u8]) {
        let length = u32::try_from(data.len()).expect("short demotions");
        let header = extension::demote_header(sequence, offset, length);
        let _ = self.outgoing.send([&header[..], data].concat());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

fn send(mut stream: UnixStream, messages: &Receiver<Vec<u8>>) {
    for message in messages {
        if stream.write_all(&message).is_err() {
            return;
        }
    }
}

/// A reply, with extents as pairs of lengths and states.
fn answered(connection: u64, answer: Answer) -> Event {
    let pairs = answer.extents.iter();
    let status = pairs.flat_map(|extent| [extent.length_bytes, extent.state]);
    let status = status.flat_map(u32::to_be_bytes);
    let data = answer.data.into_iter().chain(status).collect();
    Event::Answered {
        connection,
        cookie: answer.cookie,
        result: answer.error.map_or(Ok(data), Err),
    }
}
