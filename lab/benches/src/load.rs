//! What is asked of a server, over one connection or several, and how fast it came.

use crate::client::Connection;
use crate::histogram::Histogram;
use anyhow::ensure;
use futae_nbd::NbdUri;
use futae_policy::Prng;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Part of the time for which a load runs before it is measured.
pub(crate) const WARM_UP_PART: f64 = 0.1;

/// The order in which a load goes through the export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Any request is as likely as any other.
    Random,
    /// From the start to the end, over and over; each connection from a place of its own.
    Sequential,
}

/// Reads to keep under way.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Where.
    pub order: Order,
    /// Bytes of a request.
    pub request_bytes: u32,
    /// Requests under way on each connection.
    pub depth: usize,
    /// Connections.
    pub connections: usize,
    /// How long to measure.
    pub duration: Duration,
    /// Whether to check every byte.
    pub verify: bool,
    /// Seed of the random order.
    pub seed: u64,
}

/// How fast a load was served.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Replies within the time.
    pub replies: u64,
    /// Bytes of data in them.
    pub bytes: u64,
    /// The time that it took.
    pub seconds: f64,
    /// From request to reply.
    pub latency: Histogram,
}

impl Measured {
    /// Replies a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        self.replies as f64 / self.seconds
    }

    /// Bytes a second.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// Runs a load against an export.
pub fn run(uri: &NbdUri, load: &Load) -> anyhow::Result<Measured> {
    ensure!(load.connections > 0, "a load needs a connection");
    let connections = (0..load.connections)
        .map(|_| Connection::open(uri, load.depth, load.request_bytes, load.verify))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let barrier = Barrier::new(load.connections);
    let parts = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..)
            .zip(connections)
            .map(|(number, connection)| {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    drive(connection, load, number)
                })
            })
            .collect();
        let parts = workers.into_iter().map(|worker| {
            worker
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        parts.collect::<anyhow::Result<Vec<_>>>()
    })?;
    let mut whole = Measured::default();
    for part in &parts {
        whole.replies += part.replies;
        whole.bytes += part.bytes;
        whole.latency.merge(&part.latency);
        whole.seconds = whole.seconds.max(part.seconds);
    }
    Ok(whole)
}

/// The offsets that one connection asks for.
struct Offsets {
    order: Order,
    prng: Prng,
    requests: u64,
    next: u64,
    request_bytes: u64,
}

impl Offsets {
    fn new(load: &Load, size_bytes: u64, number: u64) -> anyhow::Result<Self> {
        let request_bytes = u64::from(load.request_bytes);
        let requests = size_bytes / request_bytes;
        ensure!(
            requests > 0,
            "the export of {size_bytes} bytes is smaller than one request of {request_bytes}"
        );
        Ok(Self {
            order: load.order,
            prng: Prng::new(load.seed.wrapping_add(number)),
            requests,
            next: requests * number / load.connections as u64,
            request_bytes,
        })
    }

    fn next(&mut self) -> u64 {
        let index = match self.order {
            Order::Random => self.prng.below(self.requests),
            Order::Sequential => {
                self.next = if self.next + 1 < self.requests {
                    self.next + 1
                } else {
                    0
                };
                self.next
            }
        };
        index * self.request_bytes
    }
}

fn drive(mut connection: Connection, load: &Load, number: u64) -> anyhow::Result<Measured> {
    let mut offsets = Offsets::new(load, connection.export().size_bytes, number)?;
    let begin = Instant::now() + load.duration.mul_f64(WARM_UP_PART);
    let end = begin + load.duration;
    let mut measured = Measured::default();
    // Counting starts and stops with a receive, so that no part of a batch is counted twice.
    let (mut first, mut last) = (None, begin);
    loop {
        connection.ask(|| Some(offsets.next()))?;
        let counting = first.is_some();
        let mut now = begin;
        connection.take_in(|reply| {
            now = reply.arrived;
            if counting {
                measured.replies += 1;
                let waited = reply.arrived.duration_since(reply.sent);
                measured.latency.add(waited.as_nanos() as u64);
            }
        })?;
        if counting {
            last = last.max(now);
        } else if now > begin {
            first = Some(now);
        }
        // A receive without a whole reply does not tell the time.
        if now >= end || Instant::now() >= end + load.duration {
            break;
        }
    }
    while connection.under_way() > 0 {
        connection.take_in(|_| {})?;
    }
    connection.close()?;
    measured.bytes = measured.replies * u64::from(load.request_bytes);
    measured.seconds = last.duration_since(first.unwrap_or(begin)).as_secs_f64();
    Ok(measured)
}

/// Reads a whole export once, in order; it must be a whole number of `request_bytes`. With
/// `verify`, checks every byte.
pub fn read_all(uri: &NbdUri, request_bytes: u32, verify: bool) -> anyhow::Result<()> {
    let mut connection = Connection::open(uri, 8, request_bytes, verify)?;
    let (size_bytes, step) = (connection.export().size_bytes, u64::from(request_bytes));
    ensure!(
        size_bytes.is_multiple_of(step),
        "{size_bytes} bytes are not whole requests"
    );
    let mut next = 0;
    while next < size_bytes || connection.under_way() > 0 {
        connection.ask(|| {
            let offset = next;
            next += step;
            (offset < size_bytes).then_some(offset)
        })?;
        connection.take_in(|_| {})?;
    }
    connection.close()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor;
    use futae_nbd::Transport;
    use std::os::unix::net::UnixStream;

    fn floor_server() -> (tempfile::TempDir, NbdUri) {
        let directory = tempfile::tempdir().expect("a directory");
        let socket = directory.path().join("s");
        let uri = NbdUri {
            tls: None,
            transport: Transport::Unix {
                socket: socket.clone(),
            },
            export: "floor".to_owned(),
        };
        let server = socket.clone();
        std::thread::spawn(move || floor::serve(&server, 1 << 20));
        while UnixStream::connect(&socket).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
        (directory, uri)
    }

    #[test]
    fn a_load_is_measured_at_every_depth_order_and_size() {
        let (_directory, uri) = floor_server();
        for (order, request_bytes, depth, connections) in [
            (Order::Random, 4096, 1, 1),
            (Order::Random, 512, 64, 2),
            (Order::Sequential, 128 << 10, 40, 1),
        ] {
            let load = Load {
                order,
                request_bytes,
                depth,
                connections,
                duration: Duration::from_millis(50),
                verify: false,
                seed: 1,
            };
            let measured = run(&uri, &load).expect("a measurement");
            assert!(measured.replies > 0, "{load:?}");
            assert_eq!(measured.latency.total(), measured.replies);
            assert!(measured.per_second() > 0.0 && measured.seconds < 20.0);
        }
    }

    #[test]
    fn wrong_data_and_impossible_loads_are_errors() {
        let (_directory, uri) = floor_server();
        read_all(&uri, 4096, false).expect("every byte is there");
        let wrong = read_all(&uri, 4096, true).expect_err("zeroes are not the pattern");
        assert!(wrong.to_string().contains("wrong data"), "{wrong}");
        assert!(Connection::open(&uri, 0, 4096, false).is_err());
        assert!(Connection::open(&uri, 1, 0, false).is_err());
        assert!(read_all(&uri, (1 << 20) - 4096, false).is_err());
    }
}
