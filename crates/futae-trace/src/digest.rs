//! A digest of a stream of requests.

use crate::BlockRequest;

/// A 64-bit digest of a stream, without protection against deliberate collisions. Each request is a
/// word: the block's number times two, plus one for a write. A word is added by exclusive or, an
/// odd multiplication and a rotation, each of which is reversible: streams of equal length that
/// differ in one request always have different digests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Digest {
    /// Adds the next requests. Their division into batches makes no difference.
    #[inline]
    pub fn add(&mut self, requests: &[BlockRequest]) {
        for &request in requests {
            self.add_one(request);
        }
    }

    /// Adds the next request.
    #[inline]
    pub fn add_one(&mut self, request: BlockRequest) {
        let word = request.block() << 1 | u64::from(request.is_write());
        self.0 = (self.0 ^ word)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_right(29);
    }

    /// The digest with this request added.
    #[inline]
    #[must_use]
    pub(crate) fn with(mut self, request: BlockRequest) -> Self {
        self.add_one(request);
        self
    }

    /// Sixteen hexadecimal digits.
    #[must_use]
    pub fn hex(&self) -> String {
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        format!("{:016x}", z ^ (z >> 31))
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockRequest, Digest};
    use std::collections::HashSet;

    fn of(requests: &[BlockRequest]) -> String {
        let mut digest = Digest::default();
        digest.add(requests);
        digest.hex()
    }

    #[test]
    fn every_order_and_kind_has_its_own_and_batches_do_not_matter() {
        let (a, b) = (BlockRequest::read(1), BlockRequest::read(2));
        let streams = [
            vec![],
            vec![a],
            vec![b],
            vec![a, b],
            vec![b, a],
            vec![BlockRequest::write(1)],
        ];
        let all: HashSet<_> = streams.iter().map(|stream| of(stream)).collect();
        assert_eq!(all.len(), streams.len());
        let mut digest = Digest::default();
        digest.add(&[a]);
        digest.add(&[b]);
        assert_eq!(digest.hex(), of(&[a, b]));
    }

    #[test]
    fn one_changed_request_among_many_shows() {
        let stream: Vec<_> = (0..1000).map(BlockRequest::read).collect();
        let mut seen = HashSet::from([of(&stream)]);
        for at in 0..1000 {
            let mut other = stream.clone();
            other[at] = BlockRequest::read(5000);
            assert!(seen.insert(of(&other)), "request {at}");
        }
    }

    #[test]
    fn the_digest_never_changes() {
        let stream: Vec<_> = (0..100).map(BlockRequest::read).collect();
        assert_eq!(of(&stream), "7645f69e847e9b0b");
    }
}
