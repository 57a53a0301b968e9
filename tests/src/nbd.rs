//! A plain NBD client: one request at a time.

use futae_wire::{
    ClientExport, ClientWish, Command, CommandFlags, ErrorNumber, Reply, RequestHeader, client,
    parse_reply,
};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const REPLY_BYTES: usize = 16;

/// A connection to one export. `Err` of every call means that the connection is gone; an error
/// that the server answers with is in the `Ok`.
pub struct Client {
    stream: UnixStream,
    /// What the server said of the export.
    pub export: ClientExport,
    cookie: u64,
}

/// What the server answers.
pub type Answer<T> = io::Result<Result<T, ErrorNumber>>;

impl Client {
    /// Connects as a client that knows nothing but NBD's basics.
    pub fn connect(socket: &Path, export: &str) -> io::Result<Self> {
        let mut stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let export = client::negotiate(&mut stream, export, &ClientWish::default());
        let export = export.map_err(io::Error::other)?;
        Ok(Self {
            stream,
            export,
            cookie: 0,
        })
    }

    /// Reads.
    pub fn read(&mut self, offset: u64, length: usize) -> Answer<Vec<u8>> {
        if let Err(error) = self.ask(Command::Read, offset, length, &[])? {
            return Ok(Err(error));
        }
        let mut data = vec![0; length];
        self.stream.read_exact(&mut data)?;
        Ok(Ok(data))
    }

    /// Writes.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Answer<()> {
        self.ask(Command::Write, offset, data.len(), data)
    }

    /// Writes onto stable storage.
    pub fn write_fua(&mut self, offset: u64, data: &[u8]) -> Answer<()> {
        let header = self.header(Command::Write, offset, data.len());
        let flags = CommandFlags::FUA;
        self.send(&RequestHeader { flags, ..header }, data)
    }

    /// Brings what was answered before onto stable storage.
    pub fn flush(&mut self) -> Answer<()> {
        self.ask(Command::Flush, 0, 0, &[])
    }

    fn header(&mut self, command: Command, offset: u64, length: usize) -> RequestHeader {
        self.cookie += 1;
        let length = u32::try_from(length).expect("short requests");
        RequestHeader::new(command, self.cookie, offset, length)
    }

    fn ask(&mut self, command: Command, offset: u64, length: usize, data: &[u8]) -> Answer<()> {
        let header = self.header(command, offset, length);
        self.send(&header, data)
    }

    fn send(&mut self, header: &RequestHeader, data: &[u8]) -> Answer<()> {
        self.stream
            .write_all(&[&header.encode()[..], data].concat())?;
        let mut reply = [0; REPLY_BYTES];
        self.stream.read_exact(&mut reply)?;
        match parse_reply(&reply).map_err(io::Error::other)? {
            Some((Reply::Simple { cookie, error }, REPLY_BYTES)) => {
                assert_eq!(cookie, self.cookie, "the reply to another request");
                Ok(error.map_or(Ok(()), Err))
            }
            other => panic!("not a simple reply: {other:?}"),
        }
    }
}
