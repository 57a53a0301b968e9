//! NBD clients that keep the protocol: [`Client`] sends requests and receives replies one by one, in whatever order they
//! come; [`Plain`] knows nothing but NBD's basics, and its calls say whether the connection is gone.

use crate::wait::PATIENCE;
use futae_nbd::reply::Extent;
use futae_nbd::{
    ClientExport, ClientWish, Command, CommandFlags, ErrorNumber, Reply, RequestHeader, client,
    extension, parse_reply,
};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex};

trait Stream: Read + Write + Send {}
impl Stream for UnixStream {}
impl Stream for TcpStream {}

/// A connection to one export.
pub struct Client {
    stream: Box<dyn Stream>,
    /// What the server said of the export.
    pub export: ClientExport,
    next: u64,
    received: Vec<u8>,
    reads: Reads,
}

/// READs under way, by cookie: their offsets and lengths in bytes. Replies do not say how much they bring.
#[derive(Clone, Default)]
pub struct Reads(Arc<Mutex<HashMap<u64, (u64, usize)>>>);

impl Reads {
    /// Notes a request that is about to be sent past [`Client::send`].
    pub fn note(&self, header: &RequestHeader) {
        if header.command == Command::Read {
            let range = (header.offset, header.length_bytes as usize);
            self.0.lock().expect("a lock").insert(header.cookie, range);
        }
    }

    fn get(&self, cookie: u64) -> Option<(u64, usize)> {
        self.0.lock().expect("a lock").get(&cookie).copied()
    }

    fn remove(&self, cookie: u64) {
        self.0.lock().expect("a lock").remove(&cookie);
    }
}

/// A whole reply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The number of the request.
    pub cookie: u64,
    /// The error, if it failed.
    pub error: Option<ErrorNumber>,
    /// What the server said of the error.
    pub message: String,
    /// What was read.
    pub data: Vec<u8>,
    /// What was asked for with BLOCK_STATUS.
    pub extents: Vec<Extent>,
}

impl Client {
    /// Connects to a socket in a file system.
    #[must_use]
    pub fn unix(socket: &Path, export: &str, wish: &ClientWish) -> Self {
        let stream = UnixStream::connect(socket).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Self::greet(Box::new(stream), export, wish)
    }

    /// Connects by TCP.
    #[must_use]
    pub fn tcp(address: (&str, u16), export: &str, wish: &ClientWish) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).expect("timeout");
        Self::greet(Box::new(stream), export, wish)
    }

    /// Agrees on an export over a connection that the caller made.
    pub fn over(stream: UnixStream, export: &str, wish: &ClientWish) -> io::Result<Self> {
        Self::negotiate(Box::new(stream), export, wish)
    }

    /// The READs whose replies this client can take, for a caller that sends on a thread of its own.
    #[must_use]
    pub fn reads(&self) -> Reads {
        self.reads.clone()
    }

    fn greet(stream: Box<dyn Stream>, export: &str, wish: &ClientWish) -> Self {
        Self::negotiate(stream, export, wish).expect("a handshake")
    }

    fn negotiate(mut stream: Box<dyn Stream>, export: &str, wish: &ClientWish) -> io::Result<Self> {
        let export = client::negotiate(&mut stream, export, wish).map_err(io::Error::other)?;
        Ok(Self {
            stream,
            export,
            next: 1,
            received: Vec::new(),
            reads: Reads::default(),
        })
    }

    /// The next cookie; where demotion is agreed, the next sequence number.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    /// Sends bytes as they are.
    pub fn send_raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request whose reply comes later.
    pub fn send(&mut self, header: &RequestHeader, payload: &[u8]) {
        self.try_send(header, payload).expect("send");
    }

    fn try_send(&mut self, header: &RequestHeader, payload: &[u8]) -> io::Result<()> {
        self.reads.note(header);
        let message = [&header.encode()[..], payload].concat();
        self.stream.write_all(&message)
    }

    /// Sends a READ, and returns its cookie.
    pub fn send_read(&mut self, offset: u64, length: u32) -> u64 {
        let cookie = self.number();
        self.send(
            &RequestHeader::new(Command::Read, cookie, offset, length),
            &[],
        );
        cookie
    }

    /// Sends a WRITE, and returns its cookie.
    pub fn send_write(&mut self, offset: u64, data: &[u8]) -> u64 {
        let cookie = self.number();
        self.send_write_as(cookie, offset, data);
        cookie
    }

    /// Sends a WRITE with this cookie.
    pub fn send_write_as(&mut self, cookie: u64, offset: u64, data: &[u8]) {
        let header = RequestHeader::new(Command::Write, cookie, offset, data.len() as u32);
        self.send(&header, data);
    }

    /// Demotes, with this sequence number.
    pub fn demote_as(&mut self, sequence: u64, offset: u64, data: &[u8]) {
        let header = extension::demote_header(sequence, offset, data.len() as u32);
        self.send_raw(&[&header[..], data].concat()).expect("send");
    }

    /// Receives up to `most` bytes that nobody looks at.
    pub fn receive_raw(&mut self, most: usize) -> usize {
        let got = self.stream.read(&mut vec![0; most]).expect("receive");
        assert!(got > 0, "the server hung up");
        got
    }

    fn need(&mut self, bytes: usize) -> io::Result<()> {
        let mut chunk = [0; 65_536];
        while self.received.len() < bytes {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => self.received.extend_from_slice(&chunk[..got]),
                // A fuzzer has a timer.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        self.need(bytes)?;
        let rest = self.received.split_off(bytes);
        Ok(std::mem::replace(&mut self.received, rest))
    }

    /// The next reply, all chunks of it.
    pub fn try_receive(&mut self) -> io::Result<Answer> {
        let mut answer = Answer::default();
        loop {
            let parsed = parse_reply(&self.received).expect("the server keeps the protocol");
            let Some((reply, used)) = parsed else {
                self.need(self.received.len() + 1)?;
                continue;
            };
            let mut data_bytes = 0;
            let last = match reply {
                Reply::Simple { cookie, error } => {
                    (answer.cookie, answer.error) = (cookie, error);
                    if error.is_none() {
                        data_bytes = self.reads.get(cookie).map_or(0, |read| read.1);
                    }
                    true
                }
                Reply::Data {
                    cookie,
                    offset,
                    data_bytes: bytes,
                    last,
                } => {
                    let (start, length) = self.reads.get(cookie).expect("data for a READ");
                    assert_eq!(
                        (offset, bytes as usize),
                        (start, length),
                        "one chunk for all"
                    );
                    (answer.cookie, data_bytes) = (cookie, bytes as usize);
                    last
                }
                Reply::Done { cookie } => {
                    answer.cookie = cookie;
                    true
                }
                Reply::Error {
                    cookie,
                    error,
                    message,
                    last,
                    ..
                } => {
                    (answer.cookie, answer.error) = (cookie, Some(error));
                    answer.message = String::from_utf8_lossy(message).into_owned();
                    last
                }
                Reply::BlockStatus {
                    cookie,
                    extents,
                    last,
                    ..
                } => {
                    (answer.cookie, answer.extents) = (cookie, extents.collect());
                    last
                }
                Reply::Hole { .. } => panic!("the server sends no holes"),
            };
            self.received.drain(..used);
            if data_bytes > 0 {
                answer.data = self.take(data_bytes)?;
            }
            if last {
                self.reads.remove(answer.cookie);
                return Ok(answer);
            }
        }
    }

    /// The next reply of a connection that is not gone.
    pub fn receive(&mut self) -> Answer {
        self.try_receive().expect("a reply")
    }

    /// Sends one request and waits for its reply.
    pub fn ask(
        &mut self,
        command: Command,
        flags: CommandFlags,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> Answer {
        self.try_ask(command, flags, offset, length, payload)
            .expect("a reply")
    }

    /// As [`ask`](Self::ask); an error if the connection is gone.
    pub fn try_ask(
        &mut self,
        command: Command,
        flags: CommandFlags,
        offset: u64,
        length: u32,
        payload: &[u8],
    ) -> io::Result<Answer> {
        let cookie = self.number();
        let header = RequestHeader {
            flags,
            command,
            cookie,
            offset,
            length_bytes: length,
        };
        self.try_send(&header, payload)?;
        let answer = self.try_receive()?;
        assert_eq!(answer.cookie, cookie, "the reply to another request");
        Ok(answer)
    }

    /// Sends a request without flags and data, and waits for its reply.
    pub fn simple(&mut self, command: Command, offset: u64, length: u32) -> Answer {
        self.ask(command, CommandFlags::NONE, offset, length, &[])
    }

    /// Reads.
    pub fn read(&mut self, offset: u64, length: u32) -> Result<Vec<u8>, ErrorNumber> {
        let answer = self.simple(Command::Read, offset, length);
        answer.error.map_or(Ok(answer.data), Err)
    }

    /// Writes.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Option<ErrorNumber> {
        let length = data.len() as u32;
        self.ask(Command::Write, CommandFlags::NONE, offset, length, data)
            .error
    }

    /// Waits until the server has dealt with everything sent so far that has no reply.
    pub fn settle(&mut self) {
        assert_eq!(self.simple(Command::Flush, 0, 0).error, None);
    }
}

/// A client that negotiates nothing, with one request at a time. `Err` of a call means that the connection is gone; an
/// error that the server answers with is in the `Ok`.
pub struct Plain(Client);

/// What the server answers to a [`Plain`] client.
pub type Outcome<T> = io::Result<Result<T, ErrorNumber>>;

impl Plain {
    /// Connects.
    pub fn connect(socket: &Path, export: &str) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Client::negotiate(Box::new(stream), export, &ClientWish::default()).map(Self)
    }

    /// What the server said of the export.
    #[must_use]
    pub fn export(&self) -> &ClientExport {
        &self.0.export
    }

    /// Reads.
    pub fn read(&mut self, offset: u64, length: usize) -> Outcome<Vec<u8>> {
        let length = u32::try_from(length).expect("short requests");
        let answer = self
            .0
            .try_ask(Command::Read, CommandFlags::NONE, offset, length, &[])?;
        Ok(answer.error.map_or(Ok(answer.data), Err))
    }

    /// Sends a READ whose answer nobody will receive.
    pub fn ask_in_vain(&mut self, offset: u64, length: u32) -> io::Result<()> {
        let header = RequestHeader::new(Command::Read, self.0.number(), offset, length);
        self.0.send_raw(&header.encode())
    }

    /// Writes.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Outcome<()> {
        self.change(Command::Write, CommandFlags::NONE, offset, data)
    }

    /// Writes onto stable storage.
    pub fn write_fua(&mut self, offset: u64, data: &[u8]) -> Outcome<()> {
        self.change(Command::Write, CommandFlags::FUA, offset, data)
    }

    /// Brings what was answered before onto stable storage.
    pub fn flush(&mut self) -> Outcome<()> {
        self.change(Command::Flush, CommandFlags::NONE, 0, &[])
    }

    fn change(
        &mut self,
        command: Command,
        flags: CommandFlags,
        offset: u64,
        data: &[u8],
    ) -> Outcome<()> {
        let length = u32::try_from(data.len()).expect("short requests");
        let answer = self.0.try_ask(command, flags, offset, length, data)?;
        Ok(answer.error.map_or(Ok(()), Err))
    }
}
