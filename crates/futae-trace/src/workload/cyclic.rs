//! Loop and scan: every block in order.
//!
//! Both request the same blocks. A loop is meant to repeat: its size is smaller than the number of
//! requests in a run. A scan is one pass, after which the workload is complete (a run without a
//! given length ends there), so no block repeats. Inside `mix`, a scan that is larger than its
//! share of the run does not repeat either. A scan that is read for more than one pass begins
//! another, as nightly backups do.

use super::generator::Source;

#[derive(Clone)]
pub struct Draw {
    blocks: u64,
    next: u64,
}

impl Draw {
    pub fn new(blocks: u64) -> Self {
        Self { blocks, next: 0 }
    }
}

impl Source for Draw {
    #[inline]
    fn draw(&mut self) -> u64 {
        let block = self.next;
        self.next = if block + 1 == self.blocks {
            0
        } else {
            block + 1
        };
        block
    }
}
