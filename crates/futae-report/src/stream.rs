//! Frames out of a stream of bytes that may begin anywhere, break off, or be made to harm.

use crate::frame::{HEADER_BYTES, MAGIC, VERSION};
use crate::{Frame, MAX_PAYLOAD_BYTES, binary};

/// Takes bytes as they come and gives whole frames.
///
/// ```
/// use futae_report::{Frame, Hello, Message, Stream};
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
    health: Health,
}

/// How much of a stream was no frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Frames read.
    pub frames: u64,
    /// Bytes that belonged to no frame.
    pub skipped_bytes: u64,
    /// Frames whose payload was damaged or against the rules.
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
        self.bytes.drain(..self.at);
        self.at = 0;
        let unwanted = self.unwanted.min(bytes.len());
        self.unwanted -= unwanted;
        self.bytes.extend_from_slice(&bytes[unwanted..]);
    }

    /// The next whole frame, `None` if more must arrive first.
    pub fn next_frame(&mut self) -> Option<Frame> {
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
                self.at += here;
                continue;
            }
            let payload = rest.get(HEADER_BYTES..whole)?;
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
