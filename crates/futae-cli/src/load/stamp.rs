//! What is written: sectors that say, in every eight bytes, which file and place they belong to
//! and when they were written, so that a stale, torn or misplaced sector is known.

/// Bytes of a sector, the smallest operation.
pub const SECTOR: usize = 512;
const WORD: usize = 8;
/// Bits of a sector's number within its file; the file's number is above.
const PLACE_BITS: u32 = 40;

/// Where a sector belongs.
fn place(file: u32, sector: u64) -> u64 {
    u64::from(file) << PLACE_BITS | sector
}

fn word(place: u64, version: u64, at: u64) -> u64 {
    match at {
        0 => place,
        1 => version,
        _ => (place.rotate_left(32) ^ version ^ at << 56).wrapping_mul(0x9E37_79B9_7F4A_7C15),
    }
}

/// Stamps whole sectors, the first of which is at `offset` of file number `file`.
pub fn fill(bytes: &mut [u8], file: u32, offset: u64, version: u64) {
    let first = offset / SECTOR as u64;
    for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR)) {
        let place = place(file, sector);
        for (at, bytes) in (0..).zip(bytes.chunks_exact_mut(WORD)) {
            bytes.copy_from_slice(&word(place, version, at).to_le_bytes());
        }
    }
}

/// What is wrong with sectors that were read, the first of which should be at `offset` of file
/// number `file`: the first bad one's offset and why. `version` is what all were written with, if
/// that is known.
pub fn check(
    bytes: &[u8],
    file: u32,
    offset: u64,
    version: Option<u64>,
) -> Result<(), (u64, &'static str)> {
    let first = offset / SECTOR as u64;
    for (sector, bytes) in (first..).zip(bytes.chunks_exact(SECTOR)) {
        let fault = fault(bytes, place(file, sector), version);
        if let Some(fault) = fault {
            return Err((sector * SECTOR as u64, fault));
        }
    }
    Ok(())
}

fn fault(sector: &[u8], expected: u64, version: Option<u64>) -> Option<&'static str> {
    let mut words = sector.chunks_exact(WORD).map(|bytes| {
        let mut word = [0; WORD];
        word.copy_from_slice(bytes);
        u64::from_le_bytes(word)
    });
    let (place, found) = (words.next()?, words.next()?);
    let mut rest = (2..).zip(words);
    if !rest.all(|(at, found_word)| found_word == word(place, found, at)) {
        return Some("not as it was written");
    }
    if place != expected {
        return Some("the data of another place");
    }
    if version.is_some_and(|version| version != found) {
        return Some("not what was written last");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_sector_is_found_and_its_fault_told() {
        let mut bytes = vec![0; 4 * SECTOR];
        let zeroes = check(&bytes, 0, 0, None);
        assert_eq!(zeroes, Err((0, "not as it was written")));
        fill(&mut bytes, 3, 8192, 7);
        assert_eq!(check(&bytes, 3, 8192, None), Ok(()));
        assert_eq!(check(&bytes, 3, 8192, Some(7)), Ok(()));
        let elsewhere = Err((8192, "the data of another place"));
        assert_eq!(check(&bytes, 2, 8192, None), elsewhere);
        let stale = check(&bytes, 3, 8192, Some(8));
        assert_eq!(stale, Err((8192, "not what was written last")));
        bytes[3 * SECTOR - 1] ^= 1;
        let torn = check(&bytes, 3, 8192, None);
        assert_eq!(torn, Err((8192 + 1024, "not as it was written")));
    }
}
