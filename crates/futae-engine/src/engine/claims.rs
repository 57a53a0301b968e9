//! Which of the requests in a line came last, for each part of a volume.

use super::flights::Span;
use futae_policy::VolumeId;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// Parts of volumes, which do not overlap, each with the key of the last one that claimed it.
#[derive(Debug, Default)]
pub struct Claims {
    /// By volume and first byte: one past the last byte, and the key.
    parts: BTreeMap<(VolumeId, u64), (u64, usize)>,
    /// Where parts of each key began, so that a release looks at no parts of others. Some have another key now, or are gone.
    starts: HashMap<usize, Vec<u64>>,
}

impl Claims {
    /// Whether somebody has claimed a part of `span`.
    pub fn over(&self, span: &Span) -> bool {
        if self.parts.is_empty() || span.length == 0 {
            return false;
        }
        let before = (span.volume, 0)..(span.volume, span.end());
        let last = self.parts.range(before).next_back();
        last.is_some_and(|(_, &(end, _))| end > span.offset)
    }

    /// A key without a claim claims `span`. Returns the keys that had parts of it, each once.
    ///
    /// A claim removes the parts that it covers, and adds no more than two. So many claims together take no longer than it takes
    /// to find as many parts.
    pub fn claim(&mut self, span: &Span, key: usize) -> Vec<usize> {
        let (volume, end) = (span.volume, span.end());
        let mut before = Vec::new();
        let first = self
            .parts
            .range((volume, 0)..(volume, span.offset))
            .next_back();
        if let Some((&(_, start), &(part_end, holder))) = first
            && part_end > span.offset
        {
            before.push(holder);
            self.put((volume, start), (span.offset, holder));
            self.put_rest(volume, end, (part_end, holder));
        }
        while let Some((&at, &(part_end, holder))) = self
            .parts
            .range((volume, span.offset)..(volume, end))
            .next()
        {
            before.push(holder);
            self.parts.remove(&at);
            self.put_rest(volume, end, (part_end, holder));
        }
        self.put((volume, span.offset), (end, key));
        self.starts.insert(key, vec![span.offset]);
        before.sort_unstable();
        before.dedup();
        before
    }

    fn put(&mut self, at: (VolumeId, u64), part: (u64, usize)) {
        self.parts.insert(at, part);
    }

    /// What another claim that ends at `end` leaves of a part.
    fn put_rest(&mut self, volume: VolumeId, end: u64, (part_end, holder): (u64, usize)) {
        if part_end > end {
            self.put((volume, end), (part_end, holder));
            self.starts.entry(holder).or_default().push(end);
        }
    }

    /// Nothing is claimed with this key any more.
    pub fn release(&mut self, volume: VolumeId, key: usize) {
        for start in self.starts.remove(&key).unwrap_or_default() {
            let at = (volume, start);
            if self.parts.get(&at).is_some_and(|part| part.1 == key) {
                self.parts.remove(&at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futae_policy::Prng;
    use std::collections::BTreeSet;

    #[test]
    fn equal_to_a_list_of_all_bytes() {
        const BYTES: u64 = 60;
        let mut prng = Prng::new(7);
        let mut claims = Claims::default();
        let mut plain = [[None; BYTES as usize]; 2];
        let mut volumes = HashMap::new();
        for key in 0..50_000 {
            let offset = prng.below(BYTES);
            let most = [3, 20, BYTES][prng.below(3) as usize];
            let span = Span {
                volume: VolumeId(prng.below(2) as u16),
                offset,
                length: 1 + prng.below(most.min(BYTES - offset)),
            };
            let bytes = &mut plain[usize::from(span.volume.0)];
            let bytes = &mut bytes[offset as usize..span.end() as usize];
            let before: BTreeSet<usize> = bytes.iter().flatten().copied().collect();
            assert_eq!(claims.over(&span), !before.is_empty());
            if prng.below(3) == 0 {
                let found = claims.claim(&span, key);
                assert_eq!(found, before.into_iter().collect::<Vec<_>>());
                bytes.fill(Some(key));
                volumes.insert(key, span.volume);
            } else if let Some(gone) = before.into_iter().nth(prng.below(3) as usize) {
                claims.release(volumes[&gone], gone);
                for byte in plain.iter_mut().flatten() {
                    *byte = byte.filter(|&key| key != gone);
                }
            }
        }
        for volume in (0..2).map(VolumeId) {
            volumes.iter().filter(|it| *it.1 == volume).for_each(|it| {
                claims.release(volume, *it.0);
            });
        }
        assert!(claims.parts.is_empty() && claims.starts.is_empty());
    }
}
