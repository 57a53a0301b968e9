//! File I/O by io_uring: each thread submits its own work, and one thread reaps the completions.
//!
//! `unsafe` here: the kernel reads and writes memory through pointers, and the two rings are shared
//! between threads. Both rely on one table: a job stays in it, with its buffer and its file, from
//! before its submission until its completion has been reaped.

use super::job::{Job, Work, ends_early};
use io_uring::{IoUring, opcode, squeue, types};
use libc::{EAGAIN, EBUSY, ECANCELED, EINTR};
use slab::Slab;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Entries of the submission ring; more operations wait in the kernel.
const ENTRIES: u32 = 256;
/// The completion that ends the reaper thread.
const GOODBYE: u64 = u64::MAX;
/// The largest number of bytes per read or write that the kernel accepts.
const TRANSFER_BYTES_MAX: usize = 1 << 30;
const RWF_DSYNC: i32 = 2;
/// Pause after the kernel refused a wait for completions.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);

/// A ring and its reaper thread. Both end when it is dropped, after the jobs under way.
pub struct Uring {
    shared: Arc<Shared>,
    reaper: Option<JoinHandle<()>>,
}

struct Shared {
    ring: IoUring,
    jobs: Mutex<Slab<Running>>,
    /// Held while an entry is added to the submission ring. `Some`: the kernel refused an entry
    /// permanently, with this error. That entry is still in the ring, so nothing is submitted any
    /// more.
    submitting: Mutex<Option<i32>>,
    /// Submits the entries of the ring to the kernel.
    submit: Submit,
}

/// [`IoUring::submit`], or a test's replacement.
type Submit = fn(&IoUring) -> std::io::Result<usize>;

struct Running {
    job: Job,
    /// Bytes transferred so far.
    moved: usize,
}

impl Uring {
    /// Creates a ring, if the kernel allows it.
    pub fn new() -> std::io::Result<Self> {
        Self::with(IoUring::submit)
    }

    fn with(submit: Submit) -> std::io::Result<Self> {
        let ring = IoUring::new(ENTRIES)?;
        let shared = Arc::new(Shared {
            ring,
            jobs: Mutex::new(Slab::new()),
            submitting: Mutex::new(None),
            submit,
        });
        let reaping = Arc::clone(&shared);
        let reaper = std::thread::Builder::new()
            .name("futae-uring".to_owned())
            .spawn(move || reaping.reap())?;
        Ok(Self {
            shared,
            reaper: Some(reaper),
        })
    }

    /// Submits a job.
    pub fn start(&self, job: Job) {
        self.shared.start(Running { job, moved: 0 });
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let goodbye = opcode::Nop::new().build().user_data(GOODBYE);
        // A failed ring cannot wake its reaper either; the reaper then stays.
        let is_told = self.shared.push(&goodbye).is_ok();
        if let Some(reaper) = self.reaper.take().filter(|_| is_told) {
            // The last user of a store may be a completion on the reaper thread itself.
            if reaper.thread().id() != std::thread::current().id() {
                let _ = reaper.join();
            }
        }
    }
}

impl Shared {
    fn jobs(&self) -> MutexGuard<'_, Slab<Running>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self, running: Running) {
        let (key, entry) = {
            let mut jobs = self.jobs();
            let key = jobs.insert(running);
            (key, entry_for(&mut jobs[key]).user_data(key as u64))
        };
        if let Err(error) = self.push(&entry) {
            let Running { job, .. } = self.jobs().remove(key);
            (job.done)(Err(error));
        }
    }

    /// Submits an entry to the kernel.
    ///
    /// # Errors
    ///
    /// The kernel will never process the entry: its memory belongs to the caller again.
    fn push(&self, entry: &squeue::Entry) -> std::io::Result<()> {
        let mut refused = self
            .submitting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = *refused {
            return Err(takes_nothing(code));
        }
        let mut is_in_ring = false;
        loop {
            // SAFETY: the lock makes this the only submission queue in use, and it is dropped
            // before `submit`. The entry's buffer and file are in the table of jobs, and stay
            // there until its completion is reaped, or until it is certain that the kernel will not take it.
            #[expect(unsafe_code, reason = "the named place for io_uring")]
            let mut queue = unsafe { self.ring.submission_shared() };
            if is_in_ring && queue.is_empty() {
                return Ok(());
            }
            if !is_in_ring {
                // SAFETY: as above.
                #[expect(unsafe_code, reason = "the named place for io_uring")]
                let pushed = unsafe { queue.push(entry) };
                is_in_ring = pushed.is_ok();
            }
            drop(queue);
            let Err(error) = (self.submit)(&self.ring) else {
                continue;
            };
            match error.raw_os_error() {
                // A busy kernel accepts the entries of the ring on a later attempt.
                Some(EINTR | EAGAIN | EBUSY) => std::thread::yield_now(),
                code => {
                    // The rest of the ring must never be submitted, since its memory is about to be
                    // freed.
                    let code = *refused.insert(code.unwrap_or(libc::EIO));
                    return Err(takes_nothing(code));
                }
            }
        }
    }

    /// Waits for completions and delivers them, until asked to stop and no job is under way.
    fn reap(&self) {
        let mut stopping = false;
        let mut completed = Vec::new();
        loop {
            if stopping && self.jobs().is_empty() {
                return;
            }
            self.wait_for_one();
            // SAFETY: only this thread ever accesses the completion queue.
            #[expect(unsafe_code, reason = "the named place for io_uring")]
            let queue = unsafe { self.ring.completion_shared() };
            completed.extend(queue.map(|entry| (entry.user_data(), entry.result())));
            for (key, result) in completed.drain(..) {
                if key == GOODBYE {
                    stopping = true;
                } else {
                    self.finish(key as usize, result);
                }
            }
        }
    }

    fn wait_for_one(&self) {
        const GETEVENTS: u32 = 1;
        // SAFETY: submits nothing and passes no argument; it only waits for one completion.
        #[expect(unsafe_code, reason = "the named place for io_uring")]
        let waited = unsafe { self.ring.submitter().enter::<()>(0, 1, GETEVENTS, None) };
        // The loop repeats an interrupted wait at once, and a refused one after a pause.
        let is_passing = |code| matches!(code, Some(EINTR | EAGAIN | EBUSY));
        if waited.is_err_and(|error| !is_passing(error.raw_os_error())) {
            std::thread::sleep(REFUSED_PAUSE);
        }
    }

    fn finish(&self, key: usize, result: i32) {
        let mut running = self.jobs().remove(key);
        // ECANCELED: the submitting thread has exited, and the kernel would have had to restart the
        // operation in its context.
        let outcome = match (result, running.job.work) {
            (i32::MIN..=-1, _) if matches!(-result, EINTR | EAGAIN | ECANCELED) => None,
            (i32::MIN..=-1, _) => Some(Err(Error::from_raw_os_error(-result))),
            (moved, Work::Read | Work::Write { .. }) => {
                running.moved += moved as usize;
                if running.moved == running.job.buffer.len() {
                    Some(Ok(()))
                } else if moved == 0 {
                    Some(Err(ends_early()))
                } else {
                    None
                }
            }
            (_, Work::Flush | Work::Sync | Work::Allocate(_)) => Some(Ok(())),
        };
        match outcome {
            None => self.start(running),
            Some(result) => {
                let Job { buffer, done, .. } = running.job;
                done(result.map(|()| buffer));
            }
        }
    }
}

fn takes_nothing(code: i32) -> Error {
    let cause = Error::from_raw_os_error(code);
    Error::other(format!("io_uring does not take work any more: {cause}"))
}

/// The submission for the rest of a job.
fn entry_for(running: &mut Running) -> squeue::Entry {
    let Running { job, moved } = running;
    let fd = types::Fd(job.file.as_raw_fd());
    let offset = job.offset + *moved as u64;
    let left = (job.buffer.len() - *moved).min(TRANSFER_BYTES_MAX) as u32;
    match job.work {
        Work::Read => {
            let rest = job.buffer.as_mut_slice()[*moved..].as_mut_ptr();
            opcode::Read::new(fd, rest, left).offset(offset).build()
        }
        Work::Write { fua } => {
            let rest = job.buffer.as_slice()[*moved..].as_ptr();
            let flags = if fua { RWF_DSYNC } else { 0 };
            opcode::Write::new(fd, rest, left)
                .offset(offset)
                .rw_flags(flags)
                .build()
        }
        Work::Flush => opcode::Fsync::new(fd)
            .flags(types::FsyncFlags::DATASYNC)
            .build(),
        Work::Sync => opcode::Fsync::new(fd).build(),
        Work::Allocate(mode) => opcode::Fallocate::new(fd, job.length)
            .offset(job.offset)
            .mode(mode.bits() as i32)
            .build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::IoBuf;
    use std::fs::File;
    use std::io::Write;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::{Receiver, channel};

    fn read(uring: &Uring, file: &Arc<File>) -> Receiver<std::io::Result<IoBuf>> {
        let (sender, receiver) = channel();
        uring.start(Job {
            file: Arc::clone(file),
            work: Work::Read,
            offset: 0,
            length: 4096,
            buffer: IoBuf::new(4096),
            done: Box::new(move |result| drop(sender.send(result))),
        });
        receiver
    }

    fn page_of(byte: u8) -> Arc<File> {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&[byte; 4096]).expect("written");
        Arc::new(file)
    }

    #[test]
    fn a_job_that_the_kernel_refuses_for_good_fails_and_so_do_later_ones() {
        let refuse: Submit = |_| Err(Error::from_raw_os_error(libc::EBADFD));
        let Ok(uring) = Uring::with(refuse) else {
            return; // The kernel has no io_uring.
        };
        let file = page_of(7);
        for _ in 0..2 * ENTRIES {
            let result = read(&uring, &file).recv().expect("answered");
            let error = result.expect_err("refused").to_string();
            assert!(error.contains("does not take work any more"), "{error}");
        }
        assert!(uring.shared.jobs().is_empty(), "nobody waits for ever");
    }

    /// The thread that submitted a job may have exited. The kernel then cancels operations that it
    /// would have had to restart in that thread's context, which is not a disk error.
    #[test]
    fn a_job_that_ended_with_its_thread_is_begun_again() {
        let Ok(uring) = Uring::new() else {
            return; // The kernel has no io_uring.
        };
        for code in [ECANCELED, EINTR, EAGAIN] {
            let (sender, answer) = channel();
            let job = Job {
                file: page_of(7),
                work: Work::Read,
                offset: 0,
                length: 4096,
                buffer: IoBuf::new(4096),
                done: Box::new(move |result| drop(sender.send(result))),
            };
            let key = uring.shared.jobs().insert(Running { job, moved: 0 });
            uring.shared.finish(key, -code);
            let result = answer.recv().expect("answered");
            assert_eq!(result.expect("a page").as_slice(), [7; 4096]);
        }
    }

    #[test]
    fn a_busy_kernel_is_asked_again() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let busy: Submit = |ring| match ASKED.fetch_add(1, Ordering::Relaxed) % 4 {
            0 => Err(Error::from_raw_os_error(EBUSY)),
            1 => Err(Error::from_raw_os_error(EAGAIN)),
            // The kernel took no entry and reports no error.
            2 => Ok(0),
            _ => ring.submit(),
        };
        let Ok(uring) = Uring::with(busy) else {
            return; // The kernel has no io_uring.
        };
        let file = page_of(7);
        for _ in 0..20 {
            let result = read(&uring, &file).recv().expect("answered");
            assert_eq!(result.expect("a page").as_slice(), [7; 4096]);
        }
    }
}
