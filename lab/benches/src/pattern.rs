//! What benchmark images hold: every eight bytes follow from where they are.

/// Bytes that one number of the pattern fills.
const WORD_BYTES: u64 = 8;

fn word(index: u64) -> [u8; 8] {
    let mixed = (index ^ (index >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 32)).to_le_bytes()
}

/// Fills `bytes` with what an image holds from `offset`, a multiple of 8, on.
pub fn fill(offset: u64, bytes: &mut [u8]) {
    let first = offset / WORD_BYTES;
    for (index, chunk) in (first..).zip(bytes.chunks_mut(WORD_BYTES as usize)) {
        chunk.copy_from_slice(&word(index)[..chunk.len()]);
    }
}

/// Whether `bytes` are what an image holds from `offset` on. Any offset.
#[must_use]
pub fn matches(offset: u64, bytes: &[u8]) -> bool {
    let lead = (offset % WORD_BYTES) as usize;
    let index = offset / WORD_BYTES;
    if lead == 0 {
        return whole_words_match(index, bytes);
    }
    let (head, rest) = bytes.split_at(bytes.len().min(WORD_BYTES as usize - lead));
    word(index)[lead..lead + head.len()] == *head && whole_words_match(index + 1, rest)
}

fn whole_words_match(first: u64, bytes: &[u8]) -> bool {
    (first..)
        .zip(bytes.chunks(WORD_BYTES as usize))
        .all(|(index, chunk)| word(index)[..chunk.len()] == *chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_part_of_an_image_is_recognised_and_no_other() {
        let mut image = vec![0; 4096];
        fill(8192, &mut image);
        for (start, end) in [(0, 4096), (1, 17), (5, 6), (7, 4095), (8, 16), (4090, 4096)] {
            assert!(
                matches(8192 + start as u64, &image[start..end]),
                "{start}..{end}"
            );
        }
        assert!(!matches(0, &image));
        image[4000] ^= 1;
        assert!(!matches(8192, &image));
    }
}
