//! Pages of several files, numbered over all of them.

use std::ops::Range;

/// Each file begins at a multiple of it, so that what stands for this many pages is of one file.
pub const ALIGNED: u64 = 4096;

/// Which numbers the pages of each file have.
pub struct Numbering {
    files: Vec<Range<u64>>,
    total: u64,
}

impl Numbering {
    /// Of files of this many pages.
    pub fn new(pages: &[u64]) -> Self {
        let mut total = 0u64;
        let files = pages
            .iter()
            .map(|&pages| {
                let first = total;
                total = total
                    .saturating_add(pages)
                    .checked_next_multiple_of(ALIGNED)
                    .unwrap_or(u64::MAX);
                first..first.saturating_add(pages)
            })
            .collect();
        Self { files, total }
    }

    /// The numbers of each file.
    pub fn files(&self) -> &[Range<u64>] {
        &self.files
    }

    /// All numbers, those between files too.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The file and the page in it that have a number.
    pub fn place(&self, number: u64) -> Option<(usize, u64)> {
        let behind = self.files.partition_point(|range| range.start <= number);
        // A file without pages begins where the next one does.
        let file = self.files[..behind]
            .iter()
            .rposition(|range| range.contains(&number))?;
        Some((file, number - self.files[file].start))
    }

    /// The number of a page.
    pub fn number(&self, file: usize, page: u64) -> Option<u64> {
        let range = self.files.get(file)?;
        let number = range.start.checked_add(page)?;
        range.contains(&number).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_its_number() {
        let numbering = Numbering::new(&[10, 0, 5000, 1]);
        assert_eq!(numbering.total(), 4096 + 8192 + 4096);
        for (file, pages) in [(0, 10), (2, 5000), (3, 1)] {
            for page in [0, pages - 1] {
                let number = numbering.number(file, page).expect("there");
                assert_eq!(numbering.place(number), Some((file, page)));
            }
            assert_eq!(numbering.number(file, pages), None);
        }
        assert_eq!((numbering.place(10), numbering.number(1, 0)), (None, None));
        assert_eq!(numbering.place(u64::MAX), None);
    }
}
