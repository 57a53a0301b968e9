//! An NBD client that keeps a number of requests under way: what came back is taken in with one
//! receive, and as many new requests leave with one send. After the first request nothing is
//! allocated.

use anyhow::{Context, anyhow, bail, ensure};
use futae_nbd::constants::SIMPLE_REPLY_BYTES;
use futae_nbd::{
    ClientExport, ClientWish, Command, NbdUri, Reply, RequestHeader, Transport, client, parse_reply,
};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use crate::pattern;

/// Most requests under way at once.
pub const DEPTH_MAX: usize = 1024;
/// The longest request in bytes.
pub const REQUEST_BYTES_MAX: u32 = 2 << 20;
const RECEIVE_BYTES_MIN: usize = 512 << 10;
const RECEIVE_BYTES_MAX: usize = 4 << 20;

/// A reply that has arrived in full.
#[derive(Clone, Copy, Debug)]
pub struct Arrived {
    /// When its request left.
    pub sent: Instant,
    /// When it was taken in.
    pub arrived: Instant,
}

#[derive(Clone, Copy)]
struct Slot {
    offset: u64,
    sent: Instant,
    busy: bool,
}

/// The data of the reply that is being taken in.
#[derive(Clone, Copy)]
struct Current {
    slot: usize,
    taken: usize,
}

/// One connection in its transmission phase, asking for reads of one size.
pub struct Connection {
    /// A socket; reading and writing a file descriptor needs no more than this.
    socket: File,
    export: ClientExport,
    request_bytes: u32,
    slots: Vec<Slot>,
    free: Vec<usize>,
    outgoing: Vec<u8>,
    incoming: Box<[u8]>,
    start: usize,
    end: usize,
    current: Option<Current>,
    verify: bool,
}

impl Connection {
    /// Connects; up to `depth` reads of `request_bytes` may then be under way. With `verify`,
    /// every byte is held against the [`pattern`].
    pub fn open(
        uri: &NbdUri,
        depth: usize,
        request_bytes: u32,
        verify: bool,
    ) -> anyhow::Result<Self> {
        ensure!(
            (1..=DEPTH_MAX).contains(&depth),
            "a depth is from 1 to {DEPTH_MAX}, not {depth}"
        );
        ensure!(
            (1..=REQUEST_BYTES_MAX).contains(&request_bytes),
            "a request is from 1 byte to {REQUEST_BYTES_MAX}, not {request_bytes}"
        );
        let mut socket = connect(&uri.transport)?;
        let export = client::negotiate(&mut socket, &uri.export, &ClientWish::default())?;
        let all = depth * (SIMPLE_REPLY_BYTES + request_bytes as usize);
        let idle = Slot {
            offset: 0,
            sent: Instant::now(),
            busy: false,
        };
        Ok(Self {
            socket,
            export,
            request_bytes,
            slots: vec![idle; depth],
            free: (0..depth).collect(),
            outgoing: Vec::with_capacity(depth * 32),
            incoming: vec![0; all.clamp(RECEIVE_BYTES_MIN, RECEIVE_BYTES_MAX)].into(),
            start: 0,
            end: 0,
            current: None,
            verify,
        })
    }

    /// What the server granted.
    #[must_use]
    pub fn export(&self) -> &ClientExport {
        &self.export
    }

    /// Requests under way.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Asks for reads at what `next` gives until the depth is reached or `next` ends; all leave in
    /// one write.
    pub fn ask(&mut self, mut next: impl FnMut() -> Option<u64>) -> anyhow::Result<()> {
        self.outgoing.clear();
        let sent = Instant::now();
        while let Some(&slot) = self.free.last() {
            let Some(offset) = next() else { break };
            self.free.pop();
            self.slots[slot] = Slot {
                offset,
                sent,
                busy: true,
            };
            let header = RequestHeader::new(Command::Read, slot as u64, offset, self.request_bytes);
            self.outgoing.extend_from_slice(&header.encode());
        }
        self.socket
            .write_all(&self.outgoing)
            .context("sending requests")
    }

    /// Receives once, waiting for something, and calls `each` for every reply that is complete.
    pub fn take_in(&mut self, mut each: impl FnMut(Arrived)) -> anyhow::Result<()> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.incoming.len() - self.end < self.incoming.len() / 2 {
            self.incoming.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let received = loop {
            match self.socket.read(&mut self.incoming[self.end..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other.context("receiving replies")?,
            }
        };
        ensure!(received > 0, "the server closed the connection");
        self.end += received;
        let arrived = Instant::now();
        while let Some(slot) = self.next_reply()? {
            self.free.push(slot);
            let slot = &mut self.slots[slot];
            slot.busy = false;
            let sent = slot.sent;
            each(Arrived { sent, arrived });
        }
        Ok(())
    }

    /// The slot of the next reply of which all has arrived.
    fn next_reply(&mut self) -> anyhow::Result<Option<usize>> {
        loop {
            if let Some(current) = self.current {
                return self.take_data(current);
            }
            let waiting = &self.incoming[self.start..self.end];
            let Some((reply, bytes)) = parse_reply(waiting)? else {
                return Ok(None);
            };
            let Reply::Simple { error, cookie } = reply else {
                bail!("a structured reply, though none was agreed");
            };
            let slot = usize::try_from(cookie)
                .ok()
                .filter(|&slot| self.is_busy(slot));
            let slot = slot.ok_or_else(|| anyhow!("a reply to no request (cookie {cookie})"))?;
            if let Some(error) = error {
                bail!(
                    "the server answered a read at {} with {error:?}",
                    self.slots[slot].offset
                );
            }
            self.start += bytes;
            self.current = Some(Current { slot, taken: 0 });
        }
    }

    fn is_busy(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.busy)
    }

    fn take_data(&mut self, mut current: Current) -> anyhow::Result<Option<usize>> {
        let wanted = self.request_bytes as usize - current.taken;
        let here = wanted.min(self.end - self.start);
        if self.verify {
            let offset = self.slots[current.slot].offset + current.taken as u64;
            let data = &self.incoming[self.start..self.start + here];
            ensure!(
                pattern::matches(offset, data),
                "wrong data in {here} bytes at {offset}"
            );
        }
        self.start += here;
        current.taken += here;
        let done = here == wanted;
        self.current = (!done).then_some(current);
        Ok(done.then_some(current.slot))
    }

    /// Says goodbye. Nothing may be under way.
    pub fn close(mut self) -> anyhow::Result<()> {
        let header = RequestHeader::new(Command::Disconnect, 0, 0, 0);
        self.socket
            .write_all(&header.encode())
            .context("saying goodbye")
    }
}

fn connect(transport: &Transport) -> anyhow::Result<File> {
    let socket: OwnedFd = match transport {
        Transport::Unix { socket } => UnixStream::connect(socket)
            .with_context(|| format!("connecting to {}", socket.display()))?
            .into(),
        Transport::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port))
                .with_context(|| format!("connecting to {host}:{port}"))?;
            stream.set_nodelay(true)?;
            stream.into()
        }
    };
    Ok(socket.into())
}

/// Writes the [`pattern`] over a whole export, one request at a time.
pub fn fill(uri: &NbdUri) -> anyhow::Result<()> {
    const CHUNK_BYTES: u64 = 1 << 20;
    let mut socket = connect(&uri.transport)?;
    let export = client::negotiate(&mut socket, &uri.export, &ClientWish::default())?;
    let mut data = vec![0; CHUNK_BYTES as usize];
    let mut offset = 0;
    while offset < export.size_bytes {
        let bytes = CHUNK_BYTES.min(export.size_bytes - offset);
        let data = &mut data[..bytes as usize];
        pattern::fill(offset, data);
        let header = RequestHeader::new(Command::Write, offset, offset, bytes as u32);
        socket.write_all(&header.encode())?;
        socket.write_all(data)?;
        let mut reply = [0; SIMPLE_REPLY_BYTES];
        socket.read_exact(&mut reply)?;
        match parse_reply(&reply)? {
            Some((
                Reply::Simple {
                    error: None,
                    cookie,
                },
                _,
            )) if cookie == offset => {}
            other => bail!("the server answered a write at {offset} with {other:?}"),
        }
        offset += bytes;
    }
    let header = RequestHeader::new(Command::Disconnect, 0, 0, 0);
    socket.write_all(&header.encode()).context("saying goodbye")
}
