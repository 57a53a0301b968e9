//! What the hostile targets share: an input that is read off as decisions, and content in which
//! every byte tells whose it is and where it belongs.
pub use futae_testkit::wait::eventually;

pub mod attacker;
pub mod player;
pub mod speaker;

use std::sync::LazyLock;
use tempfile::TempDir;

/// A directory of an input for its sockets, as several inputs may run at a time.
pub fn sockets() -> TempDir {
    tempfile::tempdir().expect("a directory")
}

/// Reads an input off as decisions; 0 for every decision after its end.
pub struct Script<'a> {
    rest: &'a [u8],
}

impl<'a> Script<'a> {
    pub fn new(rest: &'a [u8]) -> Self {
        Self { rest }
    }

    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.rest.split_first() else {
            return 0;
        };
        self.rest = rest;
        first
    }

    pub fn word(&mut self) -> u64 {
        u64::from(self.byte()) << 8 | u64::from(self.byte())
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end.max(1)
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::from(self.byte()) % from.len()]
    }

    pub fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(most.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}

/// What volume `owner`, from 0 to 2, holds at `position`. The highest two bits are the owner.
pub fn stamp(owner: u8, position: u64) -> u8 {
    let mixed = position.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    owner << 6 | (mixed >> 58) as u8
}

/// The first bytes of the volumes, which most inputs ask for: to stamp them for each would take most of the time.
static CONTENT: [LazyLock<Vec<u8>>; 3] = [
    LazyLock::new(|| stamp_all(0)),
    LazyLock::new(|| stamp_all(1)),
    LazyLock::new(|| stamp_all(2)),
];
const CONTENT_BYTES: u64 = 16 << 20;

fn stamp_all(owner: u8) -> Vec<u8> {
    (0..CONTENT_BYTES).map(|at| stamp(owner, at)).collect()
}

/// The content of a volume from `start` on.
pub fn stamped(owner: u8, start: u64, bytes: usize) -> Vec<u8> {
    let end = start + bytes as u64;
    if end <= CONTENT_BYTES {
        return CONTENT[usize::from(owner)][start as usize..end as usize].to_vec();
    }
    (start..end).map(|at| stamp(owner, at)).collect()
}
