//! Requests as applications made them: the size limit of the kernel's requests, and split reads,
//! joined again for counting.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where Linux, since 6.13, reports the largest number of pages per request.
const PAGES_LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";
/// The limit of kernels that do not report it.
const PAGES_LIMIT_BEFORE: u32 = 256;
const PAGE_BYTES: u32 = 4096;
/// The longest request that the FUSE library can take.
const REQUEST_BYTES_MAX: u32 = 16 << 20;

/// The number of runs remembered: about as many as there are concurrent readers.
const RUNS_MAX: usize = 64;
/// The longest pause between the parts of one request.
const RUN_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The longest request that this kernel may send, in bytes.
pub(crate) fn longest_request_bytes() -> u32 {
    let said = std::fs::read_to_string(PAGES_LIMIT);
    let pages = said.ok().and_then(|text| text.trim().parse().ok());
    let bytes = pages
        .unwrap_or(PAGES_LIMIT_BEFORE)
        .saturating_mul(PAGE_BYTES);
    bytes.clamp(PAGE_BYTES, REQUEST_BYTES_MAX)
}

/// Adjacent reads that came soon after each other.
#[derive(Debug)]
struct Run {
    first: u64,
    end: u64,
    last_at: Instant,
}

/// Detects reads that continue a request that the kernel has split. The kernel does not mark them.
/// A read that is adjacent to a recent one counts as its continuation, as long as both together are
/// no longer than an application's request may be.
#[derive(Debug)]
pub(crate) struct SplitReads {
    block_bytes: u64,
    /// The length of the longest request in bytes; 0: no read counts as a part.
    longest: u64,
    recent: Mutex<VecDeque<Run>>,
}

impl SplitReads {
    pub(crate) fn new(block_bytes: u64, longest: u64) -> Self {
        let recent = Mutex::default();
        Self {
            block_bytes,
            longest,
            recent,
        }
    }

    /// Whether the block in which a read begins was counted with another part of its request.
    pub(crate) fn goes_on(&self, offset: u64, length: u64) -> bool {
        if length >= self.longest {
            return false;
        }
        let (end, now) = (offset + length, Instant::now());
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let at = recent.iter().position(|run| {
            let is_next = run.end == offset || run.first == end;
            let total = run.end - run.first + length;
            is_next && total <= self.longest && now - run.last_at <= RUN_PAUSE_MAX
        });
        let Some(run) = at.and_then(|at| recent.remove(at)) else {
            self.remember(&mut recent, offset, end, now);
            return false;
        };
        self.remember(&mut recent, offset.min(run.first), end.max(run.end), now);
        let beside = if run.end == offset {
            offset.wrapping_sub(1)
        } else {
            end
        };
        offset / self.block_bytes == beside / self.block_bytes
    }

    fn remember(&self, recent: &mut VecDeque<Run>, first: u64, end: u64, last_at: Instant) {
        if end - first >= self.longest {
            return;
        }
        if recent.len() >= RUNS_MAX {
            recent.pop_front();
        }
        recent.push_back(Run {
            first,
            end,
            last_at,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: u64 = 128 << 10;
    const BLOCK: u64 = 8 << 20;

    fn counted(runs: &SplitReads, parts: &[u64]) -> usize {
        let new = |part: &&u64| !runs.goes_on(**part * PART, PART);
        parts.iter().filter(new).count()
    }

    #[test]
    fn a_split_request_counts_once() {
        let runs = SplitReads::new(BLOCK, 8 * PART);
        assert_eq!(counted(&runs, &[0, 1, 2, 3, 4, 5, 6, 7]), 1);
        assert_eq!(
            counted(&runs, &[8, 9, 10, 11, 12, 13, 14, 15]),
            1,
            "the next one"
        );
        assert_eq!(
            counted(&runs, &[31, 30, 29, 28, 27, 26, 25, 24]),
            1,
            "backwards"
        );
        assert_eq!(counted(&runs, &[40, 50, 41, 51]), 2, "two at a time");
    }

    #[test]
    fn one_that_spans_two_blocks_counts_once_for_each() {
        let runs = SplitReads::new(BLOCK, 8 * PART);
        assert_eq!(counted(&runs, &[60, 61, 62, 63, 64, 65, 66, 67]), 2);
    }

    #[test]
    fn reads_apart_from_each_other_and_the_same_again_count_each() {
        let runs = SplitReads::new(BLOCK, 8 * PART);
        assert_eq!(counted(&runs, &[0, 2, 4, 6, 4]), 5);
        let off = SplitReads::new(BLOCK, 0);
        assert_eq!(counted(&off, &[0, 1, 2]), 3);
        let whole = SplitReads::new(BLOCK, PART);
        assert_eq!(counted(&whole, &[0, 1, 2]), 3, "each is a request");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let runs = SplitReads::new(BLOCK, 8 * PART);
        let far: Vec<u64> = (0..1000).map(|at| at * 10).collect();
        assert_eq!(counted(&runs, &far), 1000);
        let recent = runs.recent.lock().expect("no panic");
        assert!(recent.len() <= RUNS_MAX);
    }

    #[test]
    fn the_kernel_is_asked_for_whole_pages() {
        let longest = longest_request_bytes();
        assert!(
            (PAGE_BYTES..=REQUEST_BYTES_MAX).contains(&longest)
                && longest.is_multiple_of(PAGE_BYTES)
        );
    }
}
