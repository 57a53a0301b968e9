//! Pages that the kernel has of files which are opened past its page cache.
//!
//! If a program maps such a file, or has it sent by `sendfile`, the kernel reads its pages. A write past the page cache drops the
//! pages of its range before it is sent here, and not afterwards. So a page that is read meanwhile keeps the old data; and if a
//! program changes that page by its map, the kernel writes all of it back, over the new data.
//!
//! Hence the data of such a write is put into the kernel's pages before the write ends. What the kernel writes back of its range until then
//! is left out: both happen at the same time, so either order is right.

use crate::lock::locked;
use crate::spare_threads::Aside;
use fuser::{INodeNo, Notifier, WriteFlags};
use futae_engine::{Done, IoBuf, IoError, IoErrorKind, Operation};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// Who writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    /// A program's `write`, past the pages.
    Program,
    /// The kernel, which writes its pages back.
    Pages,
}

impl Writer {
    /// By the flags of a request.
    pub(crate) fn of(how: WriteFlags) -> Self {
        if how.contains(WriteFlags::FUSE_WRITE_CACHE) {
            Self::Pages
        } else {
            Self::Program
        }
    }
}

/// The pages of one file.
#[derive(Default)]
pub(crate) struct MappedPages {
    /// The kernel has read some.
    were_read: AtomicBool,
    /// Ranges that are being written past them, in bytes.
    passing: Mutex<Vec<Range<u64>>>,
}

impl MappedPages {
    /// The kernel reads a page. To be called before its data is read.
    pub(crate) fn note_read(&self) {
        if !self.were_read.load(Ordering::Relaxed) {
            self.were_read.store(true, Ordering::Relaxed);
        }
        // Either the read sees a write that ends meanwhile, or that write sees the read.
        fence(Ordering::SeqCst);
    }

    /// Whether the kernel may have pages.
    fn are_there(&self) -> bool {
        fence(Ordering::SeqCst);
        self.were_read.load(Ordering::Relaxed)
    }

    fn passing(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.passing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The parts of a range that nothing is written to past the pages.
    fn not_passed(&self, range: &Range<u64>) -> Vec<Range<u64>> {
        let mut left = vec![range.clone()];
        for passed in &*self.passing() {
            let outside = |part: Range<u64>| {
                let before = part.start..part.end.min(passed.start);
                let after = part.start.max(passed.end)..part.end;
                [before, after].into_iter().filter(|it| !it.is_empty())
            };
            left = left.into_iter().flat_map(outside).collect();
        }
        left
    }
}

/// A write past the pages, until it is dropped.
struct Passing {
    pages: Arc<MappedPages>,
    range: Range<u64>,
}

impl Passing {
    fn begin(pages: &Arc<MappedPages>, range: Range<u64>) -> Self {
        pages.passing().push(range.clone());
        Self {
            pages: Arc::clone(pages),
            range,
        }
    }
}

impl Drop for Passing {
    fn drop(&mut self) {
        let mut passing = self.pages.passing();
        if let Some(at) = passing.iter().position(|it| *it == self.range) {
            passing.swap_remove(at);
        }
    }
}

/// A range of a file that was written past the kernel's pages.
struct Written {
    inode: u64,
    range: Range<u64>,
    /// Reads what the range contains now.
    read: Box<dyn FnOnce() -> Result<IoBuf, IoError> + Send>,
    then: Box<dyn FnOnce() + Send>,
}

/// Puts written data into the kernel's pages, on other threads: the kernel may wait until a page has been read, which the
/// threads that serve requests must answer meanwhile. The order matters within a file only, and the store of one file may stall
/// while others do not: each file has a queue of its own.
#[derive(Default)]
pub(crate) struct Teller {
    told: OnceLock<Told>,
    /// The files with work, and what is to be done after that. A thread works on each.
    waiting: Arc<Mutex<Waiting>>,
}

type Waiting = HashMap<u64, VecDeque<Written>>;

struct Told {
    notifier: Notifier,
    threads: Aside,
}

impl Teller {
    /// Begins, until the teller is dropped.
    pub(crate) fn start(&self, notifier: Notifier) -> std::io::Result<()> {
        let threads = Aside::start()?;
        let _ = self.told.set(Told { notifier, threads });
        Ok(())
    }

    fn tell(&self, written: Written) {
        let Some(Told { notifier, threads }) = self.told.get() else {
            return (written.then)();
        };
        let notifier = notifier.clone();
        let put = move |written: Written| {
            put(&notifier, written.inode, written.range, written.read);
            (written.then)();
        };
        in_order_of_file(&self.waiting, threads, written, put);
    }
}

/// Has a thread do the work for a write after all that is to be done for the same file.
fn in_order_of_file(
    waiting: &Arc<Mutex<Waiting>>,
    threads: &Aside,
    written: Written,
    work: impl Fn(Written) + Send + 'static,
) {
    let file = written.inode;
    match locked(waiting).entry(file) {
        Entry::Occupied(mut others) => return others.get_mut().push_back(written),
        Entry::Vacant(none) => drop(none.insert_entry(VecDeque::new())),
    }
    let waiting = Arc::clone(waiting);
    threads.queue(move || {
        let mut next = Some(written);
        while let Some(written) = next {
            work(written);
            let mut waiting = locked(&waiting);
            next = waiting.get_mut(&file).and_then(VecDeque::pop_front);
            if next.is_none() {
                waiting.remove(&file);
            }
        }
    });
}

/// Reads a range now, since of several writes to it the last that comes here may not be the last that was done, and puts it into
/// the kernel's pages. If that fails, they are dropped.
fn put(
    notifier: &Notifier,
    inode: u64,
    range: Range<u64>,
    read: impl FnOnce() -> Result<IoBuf, IoError>,
) {
    // Of nothing, the kernel would learn that the file reaches as far as here.
    let is_put = read().is_ok_and(|data| {
        let put = || notifier.store(INodeNo(inode), range.start, data.as_slice());
        !data.is_empty() && put().is_ok()
    });
    if !is_put {
        // A file that the kernel has forgotten has no pages, and after the end of the mount none has.
        let length = (range.end - range.start) as i64;
        let _ = notifier.inval_inode(INodeNo(inode), range.start as i64, length);
    }
}

/// A file as its writes need it.
pub(crate) struct PastPages {
    pub(crate) pages: Arc<MappedPages>,
    pub(crate) teller: Arc<Teller>,
    pub(crate) inode: u64,
}

impl PastPages {
    /// Writes to the file by `submit`. `offset` is also that of an append, as the kernel knows it.
    pub(crate) fn write<S>(
        self,
        writer: Writer,
        offset: u64,
        work: Operation,
        submit: S,
        done: Done,
    ) where
        S: Fn(Operation, Done) + Clone + Send + 'static,
    {
        let length = match &work {
            Operation::Write { data, .. } | Operation::Append { data, .. } => data.len() as u64,
            _ => return submit(work, done),
        };
        let range = offset..offset.saturating_add(length);
        if writer == Writer::Pages {
            let parts = self.pages.not_passed(&range);
            return match parts.as_slice() {
                [whole] if *whole == range => submit(work, done),
                _ => write_parts(work, parts, submit, done),
            };
        }
        let are_there = self.pages.are_there();
        let passing = are_there.then(|| Passing::begin(&self.pages, range.clone()));
        let again = submit.clone();
        let then = move |result: Result<IoBuf, IoError>| {
            if result.is_err() || !self.pages.are_there() {
                return done(result);
            }
            let read = move || {
                let (sender, receiver) = channel();
                // The write counts for the policy, and not this.
                again(
                    Operation::ReadOn { offset, length },
                    Box::new(move |result| drop(sender.send(result))),
                );
                let gone = IoError::new(IoErrorKind::Shutdown, "the engine is gone");
                receiver.recv().unwrap_or(Err(gone))
            };
            self.teller.tell(Written {
                inode: self.inode,
                range,
                read: Box::new(read),
                then: Box::new(move || {
                    drop(passing);
                    done(result);
                }),
            });
        };
        submit(work, Box::new(then));
    }
}

/// Writes parts of the data, one after the other.
fn write_parts<S>(work: Operation, mut parts: Vec<Range<u64>>, submit: S, done: Done)
where
    S: Fn(Operation, Done) + Clone + Send + 'static,
{
    let Operation::Write { offset, data, fua } = work else {
        return submit(work, done);
    };
    let Some(part) = parts.pop() else {
        return done(Ok(IoBuf::new(0)));
    };
    let within = (part.start - offset) as usize..(part.end - offset) as usize;
    let first = Operation::Write {
        offset: part.start,
        data: IoBuf::copy_of(&data.as_slice()[within]),
        fua,
    };
    let next = submit.clone();
    let then: Done = Box::new(move |result| match result {
        Ok(_) => write_parts(Operation::Write { offset, data, fua }, parts, next, done),
        Err(error) => done(Err(error)),
    });
    submit(first, then);
}

#[cfg(test)]
mod tests {
    use super::{MappedPages, Passing, PastPages, Teller, Waiting, Writer, Written};
    use super::{in_order_of_file, locked};
    use crate::spare_threads::Aside;
    use crate::until::{PATIENCE, until};
    use futae_engine::{Done, IoBuf, IoError, IoErrorKind, Operation};
    use std::sync::mpsc::{Receiver, channel};
    use std::sync::{Arc, Mutex};

    type Asked = Arc<Mutex<Vec<(u64, Vec<u8>)>>>;

    /// A file of which the kernel has pages, a list of what is written to it, and what answers.
    fn written(
        pages: &Arc<MappedPages>,
        writer: Writer,
        (offset, data): (u64, &[u8]),
        fails_at: Option<u64>,
    ) -> (Asked, Receiver<Result<IoBuf, IoError>>) {
        let asked = Asked::default();
        let list = Arc::clone(&asked);
        let submit = move |work, done: Done| {
            let Operation::Write { offset, data, .. } = work else {
                return done(Ok(IoBuf::new(0)));
            };
            let mut list = list.lock().expect("one thread");
            list.push((offset, data.as_slice().to_vec()));
            drop(list);
            done(match fails_at == Some(offset) {
                true => Err(IoError::new(IoErrorKind::NoSpace, "full")),
                false => Ok(data),
            });
        };
        let file = PastPages {
            pages: Arc::clone(pages),
            teller: Arc::new(Teller::default()),
            inode: 2,
        };
        let work = Operation::Write {
            offset,
            data: IoBuf::copy_of(data),
            fua: false,
        };
        let (sender, answers) = channel();
        let done: Done = Box::new(move |result| drop(sender.send(result)));
        file.write(writer, offset, work, submit, done);
        (asked, answers)
    }

    #[test]
    fn pages_are_written_back_except_what_is_written_past_them_meanwhile() {
        let pages = Arc::new(MappedPages::default());
        let list = |asked: &Asked| asked.lock().expect("one thread").clone();
        let (asked, _) = written(&pages, Writer::Pages, (8, b"abcdefgh"), None);
        assert_eq!(list(&asked), [(8, b"abcdefgh".to_vec())]);
        let two = [
            Passing::begin(&pages, 10..12),
            Passing::begin(&pages, 15..99),
        ];
        let (asked, answers) = written(&pages, Writer::Pages, (8, b"abcdefgh"), None);
        // The last part first.
        assert_eq!(list(&asked), [(12, b"efg".to_vec()), (8, b"ab".to_vec())]);
        answers.recv().expect("an answer").expect("written");
        let (asked, answers) = written(&pages, Writer::Pages, (8, b"abcdefgh"), Some(12));
        assert_eq!(list(&asked).len(), 1, "nothing after an error");
        answers.recv().expect("an answer").expect_err("full");
        let (asked, answers) = written(&pages, Writer::Pages, (15, b"h"), None);
        assert!(list(&asked).is_empty());
        answers
            .recv()
            .expect("an answer")
            .expect("nothing is left of it");
        drop(two);
        let (asked, _) = written(&pages, Writer::Pages, (15, b"h"), None);
        assert_eq!(list(&asked).len(), 1);
    }

    #[test]
    fn a_file_whose_store_stalls_holds_up_only_itself() {
        let threads = Aside::start().expect("a thread");
        let waiting = Arc::new(Mutex::new(Waiting::new()));
        let gate = Arc::new(Mutex::new(()));
        let stalled = locked(&gate);
        let (done, ends) = channel();
        for (inode, at) in [(1, 0), (1, 1), (2, 2), (1, 3), (2, 4)] {
            let done = done.clone();
            let written = Written {
                inode,
                range: at..at + 1,
                read: Box::new(|| Ok(IoBuf::new(0))),
                then: Box::new(move || done.send((inode, at)).expect("kept")),
            };
            let gate = Arc::clone(&gate);
            in_order_of_file(&waiting, &threads, written, move |written| {
                if written.inode == 1 {
                    drop(locked(&gate));
                }
                (written.then)();
            });
        }
        let next = || ends.recv_timeout(PATIENCE).expect("it ends");
        assert_eq!([next(), next()], [(2, 2), (2, 4)]);
        drop(stalled);
        assert_eq!([next(), next(), next()], [(1, 0), (1, 1), (1, 3)]);
        until("nothing is kept", || locked(&waiting).is_empty());
    }

    #[test]
    fn a_write_past_the_pages_ends_with_its_answer() {
        let pages = Arc::new(MappedPages::default());
        for has_pages in [false, true] {
            if has_pages {
                pages.note_read();
            }
            for fails_at in [None, Some(8)] {
                let (asked, answers) = written(&pages, Writer::Program, (8, b"ab"), fails_at);
                assert_eq!(asked.lock().expect("one thread").len(), 1);
                let answer = answers.recv().expect("an answer");
                assert_eq!(answer.is_err(), fails_at.is_some());
                assert!(pages.passing().is_empty(), "it passes no more");
            }
        }
    }
}
