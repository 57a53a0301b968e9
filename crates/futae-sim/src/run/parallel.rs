//! Independent tasks on several threads.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Whether `count` tasks leave a second thread for each, if they may use this many together.
pub(super) fn leaves_threads(threads: usize, count: usize) -> bool {
    threads >= 2 * count
}

/// Runs the tasks `0..count` on at most `threads` threads, at least one, and returns their results
/// in order. `progress` gets the fraction done; it may cancel the tasks by unwinding, and its panic
/// payload reaches the caller.
pub fn in_parallel<T: Send>(
    count: usize,
    threads: usize,
    progress: &(dyn Fn(f64) + Sync),
    work: impl Fn(usize, &mut (dyn FnMut(f64) + Send)) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(vec![0.0; count]);
    let results: Mutex<Vec<Option<T>>> = Mutex::new((0..count).map(|_| None).collect());
    let one_after_another = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            let result = work(at, &mut |fraction| {
                let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                done[at] = fraction;
                progress(done.iter().sum::<f64>() / count as f64);
            });
            results.lock().unwrap_or_else(PoisonError::into_inner)[at] = Some(result);
        }
    };
    std::thread::scope(|scope| {
        let others = 1..threads.clamp(1, count.max(1));
        let others: Vec<_> = others.map(|_| scope.spawn(one_after_another)).collect();
        one_after_another();
        for other in others {
            // The original payload, so that the caller can distinguish it from a bug.
            other.join().unwrap_or_else(|thrown| resume_unwind(thrown));
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().flatten().collect()
}
