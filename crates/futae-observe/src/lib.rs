//! What running caches do, over HTTP: OpenMetrics text for programs, and a page for people.
//!
//! | room | holds |
//! | --- | --- |
//! | `snapshot` | a server or a mount at one moment |
//! | `metric` | what a metric is: its name, kind, help and value |
//! | `of_program`, `of_cache` | every metric of programs, servers and agents; of caches and exports |
//! | `metrics` | a snapshot as OpenMetrics text; the reference of all names |
//! | `curves` | hit ratios by the size of a cache, kept while it runs |
//! | `forecast` | what was forecast of a cache, and what came |
//! | `history` | hits and requests of the last quarter of an hour |
//! | `page` | a snapshot and the history as HTML |
//! | `moves` | what a balancer of memory did, for its page |
//! | `watch` | looks at the caches for both |
//! | `http` | a server of GET requests with bounds |
//! | `request` | one request, read and judged |
//! | `reply` | one answer, written |

mod curves;
mod forecast;
mod history;
mod http;
mod metric;
mod metrics;
mod moves;
mod of_cache;
mod of_program;
mod page;
mod reply;
mod request;
mod snapshot;
mod watch;

pub use forecast::ForecastShown;
pub use http::{Http, HttpError, Routes};
pub use metrics::{CONTENT_TYPE, metrics, reference};
pub use moves::{Moves, Period};
pub use reply::Reply;
pub use snapshot::{Level, Snapshot};
pub use watch::{Eye, Watch};
