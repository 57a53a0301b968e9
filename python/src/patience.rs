//! Long work without Python's lock, which Ctrl-C ends.

use pyo3::exceptions::{PyRuntimeError, PySystemExit};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// How often Python is asked whether to go on, and is told the progress.
const INTERVAL: Duration = Duration::from_millis(50);

/// How long work that holds Python's lock keeps it, as threads of Python do among themselves.
const LEND_MILLIS: u64 = 5;

/// How long the end of the interpreter waits for work that calls Python and does not return.
const END_WAIT: Duration = Duration::from_secs(5);
/// Between two looks at whether it has.
const END_INTERVAL: Duration = Duration::from_millis(5);

/// Unwinds through a simulation that is to end.
struct Stopped;

/// How many threads work, beside the number of the process in which they do: a process that was forked has none of them. No lock, which a
/// fork could leave locked.
static RUNNING: AtomicU64 = AtomicU64::new(0);
/// The process that ends, if this one does.
static ENDING: AtomicU32 = AtomicU32::new(0);

/// How many threads of this process work.
fn running(process: u32, all: u64) -> u32 {
    if (all >> 32) as u32 == process {
        all as u32
    } else {
        0
    }
}

/// Counts as running until it is dropped.
struct Running {
    process: u32,
}

impl Running {
    fn begin() -> Self {
        let process = std::process::id();
        let one_more = |all| Some(u64::from(process) << 32 | u64::from(running(process, all) + 1));
        // It always changes.
        let _ = RUNNING.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_more);
        Self { process }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let one_less = |all| (running(self.process, all) > 0).then(|| all - 1);
        // A forked process counts anew, and has nothing to take off.
        let _ = RUNNING.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less);
    }
}

/// Has the interpreter end the work of daemon threads before it ends itself. It unwinds a thread that asks for its lock
/// later, which no code in Rust may be on the way of: the process would abort.
pub fn end_with_the_interpreter(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let end = wrap_pyfunction!(end_everything, module)?;
    let atexit = module.py().import("atexit")?;
    atexit.call_method1("register", (end,)).map(|_| ())
}

#[pyfunction]
fn end_everything(py: Python<'_>) {
    py.detach(|| {
        let (process, begun) = (std::process::id(), Instant::now());
        ENDING.store(process, Ordering::Release);
        let is_running = || running(process, RUNNING.load(Ordering::Acquire)) > 0;
        while is_running() && begun.elapsed() < END_WAIT {
            thread::sleep(END_INTERVAL);
        }
        // A function that is called at the end, too, may begin work.
        ENDING.store(0, Ordering::Release);
    });
}

/// Ends a process that was forked while its parent waited for work: the thread that works is not in it, so the wait, which holds what
/// that thread has borrowed, would have no end. `asked` is what the function has come to that forked it.
fn end_forked(asked: PyResult<()>) -> ! {
    Python::attach(|py| {
        let error = asked.err().unwrap_or_else(|| {
            PyRuntimeError::new_err(
                "this process was forked by progress, and the work goes on in its parent alone: end it in progress, by os._exit()",
            )
        });
        // Also ends this process, if the exception says so, with its status.
        error.print(py);
        let exit = |py: Python<'_>| py.import("os")?.call_method1("_exit", (1,)).map(|_| ());
        // It does not return.
        let _ = exit(py);
    });
    std::process::abort();
}

/// Does `work` on a thread of its own, while this one waits for it without Python's lock, looks after signals and
/// calls `progress` with the fraction done. The work gives that to its argument, by which it is ended when a
/// signal or `progress` raises an exception, which is then the result.
///
/// A process that `progress` forks has only the thread that waits. When `progress` returns there, that process is ended.
///
/// Work that calls Python much is given `calls`. It holds Python's lock, which Python itself lends to others when it is called, and which is
/// lent when progress is told, too. It may seldom tell its progress, so it also looks at `calls`, which becomes true when it is to end.
pub fn patiently<T: Send>(
    py: Python<'_>,
    progress: Option<&Py<PyAny>>,
    calls: Option<&AtomicBool>,
    work: impl FnOnce(&(dyn Fn(f64) + Sync)) -> T + Send,
) -> PyResult<T> {
    let running = Running::begin();
    let (own, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let (begun, lent) = (Instant::now(), AtomicU64::new(0));
    let is_stopped = calls.unwrap_or(&own);
    let tell = |fraction: f64| {
        done.store(fraction.to_bits(), Ordering::Relaxed);
        if is_stopped.load(Ordering::Relaxed) {
            // Calls no panic hook, so nothing is printed.
            resume_unwind(Box::new(Stopped));
        }
        let now = begun.elapsed().as_millis() as u64;
        if calls.is_some() && now >= lent.load(Ordering::Relaxed) + LEND_MILLIS {
            // Work that seldom calls Python lends its lock to others here.
            lent.store(now, Ordering::Relaxed);
            Python::attach(|py| py.detach(|| ()));
        }
    };
    let ask = || {
        if ENDING.load(Ordering::Acquire) == std::process::id() {
            // Ends the thread without a word.
            return Err(PySystemExit::new_err(()));
        }
        Python::attach(|py| {
            py.check_signals()?;
            let fraction = f64::from_bits(done.load(Ordering::Relaxed));
            progress.map_or(Ok(()), |call| call.call1(py, (fraction,)).map(|_| ()))
        })
    };
    let (outcome, raised) = py.detach(|| {
        thread::scope(|scope| {
            let (end, ended) = channel::<()>();
            let worker = scope.spawn(|| {
                // Dropped at the end, whatever that is.
                let _end = end;
                catch_unwind(AssertUnwindSafe(|| match calls {
                    Some(_) => Python::attach(|_| work(&tell)),
                    None => work(&tell),
                }))
            });
            let mut raised = None;
            while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(INTERVAL) {
                if raised.is_some() {
                    continue;
                }
                let asked = ask();
                if std::process::id() != running.process {
                    end_forked(asked);
                }
                if let Err(error) = asked {
                    raised = Some(error);
                    is_stopped.store(true, Ordering::Relaxed);
                }
            }
            (worker.join().and_then(|outcome| outcome), raised)
        })
    });
    match (outcome, raised) {
        (_, Some(error)) => Err(error),
        (Ok(result), None) => {
            if let Some(call) = progress {
                call.call1(py, (1.0,))?;
            }
            Ok(result)
        }
        (Err(panic), None) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(PyRuntimeError::new_err(format!(
                "futae has a fault: {}; please report it",
                text.unwrap_or("no message")
            )))
        }
    }
}
