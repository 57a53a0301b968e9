//! Detects whether another program has written to a store while no server ran.

use super::known::MemoryTrust;
use crate::StoreStamp;
use crate::memory_file::Known;

/// The last write of a server may carry a time stamp this much later than its last sign of life. A
/// write by another program within that time is not detected, if it ignores the locks on the image.
const GRACE_NS: u64 = 10_000_000;

/// The reason why the recorded blocks of a store may be stale, if they may be. `stamp` is the
/// current stamp.
pub fn why_changed(
    known: &Known,
    size_bytes: u64,
    stamp: Option<StoreStamp>,
    trust: MemoryTrust,
) -> Result<(), String> {
    if known.size_bytes != size_bytes {
        let was = known.size_bytes;
        return Err(format!("its size was {was} bytes and is {size_bytes} now"));
    }
    let Some(stamp) = stamp else {
        return match trust {
            MemoryTrust::Devices => Ok(()),
            MemoryTrust::Files => Err(UNSEEN.to_owned()),
        };
    };
    if known.is_written {
        let latest = stamp.modified_ns.max(stamp.changed_ns);
        if latest > known.alive_ns.saturating_add(GRACE_NS) {
            return Err(format!(
                "it was changed {} ms after the last server was last seen alive",
                (latest - known.alive_ns) / 1_000_000
            ));
        }
        let earliest = known.stamp.map_or(0, |was| was.changed_ns);
        if stamp.changed_ns < earliest {
            return Err("it was last changed before the last server used it".to_owned());
        }
        return Ok(());
    }
    match known.stamp {
        Some(was) if was == stamp => Ok(()),
        Some(_) => Err("it was changed while no server used it".to_owned()),
        None => Err("the last server did not note what it was like".to_owned()),
    }
}

/// The reason for stores that cannot detect foreign writes.
pub const UNSEEN: &str = "whether others have written to it cannot be seen (--memory-trust devices says that they do not)";

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn stamp(at: u64) -> StoreStamp {
        StoreStamp {
            size_bytes: 4096,
            modified_ns: at,
            changed_ns: at,
        }
    }

    fn known(is_written: bool, alive_ns: u64, at: Option<u64>) -> Known {
        Known {
            era: 1,
            identity: [1; 16],
            size_bytes: 4096,
            is_written,
            alive_ns,
            stamp: at.map(stamp),
        }
    }

    fn judge(known: &Known, at: Option<u64>) -> Result<(), String> {
        why_changed(known, 4096, at.map(stamp), MemoryTrust::Files)
    }

    #[test]
    fn what_was_at_rest_must_be_exactly_as_it_was() {
        let at_rest = known(false, 0, Some(5 * SECOND));
        assert_eq!(judge(&at_rest, Some(5 * SECOND)), Ok(()));
        assert!(judge(&at_rest, Some(5 * SECOND + 1)).is_err());
        assert!(judge(&at_rest, Some(5 * SECOND - 1)).is_err());
        assert!(judge(&known(false, 0, None), Some(5 * SECOND)).is_err());
        let longer = why_changed(&at_rest, 8192, Some(stamp(5 * SECOND)), MemoryTrust::Files);
        assert!(longer.is_err_and(|why| why.contains("8192")));
    }

    #[test]
    fn what_was_being_written_to_may_be_as_late_as_the_server_was_alive() {
        let written = known(true, 9 * SECOND, Some(5 * SECOND));
        for (at, is_ok) in [
            (5 * SECOND, true),
            (9 * SECOND + GRACE_NS, true),
            (9 * SECOND + GRACE_NS + 1, false),
            (5 * SECOND - 1, false),
        ] {
            assert_eq!(judge(&written, Some(at)).is_ok(), is_ok, "{at}");
        }
    }

    #[test]
    fn of_a_device_nothing_is_known_unless_somebody_says_so() {
        for is_written in [true, false] {
            let device = known(is_written, 0, None);
            assert!(judge(&device, None).is_err_and(|why| why.contains("--memory-trust")));
            assert_eq!(
                why_changed(&device, 4096, None, MemoryTrust::Devices),
                Ok(())
            );
        }
    }
}
