//! Hierarchies for the inner loop of a simulation, fed in batches. In common shapes, a level is
//! called for many requests together.

use crate::batch::Batch;
use crate::hierarchy::{Hierarchy, HierarchyShape};
use crate::index::BackedIndex;
use crate::link::{Link, Reach, Store};
use crate::write_back::{WriteMode, Written};
use futae_policy::{Counters, Level, RegisteredPolicy, SpecError, Visit, visit};

mod cascade;
mod feeding;
mod interface;
mod message;
mod one_by_one;
mod tier;

pub use cascade::Cascade;
use feeding::Feeding;
use interface::sum_of;
pub use interface::{Machine, Served};
pub(crate) use one_by_one::OneByOne;

/// Builds the fastest machine for a shape.
pub fn build(shape: &HierarchyShape) -> Result<Box<dyn Machine>, SpecError> {
    shape.check();
    if shape.levels.len() == 1 && shape.write_mode == WriteMode::WriteThrough {
        build_last(shape)
    } else if Cascade::fits(shape) {
        Ok(Box::new(Cascade::build(shape)?))
    } else {
        Ok(Box::new(Hierarchy::new(shape)?))
    }
}

/// Builds the last level of a shape alone, over the store.
pub fn build_last(shape: &HierarchyShape) -> Result<Box<dyn Machine>, SpecError> {
    let last = shape.levels.len() - 1;
    let level = &shape.levels[last];
    let alone = MakeOne {
        slots: level.slots,
        blocks: u64::from(shape.guests) * shape.blocks,
        volumes: shape.volumes_of(0..shape.guests),
        guests: (shape.guests > 1).then_some(shape.blocks),
    };
    visit(&level.policy, &shape.policy_shape(0, last), alone)
}

/// One level over the store.
struct One<P> {
    reach: Reach<P, BackedIndex>,
    store: Store,
    /// Blocks per guest, if several share it.
    guests: Option<u64>,
}

struct MakeOne {
    slots: u32,
    blocks: u64,
    volumes: Vec<u64>,
    guests: Option<u64>,
}

impl Visit for MakeOne {
    type Output = Box<dyn Machine>;
    fn visit<P: RegisteredPolicy + 'static>(self, policy: P) -> Self::Output {
        let mut level = Level::new(policy, BackedIndex::new(0), self.slots);
        level.number_blocks(0);
        level.note_volumes(&self.volumes);
        Box::new(One {
            reach: Reach::new(level, 0..self.blocks),
            store: Store::default(),
            guests: self.guests,
        })
    }
}

impl<P: RegisteredPolicy> Machine for One<P> {
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]) {
        let mut feeding = Feeding {
            reach: &mut self.reach,
            link: Link::None,
            below: &mut self.store,
        };
        match self.guests {
            None => feeding.all(batch, served),
            Some(blocks) => feeding.all_of_guests(batch, blocks, served),
        }
    }
    fn counters(&self) -> Vec<Counters> {
        vec![self.reach.level.counters()]
    }
    fn remarks(&self) -> Vec<Vec<String>> {
        vec![self.reach.level.remarks().to_vec()]
    }
    fn fault(&self) -> Option<&SpecError> {
        self.reach.level.fault()
    }
    fn store(&self) -> Store {
        self.store
    }
}

impl Machine for Hierarchy {
    fn feed(&mut self, batch: &Batch<'_>, served: &mut [Served]) {
        let places = self.levels() as u32 + 1;
        for at in 0..batch.blocks.len() {
            let access = batch.access(at);
            let guest = self.guest_of(access.block.index());
            let place = guest * places + self.put(guest, &access);
            served[place as usize].count(batch.is_write(at), batch.bytes_of(at));
        }
    }

    fn counters(&self) -> Vec<Counters> {
        let levels = self.levels();
        let own = (0..levels - 1).map(|level| {
            (0..self.guests())
                .map(|guest| Self::counters(self, guest, level))
                .fold(Counters::default(), |sum, more| sum_of(&sum, &more))
        });
        own.chain([Self::counters(self, 0, levels - 1)]).collect()
    }

    fn remarks(&self) -> Vec<Vec<String>> {
        let levels = self.levels();
        let own = (0..levels - 1).map(|level| {
            let of = |guest| Self::remarks(self, guest, level).to_vec();
            (0..self.guests()).flat_map(of).collect()
        });
        let last = Self::remarks(self, 0, levels - 1).to_vec();
        own.chain([last]).collect()
    }

    fn fault(&self) -> Option<&SpecError> {
        Self::fault(self)
    }

    fn store(&self) -> Store {
        *Self::store(self)
    }

    fn written(&self) -> Option<Written> {
        Self::written(self)
    }
}
