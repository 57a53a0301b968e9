//! Huge pages, set aside for a test.

use futae_testkit::need::{Need, skip};
use std::fs;

/// How many huge pages of the usual size the kernel sets aside.
const COUNT: &str = "/proc/sys/vm/nr_hugepages";

/// Huge pages that nobody else has asked for. The kernel has as many as before once this is dropped.
pub struct HugePages {
    before: u64,
}

impl HugePages {
    /// Sets aside this many more. None, and the reason is printed, if they cannot be had.
    #[must_use]
    pub fn new(pages: u64) -> Option<Self> {
        if meminfo("Hugepagesize") != Some(2048) {
            skip(Need::HugePages, "huge pages have not 2 MiB here");
            return None;
        }
        let Some(before) = count() else {
            skip(Need::HugePages, "the kernel has no huge pages");
            return None;
        };
        let own = Self { before };
        let free = meminfo("HugePages_Free").unwrap_or_default();
        let asked = fs::write(COUNT, (before + pages).to_string());
        if asked.is_err() || meminfo("HugePages_Free") < Some(free + pages) {
            skip(
                Need::HugePages,
                &format!("no {pages} huge pages can be had"),
            );
            return None;
        }
        Some(own)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // What cannot be given back was not had, either.
        let _ = fs::write(COUNT, self.before.to_string());
    }
}

fn count() -> Option<u64> {
    fs::read_to_string(COUNT).ok()?.trim().parse().ok()
}

fn meminfo(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let mut values = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = values.find(|(key, _)| *key == name)?;
    value.split_whitespace().next()?.parse().ok()
}
