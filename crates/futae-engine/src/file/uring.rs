//! File I/O by io_uring: whoever has work submits it, one thread reaps what is done.
//!
//! `unsafe` here: the kernel reads and writes memory that is named by pointer only, and the two
//! rings are shared between threads. Both rest on one table: a job stays in it, with its buffer
//! and its file, from before its submission until its completion was reaped.

use super::io::{Job, Work};
use super::threads::ends_early;
use io_uring::{IoUring, opcode, squeue, types};
use slab::Slab;
use std::io::Error;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Submissions that the ring holds; more wait in the kernel.
const ENTRIES: u32 = 256;
/// The completion that ends the reaper.
const GOODBYE: u64 = u64::MAX;
/// Bytes of one read or write; the kernel takes no more at once.
const TRANSFER_BYTES_MAX: usize = 1 << 30;
const RWF_DSYNC: i32 = 2;
const EINTR: i32 = 4;
const EAGAIN: i32 = 11;

/// A ring and its reaper; both end when it is dropped, after the jobs under way.
pub struct Uring {
    shared: Arc<Shared>,
    reaper: Option<JoinHandle<()>>,
}

struct Shared {
    ring: IoUring,
    jobs: Mutex<Slab<Running>>,
    /// Held while an entry is put into the submission ring.
    submitting: Mutex<()>,
}

struct Running {
    job: Job,
    /// Bytes transferred so far.
    moved: usize,
}

impl Uring {
    /// A ring, if the kernel grants one.
    pub fn new() -> std::io::Result<Self> {
        let ring = IoUring::new(ENTRIES)?;
        let shared = Arc::new(Shared {
            ring,
            jobs: Mutex::new(Slab::new()),
            submitting: Mutex::new(()),
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
        self.shared
            .push(&opcode::Nop::new().build().user_data(GOODBYE));
        if let Some(reaper) = self.reaper.take() {
            // The last user of a store may be a completion on the reaper itself.
            if reaper.thread().id() != std::thread::current().id() {
                let _ = reaper.join();
            }
        }
    }
}

impl Shared {
    fn start(&self, running: Running) {
        let entry = {
            let mut jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
            let key = jobs.insert(running);
            entry_for(&mut jobs[key]).user_data(key as u64)
        };
        self.push(&entry);
    }

    fn push(&self, entry: &squeue::Entry) {
        let _submitting = self
            .submitting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            // SAFETY: the lock makes this the only submission queue in use, and it is dropped
            // before `submit`. The entry's buffer and file are in the table of jobs, and stay
            // there until its completion is reaped.
            #[expect(unsafe_code, reason = "the named place for io_uring")]
            let pushed = unsafe { self.ring.submission_shared().push(entry) };
            // A full ring or a busy kernel: what is in the ring is submitted again below or with
            // the next entry.
            let submitted = self.ring.submit();
            if pushed.is_ok() && submitted.is_ok() {
                return;
            }
            if pushed.is_ok() {
                return self.resubmit();
            }
            std::thread::yield_now();
        }
    }

    /// Submits what is in the ring until the kernel takes it.
    fn resubmit(&self) {
        while let Err(error) = self.ring.submit() {
            if !matches!(error.raw_os_error(), Some(EINTR | EAGAIN | 16)) {
                eprintln!("futae: io_uring does not take work any more: {error}");
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Waits for completions and answers them until told to stop and nothing is under way.
    fn reap(&self) {
        let mut stopping = false;
        let mut completed = Vec::new();
        loop {
            if stopping
                && self
                    .jobs
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .is_empty()
            {
                return;
            }
            self.wait_for_one();
            // SAFETY: only this thread ever looks at the completion queue.
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
        // An interrupted wait is simply taken up again by the loop.
        drop(waited);
    }

    fn finish(&self, key: usize, result: i32) {
        let mut running = self
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(key);
        let outcome = match (result, running.job.work) {
            (i32::MIN..=-1, _) if matches!(-result, EINTR | EAGAIN) => None,
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

/// The submission for what is left of a job.
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
