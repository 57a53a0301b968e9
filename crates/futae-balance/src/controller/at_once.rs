//! Work on all guests at once.

/// Runs all at once, each within its own time limit.
pub(super) fn at_once<T: Send, F: FnOnce() -> Result<T, String> + Send>(
    all: Vec<F>,
) -> Vec<Result<T, String>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = all.into_iter().map(|one| scope.spawn(one)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<T, String>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err("its thread broke off".to_owned()))
        };
        threads.into_iter().map(join).collect()
    })
}
