//! The processors for which the kernel wants a ring, and whether it supports rings.

use rustix::thread::{CpuSet, sched_setaffinity};
use std::io;

const ENABLED: &str = "/sys/module/fuse/parameters/enable_uring";
const POSSIBLE: &str = "/sys/devices/system/cpu/possible";
const ONLINE: &str = "/sys/devices/system/cpu/online";

/// Whether mounts can use rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    Yes,
    /// Root has not enabled them.
    Off,
    /// The kernel does not support them.
    Unknown,
}

/// The kernel's support for rings.
pub(crate) fn offer() -> Offer {
    match std::fs::read_to_string(ENABLED) {
        Ok(said) if matches!(said.trim(), "Y" | "1") => Offer::Yes,
        Ok(_) => Offer::Off,
        Err(_) => Offer::Unknown,
    }
}

/// The work of one thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Share {
    /// The processor that it runs on.
    processor: u16,
    /// Offline processors without a thread of their own.
    off: Vec<u16>,
}

/// A share for each online processor. The kernel starts to use rings once every possible processor
/// has one, so the offline processors are distributed among the shares.
pub(super) fn shares() -> io::Result<Vec<Share>> {
    let read = |path: &str| {
        let text = std::fs::read_to_string(path)
            .map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))?;
        numbers(&text).ok_or_else(|| io::Error::other(format!("{path}: {}", text.trim())))
    };
    share_out(&read(POSSIBLE)?, &read(ONLINE)?)
        .ok_or_else(|| io::Error::other(format!("{ONLINE} names no processor")))
}

fn share_out(possible: &[u16], online: &[u16]) -> Option<Vec<Share>> {
    // The kernel numbers its queues from 0 on, one per possible processor.
    let queues = u16::try_from(possible.len()).ok()?;
    let is_on = |processor: &u16| online.contains(processor);
    let share = |processor| Share {
        processor,
        off: Vec::new(),
    };
    let mut shares: Vec<_> = (0..queues).filter(is_on).map(share).collect();
    let count = shares.len();
    for (at, processor) in (0..queues).filter(|it| !is_on(it)).enumerate() {
        shares.get_mut(at.checked_rem(count)?)?.off.push(processor);
    }
    (count > 0).then_some(shares)
}

/// Parses `0-3,8`.
fn numbers(text: &str) -> Option<Vec<u16>> {
    let mut all = Vec::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

impl Share {
    pub(super) fn name(&self) -> u16 {
        self.processor
    }

    /// Pins this thread to its processor, where the requests come from. If that is not permitted,
    /// requests are slower but still correct.
    pub(super) fn stay(&self) {
        let mut set = CpuSet::new();
        if usize::from(self.processor) < CpuSet::MAX_CPU {
            set.set(self.processor.into());
            let _ = sched_setaffinity(None, &set);
        }
    }

    /// For each entry of the ring, the processor whose requests it takes.
    pub(super) fn entries(&self, each: usize, each_off: usize) -> Vec<u16> {
        let own = std::iter::repeat_n(self.processor, each);
        let off = self.off.iter();
        own.chain(off.flat_map(|&processor| std::iter::repeat_n(processor, each_off)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_processor_has_somebody() {
        assert_eq!(numbers("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
        assert_eq!(numbers("0"), Some(vec![0]));
        assert_eq!(numbers(""), None);
        assert_eq!(numbers("1-x"), None);
        let shares = share_out(&[0, 1, 2, 3, 4], &[0, 2]).expect("two are on");
        let all: Vec<_> = shares.iter().map(|share| share.entries(2, 1)).collect();
        assert_eq!(all, [vec![0, 0, 1, 4], vec![2, 2, 3]]);
        assert_eq!(share_out(&[0, 1], &[]), None);
    }
}
