//! How fast futae is: its server beside other block servers, in one run and in turns, and its
//! simulator.
//!
//! | room | holds |
//! | --- | --- |
//! | [`client`] | an NBD client that keeps many requests under way and is not the limit |
//! | [`load`] | what is asked for, over one connection or several, and how fast it came |
//! | [`histogram`] | latencies in fixed memory |
//! | [`pattern`] | what benchmark images hold, so that every byte can be checked |
//! | [`servers`] | the servers to compare, and how they are started |
//! | [`process`] | children that never outlive the benchmark |
//! | [`floor`] | a server with no cache and no store: what the socket alone allows |
//! | [`evictions`] | what the agent costs a machine that evicts |
//! | [`isolation`] | attacks, and what an honest client sees of them |
//! | [`rounds`] | all servers in turns |
//! | [`mounts`] | a cached file through mounts, and as it is |
//! | [`speeds`] | the simulator's requests per second |
//! | [`report`] | medians and ratios, as text, markdown and JSON |

#![forbid(unsafe_code)]

pub mod client;
pub mod evictions;
pub mod floor;
pub mod histogram;
pub mod isolation;
pub mod load;
pub mod mounts;
pub mod pattern;
pub mod process;
pub mod report;
pub mod ring;
pub mod rounds;
pub mod servers;
pub mod speeds;
