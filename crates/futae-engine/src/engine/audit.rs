//! Consistency checks, for tests.

use super::frames::Frame;
use super::state::State;

impl State {
    /// Panics unless the level, the frames and the work under way are consistent. For tests.
    pub fn audit(&self) {
        self.level.audit();
        self.audit_dirty();
        self.audit_kept();
        self.audit_line();
        for (key, flight) in &self.under_way.flights {
            for (block, slot) in &flight.targets {
                assert_eq!(
                    self.level.find(*block),
                    Some(*slot),
                    "a target lost its slot"
                );
                assert_eq!(
                    self.frames.get(*slot),
                    Frame::awaits(key),
                    "a target not awaited"
                );
            }
        }
        let loading = self
            .level
            .order()
            .into_iter()
            .filter_map(|block| self.level.find(block))
            .filter(|&slot| self.frames.get(slot) == Frame::Loading)
            .count();
        assert_eq!(
            loading as u64,
            self.frames.loading(),
            "loading frames are miscounted"
        );
        let of_volumes = self.volumes.iter().map(|volume| volume.held_above_blocks);
        let of_slots = self.level.order().into_iter().filter(|&block| {
            let slot = self.level.find(block);
            slot.is_some_and(|slot| self.frames.is_held_above(slot))
        });
        assert_eq!(
            of_volumes.sum::<u64>(),
            of_slots.count() as u64,
            "blocks that are held above are miscounted"
        );
        let noted = self.volumes.iter().map(|volume| volume.residents.count());
        assert_eq!(
            noted.sum::<u64>(),
            u64::from(self.level.resident()),
            "residents are miscounted"
        );
        for block in self.level.order() {
            let volume = &self.volumes[usize::from(block.volume().0)];
            let index = block.index();
            assert_eq!(volume.residents.within(index..index + 1, 1), [index]);
            assert!(
                index < volume.size_bytes.div_ceil(self.block_bytes),
                "block {block:?} is beyond the end of its volume"
            );
            let slot = self.level.find(block).expect("ordered blocks are resident");
            match self.frames.get(slot) {
                Frame::Ready | Frame::Loading | Frame::Kept => {}
                Frame::Awaits(key) => {
                    let targets = &self.under_way.flights[key as usize].targets;
                    assert!(
                        targets.contains(&(block, slot)),
                        "awaits a flight that forgot it"
                    );
                }
                Frame::AwaitsWrite => {
                    let span = self.block_span(block);
                    assert!(
                        self.under_way.write_over(&span).is_some(),
                        "awaits a write that is over"
                    );
                }
            }
        }
        for (block, key) in &self.under_way.flight_of {
            assert!(
                self.under_way.flights.contains(*key),
                "block {block:?} waits for a flight that is over"
            );
        }
    }

    /// Each request that waits is woken by something that is still to come.
    fn audit_line(&self) {
        let throttled = self.volumes.iter().flat_map(|it| &it.dirt.throttled);
        let throttled: Vec<_> = throttled.filter_map(|it| it.place).collect();
        let is_under_way = |awaited| self.under_way.has(awaited);
        self.under_way.line.audit(is_under_way, &throttled);
    }
}
