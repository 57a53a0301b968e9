//! One io_uring through which the kernel passes requests of a FUSE connection and takes their
//! answers.
//!
//! `unsafe` here: the kernel reads and writes memory through pointers. All of it belongs to one
//! [`Queue`], which never leaves its thread. The kernel touches it only while that thread is in
//! `io_uring_enter` (`DEFER_TASKRUN`), and an [`Entry`]'s memory only between its submission and
//! its completion.

use super::wire::HEADER_BYTES;
use futae_engine::{IoBuf, PAGE_BYTES};
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::mm::Advice;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// Commands of `linux/fuse.h`.
const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;
/// The offset of `len` in `struct io_uring_sqe`.
const LEN_AT: usize = 24;
/// Completions other than requests: a message on the socket, and answers in the mailbox.
const MESSAGE: u64 = u64::MAX;
const MAIL: u64 = u64::MAX - 1;

/// Bytes of payloads that an idle ring may keep in memory.
const KEPT_BYTES: usize = 2 << 20;
const QUIET: types::Timespec = types::Timespec::new().nsec(200_000_000);
const ETIME: i32 = 62;

/// An event on the ring.
pub(super) enum Event {
    /// A request, in the entry with this number.
    Request(usize),
    /// The kernel has released an entry without a request in it.
    Lost(io::Error),
    /// A message and its length; 0 if the socket was closed.
    Message(usize),
    /// The mailbox's bell was rung.
    Mail,
}

/// A slot for one request and its answer.
struct Entry {
    /// The kernel's queue, one per processor.
    processor: u16,
    header: Box<[u8; HEADER_BYTES]>,
    /// Present unless the request is being processed.
    payload: Option<IoBuf>,
    /// The address of the payload as registered with the kernel.
    payload_at: usize,
    /// Bytes of it that were used, and therefore are in memory.
    used: usize,
    with_kernel: bool,
}

/// The memory shared by the kernel and this thread.
pub(super) struct Queue {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: OwnedFd,
    entries: Vec<Entry>,
    socket: Arc<OwnedFd>,
    message: IoBuf,
    bell: Arc<OwnedFd>,
    rung: Box<[u8; 8]>,
    /// Number of submissions whose completions have not been seen: the kernel may write to their
    /// memory.
    under_way: usize,
    /// `DEFER_TASKRUN` binds the ring to the thread that made it.
    of_one_thread: PhantomData<*const ()>,
}

/// The parts of a queue.
pub(super) struct Parts {
    /// For each entry, the processor whose requests it takes.
    pub(super) processors: Vec<u16>,
    pub(super) payload_bytes: usize,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) message_bytes: usize,
    pub(super) bell: Arc<OwnedFd>,
}

/// A ring without a connection.
pub(super) struct Prepared {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    parts: Parts,
}

impl Prepared {
    /// A ring with room for the entries of `parts`, for the calling thread.
    pub(super) fn new(parts: Parts) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all();
        // Each entry has one submission at a time; so have the socket and the bell.
        let room = (parts.processors.len() + 2).next_power_of_two();
        let ring = builder.build(u32::try_from(room).map_err(io::Error::other)?)?;
        Ok(Self { ring, parts })
    }

    /// Registers the entries with the connection of `device`.
    ///
    /// # Errors
    ///
    /// The first error of the kernel. The connection is then unusable.
    pub(super) fn register(self, device: OwnedFd) -> io::Result<Queue> {
        let Self { ring, parts } = self;
        let bytes = parts.payload_bytes;
        let entry = |&processor: &u16| {
            // Not even written to: the kernel uses few of them at a time.
            let mut payload = IoBuf::zeroed(bytes);
            Entry {
                processor,
                header: Box::new([0; HEADER_BYTES]),
                payload_at: payload.as_mut_slice().as_mut_ptr() as usize,
                payload: Some(payload),
                used: 0,
                with_kernel: false,
            }
        };
        let mut queue = Queue {
            ring,
            device,
            entries: parts.processors.iter().map(entry).collect(),
            socket: parts.socket,
            message: IoBuf::new(parts.message_bytes),
            bell: parts.bell,
            rung: Box::default(),
            under_way: 0,
            of_one_thread: PhantomData,
        };
        // The kernel reads them during submission, and not later.
        let mut places = Vec::with_capacity(queue.entries.len());
        for entry in &mut queue.entries {
            let header = libc_iovec(entry.header.as_mut_ptr() as usize, HEADER_BYTES);
            places.push([header, libc_iovec(entry.payload_at, bytes)]);
        }
        for (at, places) in places.iter().enumerate() {
            let command = queue.command(at, REGISTER, 0, places.as_ptr() as u64);
            queue.entries[at].with_kernel = true;
            queue.push(&with_length(command, 2));
        }
        queue.listen();
        queue.wait_for_bell();
        let submitted = queue.ring.submit();
        submitted?;
        drop(places);
        // A registered entry completes with its first request; a refused one completes at once.
        let mut events = Vec::new();
        queue.reap(&mut events);
        match events.into_iter().find_map(|event| match event {
            Event::Lost(error) => Some(error),
            _ => None,
        }) {
            Some(error) => Err(error),
            None => Ok(queue),
        }
    }
}

impl Queue {
    /// Submits pending entries to the kernel, and waits for an event.
    pub(super) fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let used: usize = self.entries.iter().map(|entry| entry.used).sum();
        if used <= KEPT_BYTES {
            self.ring.submit_and_wait(1)?;
        } else {
            let timeout = types::SubmitArgs::new().timespec(&QUIET);
            match self.ring.submitter().submit_with_args(1, &timeout) {
                Err(error) if error.raw_os_error() == Some(ETIME) => {
                    self.reap(events);
                    if events.is_empty() && self.ring.submission().is_empty() {
                        self.give_back();
                    }
                    return Ok(());
                }
                other => drop(other?),
            }
        }
        self.reap(events);
        Ok(())
    }

    /// Returns the memory of idle payloads, which the kernel holds but has not written to, to the
    /// system.
    fn give_back(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| entry.with_kernel) {
            let Some(payload) = &mut entry.payload else {
                continue;
            };
            let memory = payload.as_mut_slice();
            let bytes = memory.len() / PAGE_BYTES * PAGE_BYTES;
            // SAFETY: whole pages of anonymous memory, aligned to a page, all in this payload. Only
            // the kernel holds it, and it writes there only while this thread waits for
            // completions. All completions so far have been seen, and no entry waits to be
            // submitted, so the content is not in use.
            #[expect(unsafe_code, reason = "the named place for FUSE over io_uring")]
            let advised = unsafe {
                let start = memory.as_mut_ptr().cast();
                rustix::mm::madvise(start, bytes, Advice::LinuxDontNeed)
            };
            // If the advice is refused, the memory is kept, and no advice is given again until its
            // next use.
            let _ = advised;
            entry.used = 0;
        }
    }

    fn reap(&mut self, events: &mut Vec<Event>) {
        let entries = &mut self.entries;
        let under_way = &mut self.under_way;
        events.extend(self.ring.completion().map(|done| {
            *under_way -= 1;
            match (done.user_data(), done.result()) {
                (MESSAGE, result) => Event::Message(usize::try_from(result).unwrap_or_default()),
                (MAIL, _) => Event::Mail,
                (at, result) => {
                    let at = at as usize;
                    entries[at].with_kernel = false;
                    match result {
                        0.. => Event::Request(at),
                        _ => Event::Lost(io::Error::from_raw_os_error(-result)),
                    }
                }
            }
        }));
    }

    /// Whether the kernel still holds an entry.
    pub(super) fn is_held(&self) -> bool {
        self.entries.iter().any(|entry| entry.with_kernel)
    }

    /// Whether the kernel may still write to this memory.
    pub(super) fn is_under_way(&self) -> bool {
        self.under_way > 0
    }

    /// The header of a received request, or of its answer.
    pub(super) fn header(&mut self, at: usize) -> &mut [u8; HEADER_BYTES] {
        &mut self.entries[at].header
    }

    /// Takes the payload of a received request, of this many bytes; it is returned with
    /// [`answer`](Self::answer).
    pub(super) fn take_payload(&mut self, at: usize, bytes: usize) -> Option<IoBuf> {
        let entry = &mut self.entries[at];
        entry.used = entry.used.max(bytes);
        entry.payload.take_if(|_| !entry.with_kernel)
    }

    /// Passes the header and the payload with the answer to the kernel, which replaces them by its
    /// next request. `bytes` of the payload were used. If the payload is not that of this entry, it
    /// is dropped and the request is not answered.
    pub(super) fn answer(&mut self, at: usize, unique: u64, mut payload: IoBuf, bytes: usize) {
        let entry = &mut self.entries[at];
        entry.used = entry.used.max(bytes);
        let is_its_own = payload.as_mut_slice().as_mut_ptr() as usize == entry.payload_at;
        debug_assert!(is_its_own && !entry.with_kernel, "an entry's own payload");
        if !is_its_own || entry.with_kernel {
            return;
        }
        entry.payload = Some(payload);
        entry.with_kernel = true;
        let command = self.command(at, COMMIT_AND_FETCH, unique, 0);
        self.push(&command);
    }

    /// The received message.
    pub(super) fn message(&self) -> &[u8] {
        self.message.as_slice()
    }

    /// Waits for the next message, which replaces the last one.
    pub(super) fn listen(&mut self) {
        let memory = self.message.as_mut_slice();
        let (start, length) = (memory.as_mut_ptr(), memory.len() as u32);
        let socket = types::Fd(self.socket.as_raw_fd());
        let receive = opcode::Recv::new(socket, start, length).build();
        self.push(&receive.user_data(MESSAGE).into());
    }

    /// Waits for the bell of the mailbox.
    pub(super) fn wait_for_bell(&mut self) {
        let bell = types::Fd(self.bell.as_raw_fd());
        let read = opcode::Read::new(bell, self.rung.as_mut_ptr(), 8).build();
        self.push(&read.user_data(MAIL).into());
    }

    fn command(&self, at: usize, command: u32, unique: u64, address: u64) -> squeue::Entry128 {
        // struct fuse_uring_cmd_req
        let mut request = [0; 80];
        request[8..16].copy_from_slice(&unique.to_ne_bytes());
        request[16..18].copy_from_slice(&self.entries[at].processor.to_ne_bytes());
        opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), command)
            .cmd(request)
            .addr(Some(address))
            .build()
            .user_data(at as u64)
    }

    fn push(&mut self, entry: &squeue::Entry128) {
        // SAFETY: headers, payloads, the message and the bell's eight bytes stay in place until the
        // completion has been seen: they belong to this queue, whose `drop` leaks them if the
        // kernel still uses them. The descriptors stay open for as long.
        #[expect(unsafe_code, reason = "the named place for FUSE over io_uring")]
        let pushed = unsafe { self.ring.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "there is room for one submission each");
        self.under_way += usize::from(pushed.is_ok());
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.is_under_way() {
            // The kernel may still write there: the memory is leaked.
            std::mem::forget(std::mem::take(&mut self.entries));
            std::mem::forget(std::mem::replace(&mut self.message, IoBuf::new(0)));
            std::mem::forget(std::mem::take(&mut self.rung));
        }
    }
}

/// `struct iovec`.
type Place = [usize; 2];

fn libc_iovec(start: usize, length: usize) -> Place {
    [start, length]
}

/// Sets `len` of the submission, which the device's command needs and this library does not expose.
fn with_length(mut entry: squeue::Entry128, length: u32) -> squeue::Entry128 {
    const { assert!(size_of::<squeue::Entry128>() == 128) };
    let start = (&raw mut entry).cast::<u8>();
    // SAFETY: an entry is `struct io_uring_sqe` of 128 bytes (`repr(C)`, and its size is checked
    // above). Its `len` is at bytes 24 to 27, and any value is valid for it.
    #[expect(unsafe_code, reason = "the named place for FUSE over io_uring")]
    unsafe {
        start.add(LEN_AT).cast::<u32>().write_unaligned(length);
    }
    entry
}
