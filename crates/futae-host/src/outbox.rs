//! Outgoing replies: as many as the kernel accepts are sent in one system call, and block data is
//! never copied on the way.

use crate::wire::Wire;
use futae_engine::{IoBuf, IoError};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

/// The largest number of buffers per system call (`IOV_MAX`).
const SLICES_MAX: usize = 1024;
const HEAD_BYTES_MAX: usize = 32;

/// The part of a reply after its header.
enum Body {
    None,
    Data(IoBuf),
    Bytes(Vec<u8>),
}

/// One reply.
pub(crate) struct Frame {
    head: [u8; HEAD_BYTES_MAX],
    head_bytes: u8,
    body: Body,
    held_bytes: u64,
    /// The failure of which it tells, if no other reply does.
    failure: Option<Box<IoError>>,
}

impl Frame {
    fn new(head: &[u8], body: Body, held_bytes: u64) -> Self {
        let mut frame = Self {
            head: [0; HEAD_BYTES_MAX],
            head_bytes: head.len() as u8,
            body,
            held_bytes,
            failure: None,
        };
        frame.head[..head.len()].copy_from_slice(head);
        frame
    }

    /// A header alone.
    pub(crate) fn head<const N: usize>(head: &[u8; N], held_bytes: u64) -> Self {
        const { assert!(N <= HEAD_BYTES_MAX) };
        Self::new(head, Body::None, held_bytes)
    }

    /// A header and block data.
    pub(crate) fn data<const N: usize>(head: &[u8; N], data: IoBuf, held_bytes: u64) -> Self {
        const { assert!(N <= HEAD_BYTES_MAX) };
        Self::new(head, Body::Data(data), held_bytes)
    }

    /// A completely encoded reply.
    pub(crate) fn bytes(bytes: Vec<u8>, held_bytes: u64) -> Self {
        Self::new(&[], Body::Bytes(bytes), held_bytes)
    }

    /// If it is not sent, [`Outbox::clear`] returns this failure.
    pub(crate) fn telling(mut self, failure: Option<IoError>) -> Self {
        self.failure = failure.map(Box::new);
        self
    }

    fn parts(&self) -> [&[u8]; 2] {
        let body: &[u8] = match &self.body {
            Body::None => &[],
            Body::Data(data) => data.as_slice(),
            Body::Bytes(bytes) => bytes,
        };
        [&self.head[..usize::from(self.head_bytes)], body]
    }

    fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }
}

/// The result of one call of [`Outbox::send`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Replies that were sent completely.
    pub(crate) replies: u64,
    /// System calls.
    pub(crate) calls: u64,
    /// Bytes of memory that those replies held.
    pub(crate) released_bytes: u64,
    /// Bytes sent, including those of a partial reply.
    pub(crate) bytes: u64,
}

/// Replies in sending order.
#[derive(Default)]
pub(crate) struct Outbox {
    frames: VecDeque<Frame>,
    /// Bytes of the first frame that have been sent.
    front_sent: usize,
}

impl Outbox {
    pub(crate) fn push(&mut self, frame: Frame) {
        self.frames.push_back(frame);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Drops all replies, since the peer has disconnected. Returns the bytes of memory that they
    /// held, and a failure of which it does not learn.
    pub(crate) fn clear(&mut self) -> (u64, Option<IoError>) {
        self.front_sent = 0;
        let (mut held_bytes, mut untold) = (0, None);
        for frame in self.frames.drain(..) {
            held_bytes += frame.held_bytes;
            untold = untold.or(frame.failure);
        }
        (held_bytes, untold.map(|failure| *failure))
    }

    /// Sends as much as the socket accepts without waiting, and adds it to `sent`, also before an error.
    pub(crate) fn send(&mut self, wire: &mut Wire<'_>, sent: &mut Sent) -> io::Result<()> {
        if self.frames.is_empty() {
            sent.bytes += wire.flush()? as u64;
        }
        while !self.frames.is_empty() {
            let (offered, taken) = self.send_once(wire)?;
            sent.calls += 1;
            sent.bytes += taken as u64;
            self.advance(taken, sent);
            if taken < offered {
                break;
            }
        }
        Ok(())
    }

    /// One system call: returns bytes offered and bytes accepted.
    fn send_once(&self, wire: &mut Wire<'_>) -> io::Result<(usize, usize)> {
        let mut slices = Vec::with_capacity(SLICES_MAX.min(2 * self.frames.len()));
        let mut skip = self.front_sent;
        let mut offered = 0;
        'frames: for frame in &self.frames {
            for part in frame.parts() {
                let rest = &part[skip.min(part.len())..];
                skip -= part.len() - rest.len();
                if rest.is_empty() {
                    continue;
                }
                if slices.len() == SLICES_MAX {
                    break 'frames;
                }
                offered += rest.len();
                slices.push(IoSlice::new(rest));
            }
        }
        loop {
            match wire.send(&mut slices) {
                Ok(taken) => return Ok((offered, taken)),
                Err(Errno::AGAIN) => return Ok((offered, 0)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn advance(&mut self, taken: usize, sent: &mut Sent) {
        self.front_sent += taken;
        while let Some(front) = self.frames.front() {
            let length = front.len();
            if self.front_sent < length {
                break;
            }
            self.front_sent -= length;
            sent.replies += 1;
            sent.released_bytes += front.held_bytes;
            self.frames.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    #[test]
    fn everything_arrives_in_order_through_a_narrow_socket() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut outbox = Outbox::default();
        let mut expected = Vec::new();
        for i in 0..3000usize {
            let fill = (i % 251) as u8;
            let head = [fill; 16];
            expected.extend_from_slice(&head);
            let length = (i * 37) % 9000;
            match i % 3 {
                0 => outbox.push(Frame::head(&head, 1)),
                1 => {
                    let data = IoBuf::copy_of(&vec![fill; length]);
                    outbox.push(Frame::data(&head, data, 1));
                    expected.extend(std::iter::repeat_n(fill, length));
                }
                _ => {
                    expected.extend(std::iter::repeat_n(fill, length));
                    outbox.push(Frame::bytes([&head[..], &vec![fill; length]].concat(), 1));
                }
            }
        }
        let mut received = Vec::new();
        let mut total = Sent::default();
        let mut chunk = vec![0; 70_001];
        while received.len() < expected.len() {
            let sent = outbox.send(&mut Wire::Plain(ours.as_fd()), &mut total);
            sent.expect("send");
            let got = theirs.read(&mut chunk).expect("read");
            received.extend_from_slice(&chunk[..got]);
        }
        assert!(received == expected, "the bytes differ");
        assert!(outbox.is_empty());
        assert_eq!((total.replies, total.released_bytes), (3000, 3000));
    }

    #[test]
    fn many_replies_need_few_calls() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut outbox = Outbox::default();
        for _ in 0..512 {
            outbox.push(Frame::head(&[7; 16], 0));
        }
        let mut sent = Sent::default();
        let ended = outbox.send(&mut Wire::Plain(ours.as_fd()), &mut sent);
        ended.expect("send");
        assert_eq!((sent.replies, sent.calls), (512, 1));
        theirs.read_exact(&mut [0; 512 * 16]).expect("all of it");
    }

    #[test]
    fn a_peer_that_is_gone_is_an_error_and_no_signal() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        drop(theirs);
        let mut outbox = Outbox::default();
        outbox.push(Frame::head(&[0; 16], 0));
        assert_eq!(
            outbox
                .send(&mut Wire::Plain(ours.as_fd()), &mut Sent::default())
                .expect_err("gone")
                .kind(),
            io::ErrorKind::BrokenPipe
        );
    }
}
