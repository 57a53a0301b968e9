//! Random turns of an agent and of a host that reads slowly, leaves and comes back, against a list of what was sent.

use super::{Destination, QUEUE_BYTES_MAX, Sink};
use futae_agent_protocol::{Message, References, Stream};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Instant;

const ROUNDS: u64 = 40;
const TURNS: usize = 400;

/// Numbers that look random: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit
    }
}

/// The host's side of a connection.
struct Host {
    connection: UnixStream,
    stream: Stream,
    /// The numbers and lengths of the frames that it is to get.
    due: VecDeque<(u64, usize)>,
}

impl Host {
    /// Reads so many bytes at most, and checks the frames that are whole then. Returns whether there was anything to read.
    fn read(&mut self, most: usize) -> bool {
        let mut bytes = vec![0; most];
        let count = match self.connection.read(&mut bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("the sink reset it: {error}"),
        };
        self.stream.feed(&bytes[..count]);
        while let Some(frame) = self.stream.next_frame() {
            let Message::References(References { pages, .. }) = frame.message else {
                panic!("another message");
            };
            let got = (frame.sequence, pages.len());
            assert_eq!(Some(got), self.due.pop_front(), "in order, none twice");
        }
        count > 0
    }
}

fn round(seed: u64) {
    let mut random = Random(seed);
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("host.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let mut sink = Sink::new(Destination::Unix(path));
    let mut host: Option<Host> = None;
    let mut sent = 0;
    let mut dropped = 0;
    for _ in 0..TURNS {
        match random.below(16) {
            0..8 => {
                // Short ones and long ones: some fill the queue.
                let length = [1, 100, References::MAX_PAGES as u64][random.below(3) as usize];
                let length = 1 + random.below(length) as usize;
                let pages = vec![seed; length];
                let threshold = 1;
                let before = sink.dropped;
                sink.send(Message::References(References { threshold, pages }))
                    .expect("queued or dropped");
                match &mut host {
                    Some(host) if sink.dropped == before => host.due.push_back((sent, length)),
                    _ => dropped += 1,
                }
                sent += 1;
            }
            8..12 => {
                // The pause between two attempts is over.
                sink.next_try = Instant::now();
                let began = sink.pump();
                assert_eq!(began, host.is_none() && sink.is_connected());
                if began {
                    let (connection, _) = listener.accept().expect("the sink");
                    connection.set_nonblocking(true).expect("a socket");
                    host = Some(Host {
                        connection,
                        stream: Stream::default(),
                        due: VecDeque::new(),
                    });
                }
            }
            12..15 => {
                let most = [3, 1000, 1 << 20][random.below(3) as usize];
                host.as_mut().map(|host| host.read(most));
            }
            // It leaves, and the agent sees that, by a poll or by a write.
            _ if random.below(4) == 0 && host.take().is_some() => {
                if random.below(2) == 0 {
                    sink.hung_up();
                } else {
                    let pages = vec![0];
                    let last = References {
                        threshold: 1,
                        pages,
                    };
                    sink.send(Message::References(last)).expect("queued");
                    sent += 1;
                    dropped = sink.dropped;
                    sink.next_try = Instant::now();
                    sink.write();
                }
                assert!(!sink.is_connected());
            }
            _ => {}
        }
        assert!(sink.queue.len() - sink.sent <= QUEUE_BYTES_MAX);
        assert_eq!((sink.sequence, sink.dropped), (sent, dropped));
    }
    // A host that reads gets all that was not dropped.
    if let Some(mut host) = host {
        while host.read(1 << 20) || sink.sent < sink.queue.len() {
            sink.pump();
        }
        assert!(host.due.is_empty(), "{:?} are missing", host.due);
    }
}

#[test]
fn a_host_gets_each_frame_once_and_in_order_until_it_leaves() {
    for seed in 1..=ROUNDS {
        round(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}
