//! Which of a guest's disks is which volume of a cache.

use crate::{Device, SECTOR_BYTES};

/// Bytes of a serial number that a disk of virtio has.
const SERIAL_BYTES: usize = 20;

/// The serial number of a disk that is the volume of this name: the name, or what a disk of virtio keeps of it.
#[must_use]
pub fn serial_of(volume: &str) -> &[u8] {
    &volume.as_bytes()[..volume.len().min(SERIAL_BYTES)]
}

/// The disk of each volume, of which the names and the sizes in bytes are given: the disk whose serial number is the
/// volume's name; otherwise the only disk without a serial number that has its size, if it has the size of no other
/// volume that is without a disk. A disk is one volume at most.
pub(super) fn disks_of<'a>(
    volumes: &[(&str, u64)],
    disks: &'a [Device],
) -> Vec<Option<&'a Device>> {
    let mut found: Vec<Option<&Device>> = Vec::with_capacity(volumes.len());
    for (name, _) in volumes {
        let is_named = |disk: &&Device| {
            let is_taken = found.iter().flatten().any(|taken| taken.id == disk.id);
            !disk.serial.is_empty() && disk.serial.as_bytes() == serial_of(name) && !is_taken
        };
        let named = disks.iter().find(is_named);
        found.push(named);
    }
    let unnamed: Vec<_> = disks.iter().filter(|disk| disk.serial.is_empty()).collect();
    let lacking = volumes.iter().zip(&found);
    let lacking = lacking.filter(|(_, disk)| disk.is_none());
    let sizes: Vec<u64> = lacking.map(|((_, size), _)| *size).collect();
    let only_of = |size: u64| {
        let mut alike = unnamed.iter().filter(|disk| fits(disk, size));
        let disk = alike.next().filter(|_| alike.next().is_none())?;
        let rivals = sizes.iter().filter(|&&size| fits(disk, size)).count();
        (rivals == 1).then_some(*disk)
    };
    let by_size = volumes.iter().map(|(_, size)| only_of(*size));
    found
        .iter()
        .zip(by_size)
        .map(|(named, by_size)| named.or(by_size))
        .collect()
}

/// Whether a disk has the size of a volume. A volume may end within a sector, which a disk has or lacks.
fn fits(disk: &Device, size: u64) -> bool {
    disk.sectors == size.div_ceil(SECTOR_BYTES) || disk.sectors == size / SECTOR_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceId;

    fn disk(minor: u32, serial: &str, sectors: u64) -> Device {
        let id = DeviceId { major: 254, minor };
        Device {
            id,
            name: format!("vd{minor}"),
            serial: serial.to_owned(),
            sectors,
        }
    }

    /// The minor numbers of the disks of the volumes.
    fn found(volumes: &[(&str, u64)], disks: &[Device]) -> Vec<Option<u32>> {
        let disks = disks_of(volumes, disks).into_iter();
        disks.map(|disk| disk.map(|disk| disk.id.minor)).collect()
    }

    #[test]
    fn a_disk_is_found_by_its_serial_or_else_by_its_size() {
        let find = |disks: &[Device], name: &str| found(&[(name, 8192)], disks)[0];
        let disks = [disk(0, "", 16), disk(1, "vm1", 99), disk(2, "", 17)];
        assert_eq!(find(&disks, "vm1"), Some(1));
        assert_eq!(find(&disks, "vm2"), Some(0));
        assert_eq!(find(&[disk(0, "", 16), disk(1, "", 16)], "vm2"), None);
        assert_eq!(find(&[disk(0, "other", 16)], "vm2"), None);
        assert_eq!(
            find(
                &[disk(3, "a-name-of-more-than-", 1)],
                "a-name-of-more-than-20"
            ),
            Some(3)
        );
        assert_eq!(find(&[], ""), None);
    }

    #[test]
    fn each_volume_has_a_disk_of_its_own_and_no_disk_is_guessed() {
        const A: (&str, u64) = ("a", 8192);
        const B: (&str, u64) = ("b", 8192);
        const LONG: (&str, u64) = ("long", 16384);
        let (by_name, by_other) = (disk(1, "b", 16), disk(2, "a", 16));
        let (first, second, long) = (disk(3, "", 16), disk(4, "", 16), disk(5, "", 32));
        for (volumes, disks, expected) in [
            // By names, whatever the order.
            (&[A, B][..], vec![&by_name, &by_other], [Some(2), Some(1)]),
            // One by its name, and the other by what is left.
            (&[A, B], vec![&by_name, &first], [Some(3), Some(1)]),
            (&[A, LONG], vec![&first, &long], [Some(3), Some(5)]),
            // One disk could be either volume, or a volume either disk.
            (&[A, B], vec![&first], [None, None]),
            (&[A, B], vec![&first, &second], [None, None]),
            (&[A, LONG], vec![&first, &second, &long], [None, Some(5)]),
            // One disk is not two volumes, even if both bear its name.
            (&[A, A], vec![&by_other], [Some(2), None]),
        ] {
            let disks: Vec<_> = disks.into_iter().cloned().collect();
            assert_eq!(found(volumes, &disks), expected, "{volumes:?} {disks:?}");
        }
    }

    #[test]
    fn a_volume_may_end_within_a_sector() {
        for sectors in [16, 17] {
            assert_eq!(found(&[("a", 8200)], &[disk(0, "", sectors)]), [Some(0)]);
        }
        let volumes = [("a", 8192), ("b", 8200)];
        assert_eq!(found(&volumes, &[disk(0, "", 16)]), [None, None]);
        assert_eq!(
            found(&volumes, &[disk(0, "", 16), disk(1, "", 17)]),
            [None, None],
            "b may be either"
        );
    }
}
