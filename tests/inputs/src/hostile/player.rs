//! An NBD server that plays an input: its handshake keeps the protocol, its replies do as the
//! input says. Every byte of data that it sends tells where in the export it belongs.

use crate::hostile::{Script, stamped};
use futae_nbd::constants::*;
use futae_nbd::reply::{self, Extent};
use futae_nbd::{Command, DemotionTerms, ErrorNumber, RequestHeader, TransmissionFlags};
use futae_nbd::{parse_request, reply as replies};
use futae_testkit::wait::PATIENCE;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// After so long without a request the player closes the connection, so that no caller waits for
/// a reply that the input leaves out.
const SILENCE: Duration = Duration::from_millis(10);
/// Chunks of the longest flood.
const FLOOD_CHUNKS: u64 = 512;
/// Extents in each of them.
const FLOOD_EXTENTS: usize = 64;

/// What the export is.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub size_bytes: u64,
    pub minimum: u32,
    pub longest: u32,
    pub structured: bool,
    pub demotion: bool,
}

/// What was sent beside stamped data, over all connections.
#[derive(Default)]
pub struct Sent {
    /// Ranges that were sent as holes.
    pub holes: Mutex<Vec<Range<u64>>>,
    /// Bytes went out that a client may take for the beginning of data, and what follows for data.
    pub is_garbled: AtomicBool,
}

pub struct Player<'a> {
    stream: UnixStream,
    script: Script<'a>,
    terms: Terms,
    sent: Arc<Sent>,
    received: Vec<u8>,
    earlier: Vec<RequestHeader>,
}

impl<'a> Player<'a> {
    pub fn new(stream: UnixStream, script: Script<'a>, terms: Terms, sent: Arc<Sent>) -> Self {
        Self {
            stream,
            script,
            terms,
            sent,
            received: Vec::new(),
            earlier: Vec::new(),
        }
    }

    /// Plays until the input or the client ends; what is left of the input.
    pub fn play(mut self) -> Script<'a> {
        // However a connection ends, the client must get on with it.
        let _ = self.converse();
        self.script
    }

    fn converse(&mut self) -> io::Result<()> {
        self.stream.set_write_timeout(Some(PATIENCE))?;
        self.stream.set_read_timeout(Some(PATIENCE))?;
        self.handshake()?;
        self.stream.set_read_timeout(Some(SILENCE))?;
        loop {
            while let Ok(Some((request, used))) = parse_request(&self.received) {
                let payload = request.payload_bytes() as usize;
                self.need(used + payload)?;
                self.received.drain(..used + payload);
                match request.command {
                    Command::Disconnect => return Ok(()),
                    Command::Demote => {}
                    _ if self.script.is_over() => return Ok(()),
                    _ => self.answer(&request)?,
                }
            }
            self.need(self.received.len() + 1)?;
        }
    }

    fn need(&mut self, bytes: usize) -> io::Result<()> {
        let mut part = [0; 16 << 10];
        while self.received.len() < bytes {
            match self.stream.read(&mut part) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => self.received.extend_from_slice(&part[..got]),
                // The fuzzer has a timer.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take(&mut self, bytes: usize) -> io::Result<Vec<u8>> {
        self.need(bytes)?;
        Ok(self.received.drain(..bytes).collect())
    }

    fn option_reply(&mut self, option: u32, kind: u32, data: &[u8]) -> io::Result<()> {
        let mut out = OPTION_REPLY_MAGIC.to_be_bytes().to_vec();
        out.extend_from_slice(&option.to_be_bytes());
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(data);
        self.stream.write_all(&out)
    }

    fn handshake(&mut self) -> io::Result<()> {
        self.stream.write_all(&futae_nbd::greeting())?;
        self.take(4)?;
        loop {
            let header = self.take(OPTION_HEADER_BYTES)?;
            let field = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| header[at + i]));
            let option = field(8);
            self.take(field(12) as usize)?;
            match option {
                OPT_STRUCTURED_REPLY if self.terms.structured => {}
                OPT_SET_META_CONTEXT if self.terms.structured => {
                    let mut context = 1u32.to_be_bytes().to_vec();
                    context.extend_from_slice(BASE_ALLOCATION.as_bytes());
                    self.option_reply(option, REP_META_CONTEXT, &context)?;
                }
                OPT_FUTAE_DEMOTION if self.terms.demotion => {
                    let terms = DemotionTerms::new(4096).expect("a block");
                    self.option_reply(option, REP_FUTAE_DEMOTION, &terms.encode())?;
                }
                OPT_GO => {
                    self.describe(option)?;
                    return self.option_reply(option, REP_ACK, &[]);
                }
                _ => {
                    self.option_reply(option, REP_ERR_UNSUP, &[])?;
                    continue;
                }
            }
            self.option_reply(option, REP_ACK, &[])?;
        }
    }

    fn describe(&mut self, option: u32) -> io::Result<()> {
        let flags = TransmissionFlags(
            TransmissionFlags::HAS_FLAGS.0
                | TransmissionFlags::SEND_FLUSH.0
                | TransmissionFlags::SEND_FUA.0
                | TransmissionFlags::SEND_TRIM.0
                | TransmissionFlags::SEND_WRITE_ZEROES.0
                | TransmissionFlags::SEND_CACHE.0
                | TransmissionFlags::SEND_DF.0,
        );
        let mut export = INFO_EXPORT.to_be_bytes().to_vec();
        export.extend_from_slice(&self.terms.size_bytes.to_be_bytes());
        export.extend_from_slice(&flags.0.to_be_bytes());
        self.option_reply(option, REP_INFO, &export)?;
        let mut sizes = INFO_BLOCK_SIZE.to_be_bytes().to_vec();
        for size in [self.terms.minimum, 4096, self.terms.longest] {
            sizes.extend_from_slice(&size.to_be_bytes());
        }
        self.option_reply(option, REP_INFO, &sizes)
    }

    fn data(&mut self, cookie: u64, offset: u64, bytes: u64, last: bool) -> io::Result<()> {
        let bytes = bytes.clamp(1, 1 << 20);
        let header = replies::data(cookie, offset, bytes as u32, last);
        self.stream.write_all(&header)?;
        self.stream.write_all(&stamped(0, offset, bytes as usize))
    }

    fn hole(&mut self, cookie: u64, offset: u64, bytes: u64, last: bool) -> io::Result<()> {
        let bytes = bytes.clamp(1, 1 << 20);
        let mut holes = self.sent.holes.lock().expect("one player");
        holes.push(offset..offset + bytes);
        drop(holes);
        self.stream
            .write_all(&reply::hole(cookie, offset, bytes as u32, last))
    }

    fn done(&mut self, cookie: u64) -> io::Result<()> {
        self.stream.write_all(&replies::done(cookie))
    }

    fn failure(&mut self, cookie: u64, message: &str) -> io::Result<()> {
        let mut out = Vec::new();
        replies::append_error(&mut out, cookie, ErrorNumber::InputOutput, message);
        self.stream.write_all(&out)
    }

    /// The whole answer that the protocol asks for.
    fn whole(&mut self, request: &RequestHeader) -> io::Result<()> {
        let (cookie, length) = (request.cookie, u64::from(request.length_bytes));
        match request.command {
            Command::Read if self.terms.structured => {
                self.data(cookie, request.offset, length, true)
            }
            Command::Read => {
                self.stream.write_all(&replies::simple(cookie, None))?;
                let data = stamped(0, request.offset, length as usize);
                self.stream.write_all(&data)
            }
            Command::BlockStatus => self.extents(cookie, 1, length, true),
            _ => self.stream.write_all(&replies::simple(cookie, None)),
        }
    }

    fn extents(&mut self, cookie: u64, count: usize, length: u64, last: bool) -> io::Result<()> {
        let extent = Extent {
            length_bytes: length as u32,
            state: STATE_ZERO,
        };
        let mut out = Vec::new();
        replies::append_block_status(&mut out, cookie, 1, &vec![extent; count], last);
        self.stream.write_all(&out)
    }

    /// One answer, as the input has it.
    fn answer(&mut self, request: &RequestHeader) -> io::Result<()> {
        let cookie = request.cookie;
        let (start, length) = (request.offset, u64::from(request.length_bytes));
        let half = (length / 2).max(1);
        self.earlier.push(*request);
        match self.script.byte() % 24 {
            // The first half twice: as many bytes as were asked for, and not all of them.
            0 => {
                self.data(cookie, start, half, false)?;
                self.data(cookie, start, length - length / 2, false)?;
                self.done(cookie)
            }
            // Ranges that overlap, touch or leave gaps.
            1 | 2 => {
                for _ in 0..1 + self.script.byte() % 6 {
                    let from = self.script.below(length);
                    let bytes = self.script.below(length.saturating_sub(from) + 1);
                    match self.script.byte() % 3 {
                        0 => self.hole(cookie, start + from, bytes, false)?,
                        _ => self.data(cookie, start + from, bytes, false)?,
                    }
                }
                self.done(cookie)
            }
            // Both halves, either first.
            3 => {
                let rest = length.saturating_sub(half);
                self.data(cookie, start + half, rest, false)?;
                self.data(cookie, start, half, true)
            }
            4 => {
                let rest = length.saturating_sub(half);
                self.hole(cookie, start, half, false)?;
                self.data(cookie, start + half, rest, true)
            }
            5 => self.data(cookie, start, half, true),
            6 => self.done(cookie),
            // For another request, or for none.
            7 => {
                let other = cookie ^ u64::from(self.script.byte());
                self.data(other, start, length, true)
            }
            8 => {
                let at = self.script.below(self.earlier.len() as u64) as usize;
                let earlier = self.earlier[at];
                self.whole(&earlier)
            }
            // Beyond what was asked for.
            9 => {
                let before = self.script.below(8192);
                self.data(cookie, start.saturating_sub(before), length + before, true)
            }
            10 => {
                let beyond = self.script.word();
                self.data(cookie, start + beyond, length, true)
            }
            11 => self.failure(cookie, "the input says so"),
            12 => {
                self.data(cookie, start, half, false)?;
                self.failure(cookie, "\u{1b}[2Jhalf-way")?;
                self.data(cookie, start + half, half, true)
            }
            13 => {
                for _ in 0..self.script.below(FLOOD_CHUNKS) {
                    let length = self.script.pick(&[1, 4096, u64::from(u32::MAX)]);
                    self.extents(cookie, FLOOD_EXTENTS, length, false)?;
                }
                let ends = self.script.byte().is_multiple_of(2);
                self.extents(cookie, 1, length, ends)
            }
            14 => {
                let raw = self.script.bytes(64);
                self.sent.is_garbled.store(true, Relaxed);
                self.stream.write_all(raw)
            }
            // Cut in the middle of data.
            15 => {
                let header = replies::data(cookie, start, request.length_bytes.max(1), true);
                self.stream.write_all(&header)?;
                let part = self.script.below(length) as usize;
                self.stream.write_all(&stamped(0, start, part))?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            16 => Ok(()),
            17 => {
                self.whole(request)?;
                self.whole(request)
            }
            18 => {
                // Without structured replies data would follow.
                let promises_data = request.command == Command::Read && !self.terms.structured;
                self.sent.is_garbled.fetch_or(promises_data, Relaxed);
                self.stream.write_all(&replies::simple(cookie, None))
            }
            19 => self
                .stream
                .write_all(&replies::simple(cookie, Some(ErrorNumber::NoSpace))),
            20 => Err(io::ErrorKind::ConnectionAborted.into()),
            _ => self.whole(request),
        }
    }
}
