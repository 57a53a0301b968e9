//! The loop that keeps guests at the sizes that the allocator decides.

mod at_once;
mod finish;
mod follow;
mod guest;
mod kept;
mod period;
mod state;

pub use period::Report;
pub use state::Controller;
