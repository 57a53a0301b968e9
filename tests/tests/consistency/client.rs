//! An NBD client with many requests under way. Two threads send and receive; what happened comes back by a channel.

use futae_nbd::{
    ClientExport, ClientWish, Command, CommandFlags, ErrorNumber, Reply, RequestHeader, client,
    extension, parse_reply,
};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
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

/// Bytes that READs under way are waiting for, by cookie.
type Lengths = Arc<Mutex<HashMap<u64, (u64, usize)>>>;

/// A connection to one export.
pub struct Client {
    stream: UnixStream,
    outgoing: Sender<Vec<u8>>,
    lengths: Lengths,
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
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let export = client::negotiate(&mut stream, export, wish).map_err(io::Error::other)?;
        stream.set_read_timeout(None)?;
        let lengths = Lengths::default();
        let (outgoing, messages) = channel();
        let to = stream.try_clone()?;
        thread::spawn(move || send(to, &messages));
        let mut incoming = Incoming {
            stream: stream.try_clone()?,
            buffer: Vec::new(),
            connection,
            lengths: Arc::clone(&lengths),
            events: events.clone(),
            parts: HashMap::new(),
        };
        thread::spawn(move || {
            // However it ended, nothing more comes.
            let _ = incoming.run();
            let _ = incoming.events.send(Event::Gone { connection });
        });
        Ok(Self {
            stream,
            outgoing,
            lengths,
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
        if command == Command::Read {
            let mut lengths = self.lengths.lock().expect("a lock");
            lengths.insert(cookie, (offset, length));
        }
        // If the thread is gone, so is the connection.
        let _ = self.outgoing.send([&header.encode()[..], data].concat());
    }

    /// Hands a block down. There is no answer.
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

struct Incoming {
    stream: UnixStream,
    buffer: Vec<u8>,
    connection: u64,
    lengths: Lengths,
    events: Sender<Event>,
    /// Of structured replies: the data so far, or the error.
    parts: HashMap<u64, Result<Vec<u8>, ErrorNumber>>,
}

impl Incoming {
    fn run(&mut self) -> io::Result<()> {
        loop {
            while !self.take()? {
                self.more(1)?;
            }
        }
    }

    /// Reads until there are this many more bytes.
    fn more(&mut self, least: usize) -> io::Result<()> {
        let wanted = self.buffer.len() + least;
        let mut piece = [0; 1 << 16];
        while self.buffer.len() < wanted {
            match self.stream.read(&mut piece)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                got => self.buffer.extend_from_slice(&piece[..got]),
            }
        }
        Ok(())
    }

    /// Takes bytes off the front.
    fn data(&mut self, length: usize) -> io::Result<Vec<u8>> {
        self.more(length.saturating_sub(self.buffer.len()))?;
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// Takes a reply or a chunk of one off the front, if it is there.
    fn take(&mut self) -> io::Result<bool> {
        let buffer = std::mem::take(&mut self.buffer);
        let parsed = parse_reply(&buffer).map_err(io::Error::other)?;
        let Some((reply, taken)) = parsed else {
            self.buffer = buffer;
            return Ok(false);
        };
        self.buffer = buffer[taken..].to_vec();
        let range = |cookie| {
            let lengths = self.lengths.lock().expect("a lock");
            lengths.get(&cookie).copied()
        };
        let (cookie, last) = match reply {
            Reply::Simple { cookie, error } => {
                let result = match (error, range(cookie)) {
                    (Some(error), _) => Err(error),
                    (None, Some((_, length))) => Ok(self.data(length)?),
                    (None, None) => Ok(Vec::new()),
                };
                self.parts.insert(cookie, result);
                (cookie, true)
            }
            Reply::Done { cookie } => (cookie, true),
            Reply::Data {
                cookie,
                offset,
                data_bytes,
                last,
            } => {
                let (begin, length) = range(cookie).expect("data for a READ");
                let data = self.data(data_bytes as usize)?;
                self.place(cookie, (offset - begin) as usize, length, &data);
                (cookie, last)
            }
            Reply::Hole {
                cookie,
                offset,
                hole_bytes,
                last,
            } => {
                let (begin, length) = range(cookie).expect("a hole for a READ");
                let data = vec![0; hole_bytes as usize];
                self.place(cookie, (offset - begin) as usize, length, &data);
                (cookie, last)
            }
            Reply::Error {
                cookie,
                error,
                last,
                ..
            } => {
                self.parts.insert(cookie, Err(error));
                (cookie, last)
            }
            Reply::BlockStatus {
                cookie,
                extents,
                last,
                ..
            } => {
                let all = extents.flat_map(|extent| [extent.length_bytes, extent.state]);
                let all = all.flat_map(u32::to_be_bytes).collect();
                self.parts.insert(cookie, Ok(all));
                (cookie, last)
            }
        };
        if last {
            self.lengths.lock().expect("a lock").remove(&cookie);
            let result = self.parts.remove(&cookie).unwrap_or_else(|| Ok(Vec::new()));
            let connection = self.connection;
            let answered = Event::Answered {
                connection,
                cookie,
                result,
            };
            // A test that listens no more has ended.
            let _ = self.events.send(answered);
        }
        Ok(true)
    }

    fn place(&mut self, cookie: u64, at: usize, length: usize, data: &[u8]) {
        // Bytes that no chunk covers are recognised as damaged.
        let whole = self
            .parts
            .entry(cookie)
            .or_insert_with(|| Ok(vec![0xdb; length]));
        if let Ok(whole) = whole {
            whole[at..at + data.len()].copy_from_slice(data);
        }
    }
}
