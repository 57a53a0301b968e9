//! Evicted pages on their way to the host, with their data: by which way they go, and within which budget of
//! processor time.
//!
//! | file | holds |
//! | --- | --- |
//! | [`route`] | which way they go now |
//! | [`in_place`] | the host reads them in this machine's memory |
//! | [`channel`] | they are written to a channel disk |
//! | [`budget`] | what they may cost |
//! | [`withheld`] | those that went without their data, for the log |

pub mod budget;
pub mod channel;
pub mod in_place;
pub mod route;
pub mod withheld;

pub use route::Route;
