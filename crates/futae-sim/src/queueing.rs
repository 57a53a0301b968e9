//! How long requests take where they wait for each other: a network of queues behind the caches.
//!
//! [`LatencyModel`] says how long each place takes, as a distribution, and how many requests it works on at a time.
//! [`Network`] is the simulation of the queues by events; [`Requests::queued`](crate::run::Requests::queued) lets a
//! hierarchy drive it.

mod model;
mod network;
mod times;

pub use model::{LatencyModel, LatencyModelError, Place, Service};
pub use network::{Network, Route, Station};
pub use times::{Latencies, StationResult, Times};
