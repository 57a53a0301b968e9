//! File I/O by a few threads, for kernels without io_uring.

use super::job::{Job, Work, ends_early};
use crate::IoBuf;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Number of concurrent operations.
const THREADS: usize = 8;

/// A queue of jobs and the threads that execute them. The threads exit when it is dropped.
pub struct Threads {
    queue: Sender<Job>,
}

impl Threads {
    /// Starts the threads.
    pub fn new() -> Self {
        let (queue, jobs) = channel();
        let jobs = Arc::new(Mutex::new(jobs));
        for _ in 0..THREADS {
            let jobs = Arc::clone(&jobs);
            std::thread::spawn(move || work(&jobs));
        }
        Self { queue }
    }

    /// Queues a job.
    pub fn start(&self, job: Job) {
        if let Err(unsent) = self.queue.send(job) {
            (unsent.0.done)(Err(Error::other("the I/O threads have ended")));
        }
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let next = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut job) = next else { return };
        let result = perform(&mut job);
        let buffer = std::mem::replace(&mut job.buffer, IoBuf::new(0));
        (job.done)(result.map(|()| buffer));
    }
}

fn perform(job: &mut Job) -> std::io::Result<()> {
    match job.work {
        Work::Read => match job
            .file
            .read_exact_at(job.buffer.as_mut_slice(), job.offset)
        {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(ends_early()),
            result => result,
        },
        Work::Write { fua } => {
            job.file.write_all_at(job.buffer.as_slice(), job.offset)?;
            if fua { job.file.sync_data() } else { Ok(()) }
        }
        Work::Flush => job.file.sync_data(),
        Work::Sync => job.file.sync_all(),
        Work::Allocate(mode) => Ok(rustix::fs::fallocate(
            &*job.file, mode, job.offset, job.length,
        )?),
    }
}
