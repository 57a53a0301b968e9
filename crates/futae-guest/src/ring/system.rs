//! One io_uring through which the kernel hands over requests of a FUSE connection and takes their answers.
//!
//! `unsafe` here: the kernel reads and writes memory that is named by pointer only. All of it belongs to one
//! [`Queue`], which never leaves its thread; the kernel touches it only while that thread is in
//! `io_uring_enter` (`DEFER_TASKRUN`), and an [`Entry`]'s memory only between its submission and its completion.

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
/// Where an entry of the submission queue says how long it is: `len` of `struct io_uring_sqe`.
const LEN_AT: usize = 24;
/// Completions that are no request: a message at the socket, and answers in the mailbox.
const MESSAGE: u64 = u64::MAX;
const MAIL: u64 = u64::MAX - 1;

/// Bytes of payloads that a ring may keep in memory when nothing has come for some time.
const KEPT_BYTES: usize = 2 << 20;
const QUIET: types::Timespec = types::Timespec::new().nsec(200_000_000);
const ETIME: i32 = 62;

/// What has come.
pub(super) enum Event {
    /// A request, in the entry of that number.
    Request(usize),
    /// The kernel has let go of an entry, and there is no request in it.
    Lost(io::Error),
    /// A message and its length; 0 if the socket was closed.
    Message(usize),
    /// Somebody rang.
    Mail,
}

/// A place for one request and its answer.
struct Entry {
    /// Of the kernel's queues, one a processor.
    processor: u16,
    header: Box<[u8; HEADER_BYTES]>,
    /// Present unless the request is being worked on.
    payload: Option<IoBuf>,
    /// Where the kernel knows the payload to be.
    payload_at: usize,
    /// Bytes of it that were used, and so are in memory.
    used: usize,
    with_kernel: bool,
}

/// What the kernel and this thread share.
pub(super) struct Queue {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    device: OwnedFd,
    entries: Vec<Entry>,
    socket: Arc<OwnedFd>,
    message: IoBuf,
    bell: Arc<OwnedFd>,
    rung: Box<[u8; 8]>,
    /// Submissions whose completions have not been seen: memory that the kernel may write to.
    under_way: usize,
    /// By `DEFER_TASKRUN` it is the thread's that made it.
    of_one_thread: PhantomData<*const ()>,
}

/// What a queue is made of.
pub(super) struct Parts {
    /// For each entry the processor whose requests it takes.
    pub(super) processors: Vec<u16>,
    pub(super) payload_bytes: usize,
    pub(super) socket: Arc<OwnedFd>,
    pub(super) message_bytes: usize,
    pub(super) bell: Arc<OwnedFd>,
}

/// A ring by itself, for which a connection is still to be found.
pub(super) struct Prepared {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    parts: Parts,
}

impl Prepared {
    /// A ring with room for the entries of `parts`, for the thread that calls.
    pub(super) fn new(parts: Parts) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all();
        // An entry has one submission at a time, and so have the socket and the bell.
        let room = (parts.processors.len() + 2).next_power_of_two();
        let ring = builder.build(u32::try_from(room).map_err(io::Error::other)?)?;
        Ok(Self { ring, parts })
    }

    /// Offers the entries to the connection of `device`.
    ///
    /// # Errors
    ///
    /// Of the first that the kernel refuses. The connection cannot be used then.
    pub(super) fn register(self, device: OwnedFd) -> io::Result<Queue> {
        let Self { ring, parts } = self;
        let bytes = parts.payload_bytes;
        let entry = |&processor: &u16| {
            let mut payload = IoBuf::new(bytes);
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
        // Read while they are submitted, and not after.
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
        // An entry that is taken is completed with its first request, one that is not at once.
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
    /// Takes what has been submitted to the kernel, and waits until something has come.
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

    /// Gives the memory of payloads back to the kernel, which holds them and has put nothing there.
    fn give_back(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| entry.with_kernel) {
            let Some(payload) = &mut entry.payload else {
                continue;
            };
            let memory = payload.as_mut_slice();
            let bytes = memory.len() / PAGE_BYTES * PAGE_BYTES;
            // SAFETY: whole pages of anonymous memory, aligned to a page, all in this payload. Nobody has
            // it but the kernel, which writes to it only while this thread waits for completions; those
            // that there were have been seen, and nothing waits to be submitted: so its content is nobody's.
            #[expect(unsafe_code, reason = "the named place for FUSE over io_uring")]
            let advised = unsafe {
                let start = memory.as_mut_ptr().cast();
                rustix::mm::madvise(start, bytes, Advice::LinuxDontNeed)
            };
            // Where that is refused the memory is kept, and asked about no more until it is used again.
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

    /// The header of a request that has come, or of its answer.
    pub(super) fn header(&mut self, at: usize) -> &mut [u8; HEADER_BYTES] {
        &mut self.entries[at].header
    }

    /// Takes the payload of a request that has come, of this many bytes, to bring it back with
    /// [`answer`](Self::answer).
    pub(super) fn take_payload(&mut self, at: usize, bytes: usize) -> Option<IoBuf> {
        let entry = &mut self.entries[at];
        entry.used = entry.used.max(bytes);
        entry.payload.take_if(|_| !entry.with_kernel)
    }

    /// Gives the header and the payload to the kernel, which has the answer there and puts a next
    /// request in their place. `bytes` of the payload have been used. Anything but the payload of that entry
    /// is dropped, and not answered.
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

    /// What has come at the socket.
    pub(super) fn message(&self) -> &[u8] {
        self.message.as_slice()
    }

    /// Waits for the next message, which will be in the place of the last.
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
        // SAFETY: headers, payloads, the message and the bell's eight bytes stay where they are until
        // the completion has been seen: they belong to this queue, whose `drop` leaves them to the kernel
        // if it must. The descriptors are open for as long.
        #[expect(unsafe_code, reason = "the named place for FUSE over io_uring")]
        let pushed = unsafe { self.ring.submission().push(entry) };
        debug_assert!(pushed.is_ok(), "there is room for one submission each");
        self.under_way += usize::from(pushed.is_ok());
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if self.is_under_way() {
            // The kernel may still write there: that memory is given up.
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

/// The same submission with `len`, which the command of a device has and this library does not offer.
fn with_length(mut entry: squeue::Entry128, length: u32) -> squeue::Entry128 {
    const { assert!(size_of::<squeue::Entry128>() == 128) };
    let start = (&raw mut entry).cast::<u8>();
    // SAFETY: an entry is `struct io_uring_sqe` of 128 bytes (`repr(C)`, and its size is checked above);
    // its `len` are four bytes at 24, and any four bytes are right for it.
    #[expect(unsafe_code, reason = "the named place for FUSE over io_uring")]
    unsafe {
        start.add(LEN_AT).cast::<u32>().write_unaligned(length);
    }
    entry
}
