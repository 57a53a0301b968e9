//! FUSE over io_uring: each processor has a ring of its own, by which the kernel passes requests
//! and takes their answers, with one system call for both and without waking a thread on another
//! processor.
//!
//! The FUSE library does not support it. The library mounts, and negotiates with the kernel that
//! requests come by rings; requests outside rings (`FORGET`, interrupts) still reach it by
//! `/dev/fuse`. A thread for each processor serves its ring: it answers reads and writes itself,
//! and passes other requests to a second session of the library.
//!
//! | file | content |
//! | --- | --- |
//! | `system.rs` | the ring and the memory shared with the kernel: the only `unsafe` here |
//! | `wire.rs` | the layout of requests and answers |
//! | `served.rs` | the interface of a file system to its rings |
//! | `serve.rs`, `answer.rs` | the thread of a ring, and answers on their way to it |
//! | `others.rs` | requests that are passed on |
//! | `processors.rs` | the processors that need rings, and whether the kernel supports them |

mod answer;
mod others;
mod processors;
mod serve;
mod served;
mod system;
mod wire;

pub(crate) use answer::Answer;
pub(crate) use processors::{Offer, offer};
pub(crate) use served::{Beginning, Served};
pub(crate) use wire::{Read, Write};

use answer::Mailbox;
use fuser::Config;
use others::{MESSAGE_BYTES, Others};
use processors::Share;
use serve::Server;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use system::{Parts, Prepared};

/// The number of requests per processor under way at a time; more wait in the kernel.
const ENTRIES: usize = 32;
/// The same for a processor that is offline, in case it comes online.
const ENTRIES_OFF: usize = 2;
/// The smallest number of threads per ring for requests that are passed on.
const OTHERS_THREADS_MIN: usize = 2;
/// `FUSE_MIN_READ_BUFFER`
const PAYLOAD_BYTES_MIN: usize = 8192;

/// Rings that are ready for a connection; dropping this releases them.
pub(crate) struct Rings {
    threads: Vec<Starting>,
}

struct Starting {
    device: Sender<OwnedFd>,
    registered: Receiver<io::Result<()>>,
    thread: JoinHandle<()>,
}

/// Running rings.
pub(crate) struct Running(Vec<JoinHandle<()>>);

impl Running {
    /// Waits until the connection has ended and every thread has exited.
    pub(crate) fn join(self) {
        for thread in self.0 {
            drop(thread.join());
        }
    }
}

impl Rings {
    /// Prepares the rings, and the sessions behind them, for a future connection.
    pub(crate) fn prepare<F: Served>(filesystem: &F, config: &Config) -> io::Result<Self> {
        let payload_bytes = (filesystem.request_bytes() as usize).max(PAYLOAD_BYTES_MIN);
        let mut threads = Vec::new();
        let shares = processors::shares()?;
        let mut config = config.clone();
        // The same total as without rings.
        let others = config.n_threads.unwrap_or(1).div_ceil(shares.len());
        let others = others.max(OTHERS_THREADS_MIN);
        config.n_threads = Some(others);
        for share in shares {
            let mut filesystem = filesystem.clone();
            filesystem.begin_as(Beginning::Behind, others);
            let config = config.clone();
            let (device, take_device) = channel();
            let (report, registered) = channel();
            let thread = thread::Builder::new()
                .name(format!("futae-ring-{}", share.name()))
                .spawn(move || {
                    let prepared = Ring::prepare(filesystem, &config, &share, payload_bytes);
                    let ring = match prepared {
                        Ok(ring) => ring,
                        Err(error) => return drop(report.send(Err(error))),
                    };
                    // After the threads behind it have started, which may run on any processor.
                    share.stay();
                    let _ = report.send(Ok(()));
                    let Ok(device) = take_device.recv() else {
                        return;
                    };
                    match ring.register(device) {
                        Ok(server) => {
                            let _ = report.send(Ok(()));
                            server.run();
                        }
                        Err(error) => drop(report.send(Err(error))),
                    }
                })?;
            let starting = Starting {
                device,
                registered,
                thread,
            };
            starting.wait()?;
            threads.push(starting);
        }
        Ok(Self { threads })
    }

    /// Makes the kernel send the connection's requests by the rings.
    ///
    /// # Errors
    ///
    /// The kernel refuses a ring; the connection is then unusable.
    pub(crate) fn start(self, device: BorrowedFd<'_>) -> io::Result<Running> {
        for ring in &self.threads {
            // A thread that has exited has reported why.
            let _ = ring.device.send(device.try_clone_to_owned()?);
        }
        for ring in &self.threads {
            ring.wait()?;
        }
        let threads = self.threads.into_iter().map(|ring| ring.thread);
        Ok(Running(threads.collect()))
    }
}

impl Starting {
    fn wait(&self) -> io::Result<()> {
        let gone = |_| io::Error::other("the thread of a ring has broken down");
        self.registered.recv().map_err(gone)?
    }
}

/// The parts of a ring except the connection.
struct Ring<F> {
    filesystem: F,
    prepared: Prepared,
    mailbox: Arc<Mailbox>,
    others: Others,
}

impl<F: Served> Ring<F> {
    fn prepare(
        filesystem: F,
        config: &Config,
        share: &Share,
        payload_bytes: usize,
    ) -> io::Result<Self> {
        let mailbox = Arc::new(Mailbox::new()?);
        let others = Others::start(filesystem.clone(), config)?;
        let parts = Parts {
            processors: share.entries(ENTRIES, ENTRIES_OFF),
            payload_bytes,
            socket: others.socket(),
            message_bytes: MESSAGE_BYTES,
            bell: mailbox.bell(),
        };
        Ok(Self {
            filesystem,
            prepared: Prepared::new(parts)?,
            mailbox,
            others,
        })
    }

    fn register(self, device: OwnedFd) -> io::Result<Server<F>> {
        let Self {
            filesystem,
            prepared,
            mailbox,
            others,
        } = self;
        let queue = prepared.register(device)?;
        Ok(Server::new(filesystem, queue, mailbox, others))
    }
}
