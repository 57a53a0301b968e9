//! What it costs to bring blocks back from their stores, and to write them out.

/// Of one store, or of several alike: microseconds a block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BlockCost {
    /// To read a block.
    pub read_micros: f64,
    /// To write one.
    pub write_micros: f64,
}

/// Of near and of far stores, as far as they are known.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StoreCosts {
    /// Of stores whose blocks have no mark of [`Class::REMOTE`](crate::Class::REMOTE).
    pub local: Option<BlockCost>,
    /// Of those whose blocks have.
    pub remote: Option<BlockCost>,
}
