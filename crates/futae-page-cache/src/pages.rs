//! Which pages are watched, and what may become of them.

#[cfg(futae_has_bpf)]
use crate::numbering::{ALIGNED, Numbering};
#[cfg(futae_has_bpf)]
use crate::numbers::OWNER_VALUES;

/// Which pages are watched.
#[derive(Clone, Copy, Debug)]
pub enum Pages<'a> {
    /// All pages of files of this many pages, which have the inode number `first_inode` and the next ones.
    Of {
        /// The inode number of the first file.
        first_inode: u64,
        /// How many pages each file has.
        files: &'a [u64],
    },
    /// Those of any files that are there, this many at a time.
    AtMost(u64),
}

/// Bytes that the kernel takes for a page that gets its number as it comes: in the table of numbers 72 and up to two buckets of 16,
/// whose each number is, and a number that was given back.
#[cfg(futae_has_bpf)]
const GIVEN_BYTES: u64 = 72 + 32 + OWNER_VALUES as u64 * 8 + 4;

/// What became of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// It has left, for any reason. It may have come again.
    Left,
    /// It has come, and is not watched: more pages are there than were to be.
    Unwatched,
}

#[cfg(futae_has_bpf)]
impl Pages<'_> {
    /// All numbers that there are.
    pub fn numbers(&self) -> u64 {
        match *self {
            Self::Of { files, .. } => Numbering::new(files).total(),
            Self::AtMost(pages) => pages
                .max(1)
                .checked_next_multiple_of(ALIGNED)
                .unwrap_or(u64::MAX),
        }
    }

    /// How many of them are given to pages as they come.
    pub fn given(&self) -> u64 {
        match self {
            Self::Of { .. } => 0,
            Self::AtMost(_) => self.numbers(),
        }
    }

    /// Bytes of memory that the numbers take, beside the marks.
    pub fn bytes(&self) -> u64 {
        self.given().saturating_mul(GIVEN_BYTES)
    }
}

#[cfg(all(test, futae_has_bpf))]
mod tests {
    use super::*;

    #[test]
    fn pages_that_come_and_go_cost_memory_by_what_is_there_at_a_time() {
        let any = Pages::AtMost(5000);
        assert_eq!((any.numbers(), any.given()), (8192, 8192));
        assert!(any.bytes() > 8192 * 100 && any.bytes() < 8192 * 130);
        let files = Pages::Of {
            first_inode: 2,
            files: &[5000],
        };
        assert_eq!(
            (files.numbers(), files.given(), files.bytes()),
            (8192, 0, 0)
        );
        assert_eq!(Pages::AtMost(u64::MAX).numbers(), u64::MAX);
    }
}
