//! What sectors hold: the number of the write that wrote them, and where they are. A quarter of the writes leaves
//! out where, so that blocks are equal.

/// Bytes of a sector: what a disk writes whole or not at all.
pub const SECTOR: u64 = 512;

/// The number of zeroes.
pub const ZERO: u64 = 0;

/// A sector of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The volume, from 0 on.
    pub volume: usize,
    /// The sector, from 0 on.
    pub sector: u64,
}

/// The sector that is this many bytes behind another.
pub fn place_at(place: Place, bytes: u64) -> Place {
    Place {
        sector: place.sector + bytes / SECTOR,
        ..place
    }
}

fn tag(place: Place, version: u64) -> u64 {
    let name = if version % 4 == 1 {
        0
    } else {
        (place.volume as u64) << 48 | place.sector
    };
    (name + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ version.rotate_left(32)
}

/// Fills sectors from `place` on with the content of write `version`.
pub fn fill(bytes: &mut [u8], place: Place, version: u64) {
    if version == ZERO {
        return bytes.fill(0);
    }
    for (at, sector) in bytes.chunks_mut(SECTOR as usize).enumerate() {
        let place = Place {
            sector: place.sector + at as u64,
            ..place
        };
        let tag = tag(place, version).to_le_bytes();
        for pair in sector.chunks_exact_mut(16) {
            pair[..8].copy_from_slice(&version.to_le_bytes());
            pair[8..].copy_from_slice(&tag);
        }
    }
}

/// The number of the write that wrote a sector.
///
/// # Errors
///
/// The sector is torn, or another one's.
pub fn version_of(sector: &[u8], place: Place) -> Result<u64, String> {
    let number = |from: usize| {
        let bytes = sector[from..from + 8].try_into();
        u64::from_le_bytes(bytes.unwrap_or_default())
    };
    let (version, found) = (number(0), number(8));
    if sector[16..] != sector[..sector.len() - 16] {
        return Err(format!("it is torn: it begins with write {version}"));
    }
    if (version, found) == (ZERO, 0) {
        return Ok(ZERO);
    }
    if found != tag(place, version) {
        return Err(format!(
            "it holds what write {version} wrote somewhere else"
        ));
    }
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_says_who_wrote_it_and_where() {
        let place = Place {
            volume: 1,
            sector: 7,
        };
        let mut bytes = vec![0; 1024];
        assert_eq!(version_of(&bytes[..512], place), Ok(ZERO));
        fill(&mut bytes, place, 99);
        assert_eq!(version_of(&bytes[..512], place), Ok(99));
        assert!(version_of(&bytes[512..], place).is_err(), "the next sector");
        let torn = [&bytes[..256], &[0; 256]].concat();
        assert!(version_of(&torn, place).is_err());
        fill(&mut bytes, place, 101);
        assert_eq!(bytes[..512], bytes[512..], "equal blocks");
        assert_eq!(version_of(&bytes[512..], place), Ok(101));
    }
}
