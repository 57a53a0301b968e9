//! The costs of reading blocks from their stores and of writing them.

/// Costs of one store, or of several similar ones, in microseconds per block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockCost {
    /// To read a block.
    pub read_micros: f64,
    /// To write one.
    pub write_micros: f64,
}

/// The known costs of stores, by class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StoreCosts(Vec<Option<BlockCost>>);

impl StoreCosts {
    /// The costs of the stores of a class, by its number ([`Class::store`](crate::Class::store)).
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
