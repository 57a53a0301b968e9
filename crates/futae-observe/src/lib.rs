//! What running caches do, over HTTP: OpenMetrics text for programs.
//!
//! | room | holds |
//! | --- | --- |
//! | `snapshot` | a server or a mount at one moment |
//! | `names` | every metric: its name, kind, unit, help and value |
//! | `metrics` | a snapshot as OpenMetrics text; the reference of all names |
//! | `http` | a server of GET requests with bounds |
//! | `request` | one request, read and judged |

mod http;
mod metrics;
mod names;
mod request;
mod snapshot;

pub use http::{Http, HttpError, Reply, Routes};
pub use metrics::{CONTENT_TYPE, metrics, reference};
pub use snapshot::{Level, Snapshot};
