//! What it costs to bring blocks back from their stores, and to write them out.

/// Of one store, or of several alike: microseconds a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockCost {
    /// To read a block.
    pub read_micros: f64,
    /// To write one.
    pub write_micros: f64,
}

/// What stores cost, by their class, as far as it is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreCosts(Vec<Option<BlockCost>>);

impl StoreCosts {
    /// Of the stores of a class, by its number ([`Class::store`](crate::Class::store)).
    #[must_use]
    pub fn of(&self, store: usize) -> Option<BlockCost> {
        self.0.get(store).copied().flatten()
    }
}

impl FromIterator<Option<BlockCost>> for StoreCosts {
    /// From the costs of each class, in the order of their numbers.
    fn from_iter<I: IntoIterator<Item = Option<BlockCost>>>(costs: I) -> Self {
        Self(costs.into_iter().collect())
    }
}
