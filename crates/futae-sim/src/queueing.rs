//! Latencies of requests that wait for each other: a network of queues behind the caches.
//!
//! [`LatencyModel`] has the service time of each place, as a distribution, and the number of
//! requests it serves at a time. [`Network`] is the event-driven simulation of the queues;
//! [`Requests::queued`](crate::run::Requests::queued) lets a hierarchy drive it.

mod model;
mod network;
mod times;

pub use model::{LatencyModel, LatencyModelError, Place, Service};
pub use network::{Network, Route, Station};
pub(crate) use times::Collected;
pub use times::{Latencies, StationResult, Times};
