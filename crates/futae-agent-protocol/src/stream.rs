//! Frames out of a stream of bytes that may begin anywhere, break off, or be made to harm.

use crate::frame::{HEADER_BYTES, MAGIC, VERSION};
use crate::{Frame, MAX_PAYLOAD_BYTES, binary};
use std::time::{Duration, Instant};

/// How long a frame may take from its header to its end. What comes later is another sender's, whose predecessor
/// broke off: over a port that stays open nothing else tells.
const FRAME_TIME_MAX: Duration = Duration::from_secs(5);

/// Takes bytes as they come and gives whole frames.
///
/// ```
/// use futae_agent_protocol::{Frame, Hello, Message, Stream};
/// let frame = Frame { sequence: 7, message: Message::Hello(Hello::default()) };
/// let mut stream = Stream::default();
/// stream.feed(b"the end of something else");
/// stream.feed(&frame.encode());
/// assert_eq!(stream.next_frame(), Some(frame));
/// assert_eq!(stream.next_frame(), None);
/// assert_eq!(stream.health().skipped_bytes, 25);
/// ```
///
/// Never keeps more than one frame and what was fed last, if [`Stream::next_frame`] is called until it
/// returns `None` after each [`Stream::feed`]. Its work is in proportion to the bytes fed, whatever they are.
#[derive(Debug, Default)]
pub struct Stream {
    bytes: Vec<u8>,
    /// Where in `bytes` the next frame is looked for.
    at: usize,
    /// Bytes still to come of a frame that nobody here wants.
    unwanted: usize,
    /// When the header came of a frame that is not whole.
    begun: Option<Instant>,
    health: Health,
}

/// How much of a stream was no frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Frames read.
    pub frames: u64,
    /// Bytes that belonged to no frame.
    pub skipped_bytes: u64,
    /// Frames whose payload was damaged, against the rules, or did not come.
    pub broken_frames: u64,
    /// Frames of a kind or version that is not known here.
    pub unknown_frames: u64,
}

struct Header {
    version: u8,
    kind: u8,
    length: usize,
    checksum: u32,
    sequence: u64,
}

impl Header {
    /// The header at the beginning of `bytes`, if its magic and its checksum are right.
    fn read(bytes: &[u8]) -> Option<Self> {
        let header: &[u8; HEADER_BYTES] = bytes.first_chunk()?;
        let (fields, checksum) = header.split_last_chunk::<4>()?;
        if fields[..4] != MAGIC || crc32fast::hash(fields) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let number = |at: usize| {
            fields[at..]
                .first_chunk()
                .map(|four| u32::from_le_bytes(*four))
        };
        let length = usize::try_from(number(8)?).ok()?;
        (length <= MAX_PAYLOAD_BYTES).then_some(Self {
            version: fields[4],
            kind: fields[5],
            length,
            checksum: number(12)?,
            sequence: fields[16..]
                .first_chunk()
                .map(|eight| u64::from_le_bytes(*eight))?,
        })
    }
}

impl Stream {
    /// Appends what arrived.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.feed_at(Instant::now(), bytes);
    }

    fn feed_at(&mut self, now: Instant, bytes: &[u8]) {
        let was_unwanted = self.unwanted > 0;
        if was_unwanted && self.is_late(now) {
            self.unwanted = 0;
        }
        self.bytes.drain(..self.at);
        self.at = 0;
        let unwanted = self.unwanted.min(bytes.len());
        self.unwanted -= unwanted;
        if was_unwanted && self.unwanted == 0 {
            self.begun = None;
        }
        self.bytes.extend_from_slice(&bytes[unwanted..]);
    }

    /// The next whole frame, `None` if more must arrive first. One that is not whole five seconds after its
    /// header is given up, and frames are looked for in what came of it.
    pub fn next_frame(&mut self) -> Option<Frame> {
        self.next_frame_at(Instant::now())
    }

    fn is_late(&self, now: Instant) -> bool {
        self.begun
            .is_some_and(|begun| now.saturating_duration_since(begun) > FRAME_TIME_MAX)
    }

    fn next_frame_at(&mut self, now: Instant) -> Option<Frame> {
        loop {
            self.find_magic();
            let rest = &self.bytes[self.at..];
            if rest.len() < HEADER_BYTES {
                return None;
            }
            let Some(header) = Header::read(rest) else {
                self.skip(1);
                continue;
            };
            let whole = HEADER_BYTES + header.length;
            if header.version != VERSION || !binary::is_known(header.kind) {
                self.health.unknown_frames += 1;
                let here = whole.min(rest.len());
                self.unwanted = whole - here;
                self.begun = (self.unwanted > 0).then_some(now);
                self.at += here;
                continue;
            }
            let Some(payload) = rest.get(HEADER_BYTES..whole) else {
                if self.is_late(now) {
                    self.begun = None;
                    self.health.broken_frames += 1;
                    self.skip(1);
                    continue;
                }
                self.begun.get_or_insert(now);
                return None;
            };
            self.begun = None;
            let message = (crc32fast::hash(payload) == header.checksum)
                .then(|| binary::read(header.kind, payload))
                .flatten();
            // The header was right, so its length is believed: looking for frames inside of a
            // payload would let a sender make us look at every byte many times.
            self.at += whole;
            let Some(message) = message else {
                self.health.broken_frames += 1;
                continue;
            };
            self.health.frames += 1;
            return Some(Frame {
                sequence: header.sequence,
                message,
            });
        }
    }

    /// How much of the stream was no frame so far.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health
    }

    /// Bytes kept for a frame that is not whole yet.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Forgets the beginning of a frame: the connection it came over is gone.
    pub fn restart(&mut self) {
        self.bytes.clear();
        self.at = 0;
        self.unwanted = 0;
        self.begun = None;
    }

    fn skip(&mut self, count: usize) {
        self.at += count;
        self.health.skipped_bytes += count as u64;
    }

    /// Goes to where a magic begins, or may begin.
    fn find_magic(&mut self) {
        let rest = &self.bytes[self.at..];
        let begins = |at: usize| {
            let window = &rest[at..rest.len().min(at + MAGIC.len())];
            MAGIC.starts_with(window)
        };
        let found = (0..rest.len()).find(|&at| begins(at)).unwrap_or(rest.len());
        self.skip(found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Hello, Message};

    fn hello(sequence: u64) -> Frame {
        Frame {
            sequence,
            message: Message::Hello(Hello::default()),
        }
    }

    /// The header of a frame of 256 KiB, of this kind, of which no more comes.
    fn broken_off(kind: u8) -> Vec<u8> {
        let mut header = hello(0).encode();
        header.truncate(HEADER_BYTES);
        header[5] = kind;
        header[8..12].copy_from_slice(&(MAX_PAYLOAD_BYTES as u32).to_le_bytes());
        let (fields, checksum) = header.split_at_mut(HEADER_BYTES - 4);
        checksum.copy_from_slice(&crc32fast::hash(fields).to_le_bytes());
        header
    }

    #[test]
    fn a_frame_that_broke_off_does_not_swallow_those_behind_it_for_long() {
        let begin = Instant::now();
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        for kind in [1, 200] {
            let mut stream = Stream::default();
            stream.feed_at(at(0), &broken_off(kind));
            assert_eq!(stream.next_frame_at(at(0)), None);
            for second in 1..=5 {
                stream.feed_at(at(second), &hello(second).encode());
                assert_eq!(stream.next_frame_at(at(second)), None, "it may still come");
            }
            stream.feed_at(at(6), &hello(6).encode());
            let found = std::iter::from_fn(|| stream.next_frame_at(at(6)));
            let found: Vec<u64> = found.map(|frame| frame.sequence).collect();
            // Of what nobody wants nothing is kept.
            let all: Vec<u64> = if kind == 1 {
                (1..=6).collect()
            } else {
                vec![6]
            };
            assert_eq!(found, all);
        }
    }

    #[test]
    fn a_frame_behind_an_unknown_one_has_its_own_time() {
        let begin = Instant::now();
        let mut stream = Stream::default();
        stream.feed_at(begin, &broken_off(200));
        assert_eq!(stream.next_frame_at(begin), None);
        stream.feed_at(begin, &vec![0; MAX_PAYLOAD_BYTES]);
        assert_eq!(stream.next_frame_at(begin), None);
        let later = begin + Duration::from_secs(60);
        let bytes = hello(3).encode();
        let (first, last) = bytes.split_at(bytes.len() - 1);
        stream.feed_at(later, first);
        assert_eq!(stream.next_frame_at(later), None);
        stream.feed_at(later, last);
        assert_eq!(stream.next_frame_at(later), Some(hello(3)));
    }

    #[test]
    fn a_slow_frame_is_heard() {
        let begin = Instant::now();
        let mut stream = Stream::default();
        let bytes = hello(3).encode();
        stream.feed_at(begin, &bytes[..bytes.len() - 1]);
        assert_eq!(stream.next_frame_at(begin), None);
        let later = begin + Duration::from_secs(3600);
        stream.feed_at(later, &bytes[bytes.len() - 1..]);
        assert_eq!(stream.next_frame_at(later), Some(hello(3)));
    }
}
