//! How many connections the limit of open files allows.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs;

/// What a connection takes: its socket, and what wakes its thread.
const EACH: u64 = 2;
/// For agents, orders and stores that are opened again.
const RESERVE: u64 = 96;

/// Raises the limit as far as it goes: a thousand clients need more than a shell's usual soft limit.
pub(super) fn raise_limit() {
    let limit = getrlimit(Resource::Nofile);
    // The server runs with fewer, too.
    let _ = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    );
}

/// As many of the wanted connections as there are descriptors for, beside what is open now and
/// `handshakes` more.
pub(super) fn affordable(wanted: usize, handshakes: usize) -> usize {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return wanted;
    };
    let open = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    within(limit, open as u64, wanted, handshakes as u64)
}

fn within(limit: u64, open: u64, wanted: usize, handshakes: u64) -> usize {
    let left = limit.saturating_sub(open + handshakes + RESERVE) / EACH;
    wanted
        .min(usize::try_from(left).unwrap_or(usize::MAX))
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_no_more_than_descriptors_allow() {
        assert_eq!(within(1024, 24, 512, 128), 388);
        assert_eq!(within(65_536, 24, 512, 128), 512);
        assert_eq!(within(64, 24, 512, 128), 1);
    }
}
