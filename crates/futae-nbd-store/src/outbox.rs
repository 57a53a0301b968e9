//! Outgoing commands, in order, many per system call.
//!
//! A thread that adds a command while no other thread is sending sends it at once, without waiting.
//! Commands that arrive while a thread is sending leave with its next system call. A sender thread,
//! which may wait for the socket, sends what the socket does not accept at once, and everything
//! while many commands are in flight. Hints leave with the next command, or a millisecond later by
//! the sender thread.
//!
//! Commands of a group ([`Outbox::hold`]) are kept by the thread that adds them until the group is
//! complete. Other threads' commands do not wait for the group, and no thread sends a part of it.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use futae_engine::IoBuf;

use crate::socket::Socket;
use crate::sync::{AtomicU64, Condvar, Mutex, MutexGuard, Ordering, PoisonError, thread_local};
use futae_nbd::constants::REQUEST_HEADER_BYTES;

/// The longest time that a hint waits for a command to travel with.
const LINGER: Duration = Duration::from_millis(1);
/// The largest number of hint bytes that are not sent yet; further hints are dropped.
const HINT_BYTES_MAX: usize = 64 << 20;
/// Commands per system call; each has at most two slices, and the kernel accepts 1024.
const FRAMES_PER_SEND: usize = 500;
/// How often one caller sends for others before it leaves them to the sender thread.
const INLINE_ROUNDS_MAX: usize = 4;

thread_local! {
    /// The groups that this thread is assembling.
    static GROUPS: RefCell<Vec<Group>> = const { RefCell::new(Vec::new()) };
}

/// Frames of one outbox that are to be sent together.
struct Group {
    /// The address of the outbox.
    of: usize,
    frames: Vec<(Frame, Urgency)>,
}

/// One queued command: a header, and possibly a part of a buffer.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) header: [u8; REQUEST_HEADER_BYTES],
    pub(super) payload: Option<(Arc<IoBuf>, Range<usize>)>,
}

impl Frame {
    fn payload_bytes(&self) -> &[u8] {
        self.payload
            .as_ref()
            .map_or(&[], |(data, range)| &data.as_slice()[range.clone()])
    }

    fn len(&self) -> usize {
        REQUEST_HEADER_BYTES + self.payload.as_ref().map_or(0, |(_, range)| range.len())
    }
}

/// How soon a frame must be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Sent by the caller if no thread is sending.
    Now,
    /// Sent by the sender thread, with others.
    Soon,
    /// Sent with others, and dropped if too many bytes wait.
    Hint,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worker {
    /// Running, or asked to run.
    Awake,
    /// Will check again within [`LINGER`].
    Napping,
    /// Runs only when woken.
    Asleep,
}

#[derive(Debug)]
struct State {
    queue: VecDeque<(Frame, Urgency)>,
    /// Bytes of the first frame that were already sent.
    sent: usize,
    sending: bool,
    worker: Worker,
    /// Bytes of the hints in the queue and of those that a thread is sending.
    hint_bytes: usize,
    hints: u64,
    /// Whether to end the connection once everything is sent.
    ending: bool,
    closed: bool,
}

/// The queue of one connection.
#[derive(Debug)]
pub(super) struct Outbox {
    state: Mutex<State>,
    /// The sender thread waits here.
    work: Condvar,
    dropped: AtomicU64,
}

impl Outbox {
    pub(super) fn new() -> Self {
        let state = State {
            queue: VecDeque::new(),
            sent: 0,
            sending: false,
            worker: Worker::Awake,
            hint_bytes: 0,
            hints: 0,
            ending: false,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            work: Condvar::new(),
            dropped: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of hints dropped because too many bytes waited.
    pub(super) fn hints_dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Adds a frame. After [`close`](Self::close) it is dropped.
    pub(super) fn push(&self, socket: &Socket, frame: Frame, urgency: Urgency) {
        let Some(frame) = self.keep(frame, urgency) else {
            return;
        };
        let mut state = self.lock();
        if !self.add(&mut state, frame, urgency) || state.sending {
            return;
        }
        match urgency {
            Urgency::Now => self.send_inline(state, socket),
            Urgency::Soon => self.wake(&mut state),
            Urgency::Hint => {
                if state.worker == Worker::Asleep {
                    self.wake(&mut state);
                }
            }
        }
    }

    /// Adds a frame to the group that this thread is assembling; without a group, returns the
    /// frame.
    fn keep(&self, frame: Frame, urgency: Urgency) -> Option<Frame> {
        GROUPS.with(|groups| match groups.borrow_mut().last_mut() {
            Some(group) if group.of == self.address() => {
                group.frames.push((frame, urgency));
                None
            }
            _ => Some(frame),
        })
    }

    /// Appends a frame to the queue. Returns whether that was possible.
    fn add(&self, state: &mut State, frame: Frame, urgency: Urgency) -> bool {
        if state.closed || state.ending {
            return false;
        }
        if urgency == Urgency::Hint {
            if state.hint_bytes > 0 && state.hint_bytes + frame.len() > HINT_BYTES_MAX {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                return false;
            }
            state.hint_bytes += frame.len();
            state.hints += 1;
        }
        state.queue.push_back((frame, urgency));
        true
    }

    /// Begins a group of frames that are sent together: frames added by this thread are kept until
    /// [`release`](Self::release).
    pub(super) fn hold(&self) {
        let group = Group {
            of: self.address(),
            frames: Vec::new(),
        };
        GROUPS.with(|groups| groups.borrow_mut().push(group));
    }

    /// Adds all frames of the group at once, and sends them.
    pub(super) fn release(&self, socket: &Socket) {
        let group = GROUPS.with(|groups| groups.borrow_mut().pop());
        let frames = group.map(|group| group.frames).unwrap_or_default();
        if frames.is_empty() {
            return;
        }
        let mut state = self.lock();
        let mut is_any_added = false;
        for (frame, urgency) in frames {
            is_any_added |= self.add(&mut state, frame, urgency);
        }
        if is_any_added && !state.sending {
            self.send_inline(state, socket);
        }
    }

    fn wake(&self, state: &mut State) {
        if state.worker != Worker::Awake {
            state.worker = Worker::Awake;
            self.work.notify_one();
        }
    }

    fn send_inline<'a>(&'a self, mut state: MutexGuard<'a, State>, socket: &Socket) {
        state.sending = true;
        for _ in 0..INLINE_ROUNDS_MAX {
            let mut batch = Batch::take(&mut state);
            drop(state);
            let outcome = batch.send(socket, false);
            state = self.lock();
            state.hint_bytes -= batch.hint_bytes_sent;
            match outcome {
                Ok(()) if batch.frames.is_empty() && !state.queue.is_empty() => continue,
                Ok(()) => batch.put_back(&mut state),
                Err(_) => Self::fail(&mut state, socket),
            }
            break;
        }
        state.sending = false;
        if !state.queue.is_empty() || state.ending || state.closed {
            self.wake(&mut state);
        }
    }

    /// The connection cannot be written to: shuts it down, so that the receiver thread sees it end.
    fn fail(state: &mut State, socket: &Socket) {
        state.closed = true;
        state.queue.clear();
        socket.shut_down();
    }

    /// Nothing is sent any more; the sender thread exits.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.queue.clear();
        self.wake(&mut state);
    }

    /// Sends the waiting frames and a last one, then ends the connection. Does nothing the second time.
    pub(super) fn finish(&self, last: Frame) {
        let mut state = self.lock();
        if !state.closed && !state.ending {
            state.queue.push_back((last, Urgency::Soon));
            state.ending = true;
        }
        self.wake(&mut state);
    }

    /// Whether the connection ends because its store was dropped.
    pub(super) fn is_ending(&self) -> bool {
        self.lock().ending
    }

    /// The sender thread, until the connection ends.
    pub(super) fn run(&self, socket: &Socket) {
        let mut state = self.lock();
        loop {
            if state.closed {
                return;
            }
            if state.sending {
                state = self.sleep(state);
            } else if !state.queue.is_empty() {
                state.sending = true;
                let mut batch = Batch::take(&mut state);
                drop(state);
                let outcome = batch.send(socket, true);
                state = self.lock();
                state.hint_bytes -= batch.hint_bytes_sent;
                state.sending = false;
                if outcome.is_err() {
                    Self::fail(&mut state, socket);
                }
            } else if state.ending {
                Self::fail(&mut state, socket);
            } else {
                state = self.sleep(state);
            }
        }
    }

    /// Naps while hints keep coming, then sleeps until woken. Hints that arrived during a nap are
    /// sent after it.
    fn sleep<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        loop {
            let hints_before = state.hints;
            state.worker = Worker::Napping;
            state = self
                .work
                .wait_timeout(state, LINGER)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            let told = state.worker == Worker::Awake;
            let ready = !state.queue.is_empty() && !state.sending;
            if told || ready {
                break;
            }
            if state.hints == hints_before {
                state.worker = Worker::Asleep;
                while state.worker == Worker::Asleep {
                    state = self
                        .work
                        .wait(state)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                break;
            }
        }
        state.worker = Worker::Awake;
        state
    }
}

/// Frames that one thread is sending.
struct Batch {
    frames: VecDeque<(Frame, Urgency)>,
    sent: usize,
    /// Bytes of the hints among the frames that have left completely.
    hint_bytes_sent: usize,
}

impl Batch {
    fn take(state: &mut State) -> Self {
        let sent = std::mem::take(&mut state.sent);
        Self {
            frames: std::mem::take(&mut state.queue),
            sent,
            hint_bytes_sent: 0,
        }
    }

    fn put_back(&mut self, state: &mut State) {
        if !self.frames.is_empty() {
            self.frames.append(&mut state.queue);
            state.queue = std::mem::take(&mut self.frames);
            state.sent = self.sent;
        }
    }

    /// Sends all frames; without `wait`, stops when the socket is full.
    fn send(&mut self, socket: &Socket, wait: bool) -> io::Result<()> {
        while !self.frames.is_empty() {
            let count = self.frames.len().min(FRAMES_PER_SEND);
            let mut slices = Vec::with_capacity(2 * count);
            let mut skip = self.sent;
            for (frame, _) in self.frames.iter().take(count) {
                for bytes in [&frame.header[..], frame.payload_bytes()] {
                    let skipped = skip.min(bytes.len());
                    skip -= skipped;
                    if skipped < bytes.len() {
                        slices.push(IoSlice::new(&bytes[skipped..]));
                    }
                }
            }
            match socket.send(&slices, wait)? {
                None => return Ok(()),
                Some(sent) => self.advance(sent),
            }
        }
        Ok(())
    }

    fn advance(&mut self, sent: usize) {
        self.sent += sent;
        while let Some((first, urgency)) = self.frames.front() {
            let length = first.len();
            if self.sent < length {
                break;
            }
            if *urgency == Urgency::Hint {
                self.hint_bytes_sent += length;
            }
            self.sent -= length;
            self.frames.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn frame(fill: u8, bytes: usize) -> Frame {
        Frame {
            header: [fill; REQUEST_HEADER_BYTES],
            payload: (bytes > 0).then(|| (Arc::new(IoBuf::copy_of(&vec![fill; bytes])), 0..bytes)),
        }
    }

    /// Ends the sender thread, also when the test fails.
    struct Closing<'a>(&'a Outbox);

    impl Drop for Closing<'_> {
        fn drop(&mut self) {
            self.0.close();
        }
    }

    /// The received bytes, identified by their frames, in order.
    fn arrived(peer: &mut UnixStream, bytes: usize) -> Vec<u8> {
        let mut all = vec![0; bytes];
        peer.read_exact(&mut all).expect("it was sent");
        all.dedup();
        all
    }

    #[test]
    fn a_group_leaves_whole_and_nobody_waits_for_it() {
        let (ours, mut peer) = UnixStream::pair().expect("a pair");
        let patience = Some(Duration::from_secs(20));
        peer.set_read_timeout(patience).expect("a socket");
        let (outbox, socket) = (Outbox::new(), Socket::Unix(ours));
        outbox.hold();
        outbox.push(&socket, frame(1, 0), Urgency::Now);
        std::thread::scope(|scope| {
            scope.spawn(|| outbox.push(&socket, frame(9, 0), Urgency::Now));
        });
        let header = REQUEST_HEADER_BYTES;
        assert_eq!(arrived(&mut peer, header), [9], "the other thread's");
        outbox.push(&socket, frame(2, 4096), Urgency::Hint);
        outbox.push(&socket, frame(3, 0), Urgency::Soon);
        outbox.release(&socket);
        assert_eq!(arrived(&mut peer, 3 * header + 4096), [1, 2, 3]);
        outbox.push(&socket, frame(4, 0), Urgency::Now);
        assert_eq!(arrived(&mut peer, header), [4], "the group is over");
    }

    #[test]
    fn hints_that_a_full_socket_does_not_take_count_until_they_are_sent() {
        const HINT_BYTES: usize = 1 << 20;
        const HINTS: usize = 200;
        let (ours, mut peer) = UnixStream::pair().expect("a pair");
        let patience = Some(Duration::from_secs(60));
        peer.set_read_timeout(patience).expect("a socket");
        let (outbox, socket) = (Outbox::new(), Socket::Unix(ours));
        let hint = |outbox: &Outbox| {
            outbox.hold();
            outbox.push(&socket, frame(1, HINT_BYTES), Urgency::Hint);
            outbox.release(&socket);
        };
        (0..HINTS).for_each(|_| hint(&outbox));
        let length = HINT_BYTES + REQUEST_HEADER_BYTES;
        let waiting = |outbox: &Outbox| {
            let state = outbox.lock();
            let bytes = state.queue.iter().map(|(frame, _)| frame.len());
            bytes.sum::<usize>()
        };
        let kept = waiting(&outbox);
        assert!(kept <= HINT_BYTES_MAX, "{kept} bytes wait");
        let dropped = outbox.hints_dropped() as usize;
        assert!(kept.div_ceil(length) + dropped <= HINTS);
        // There is room again for as much as was sent, and for no more.
        let left = HINTS - dropped;
        std::thread::scope(|scope| {
            scope.spawn(|| outbox.run(&socket));
            let _closing = Closing(&outbox);
            assert_eq!(arrived(&mut peer, left * length), [1]);
        });
        assert_eq!(outbox.lock().hint_bytes, 0);
    }

    #[test]
    fn a_group_is_of_one_connection() {
        let (ours, mut peer) = UnixStream::pair().expect("a pair");
        let (other_ours, mut other_peer) = UnixStream::pair().expect("a pair");
        let (outbox, socket) = (Outbox::new(), Socket::Unix(ours));
        let (other, other_socket) = (Outbox::new(), Socket::Unix(other_ours));
        outbox.hold();
        outbox.push(&socket, frame(1, 0), Urgency::Now);
        other.push(&other_socket, frame(2, 0), Urgency::Now);
        assert_eq!(arrived(&mut other_peer, REQUEST_HEADER_BYTES), [2]);
        outbox.close();
        outbox.release(&socket);
        drop(socket);
        assert_eq!(peer.read(&mut [0; 8]).expect("the end"), 0, "it was closed");
        other.hold();
        other.push(&other_socket, frame(3, 0), Urgency::Now);
        other.release(&other_socket);
        assert_eq!(arrived(&mut other_peer, REQUEST_HEADER_BYTES), [3]);
    }

    /// Commands and hints, alone and in groups, for a peer that reads now and then: what arrives is what was not dropped, in order.
    #[test]
    fn what_arrives_is_what_was_added_in_any_order_of_adding_and_reading() {
        const SIZES: [usize; 4] = [0, 100, 300_000, 9 << 20];
        let payload = Arc::new(IoBuf::zeroed(SIZES[3]));
        for seed in 1..=4_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut below = |limit: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                ((state >> 11) % limit) as usize
            };
            let (ours, mut peer) = UnixStream::pair().expect("a pair");
            let patience = Some(Duration::from_secs(60));
            peer.set_read_timeout(patience).expect("a socket");
            let (outbox, socket) = (Outbox::new(), Socket::Unix(ours));
            // The number and the size of each frame that is to arrive.
            let mut due = VecDeque::new();
            let next = |peer: &mut UnixStream, due: &mut VecDeque<(u32, usize)>| {
                let Some((number, size)) = due.pop_front() else {
                    return;
                };
                let mut header = [0; REQUEST_HEADER_BYTES];
                peer.read_exact(&mut header).expect("it arrives");
                assert_eq!(header.first_chunk(), Some(&number.to_be_bytes()));
                let mut rest = vec![1; size];
                peer.read_exact(&mut rest).expect("all of it");
                assert!(rest.iter().all(|&byte| byte == 0));
            };
            std::thread::scope(|scope| {
                scope.spawn(|| outbox.run(&socket));
                let _closing = Closing(&outbox);
                for number in 0..300_u32 {
                    let size = SIZES[below(4)];
                    let mut header = [0; REQUEST_HEADER_BYTES];
                    header[..4].copy_from_slice(&number.to_be_bytes());
                    let frame = Frame {
                        header,
                        payload: (size > 0).then(|| (Arc::clone(&payload), 0..size)),
                    };
                    // Commands of that size would fill memory; hints are dropped.
                    let urgencies = [Urgency::Hint, Urgency::Now, Urgency::Soon];
                    let urgency = if size > 1 << 20 {
                        Urgency::Hint
                    } else {
                        urgencies[below(3)]
                    };
                    let dropped = outbox.hints_dropped();
                    let is_grouped = below(3) == 0;
                    if is_grouped {
                        outbox.hold();
                    }
                    outbox.push(&socket, frame, urgency);
                    if is_grouped {
                        outbox.release(&socket);
                    }
                    if outbox.hints_dropped() == dropped {
                        due.push_back((number, size));
                    } else {
                        assert_eq!(urgency, Urgency::Hint);
                    }
                    let waiting = outbox.lock().hint_bytes;
                    assert!(waiting <= HINT_BYTES_MAX, "{waiting} bytes of hints");
                    if below(4) == 0 {
                        (0..below(6)).for_each(|_| next(&mut peer, &mut due));
                    }
                }
                while !due.is_empty() {
                    next(&mut peer, &mut due);
                }
            });
            assert!(outbox.hints_dropped() > 0, "seed {seed} fills nothing");
            let state = outbox.lock();
            assert_eq!((state.hint_bytes, state.queue.len()), (0, 0));
        }
    }
}
