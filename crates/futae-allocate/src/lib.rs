//! Memory moved between running guests.
//!
//! [`futae_balance`] decides; here are the hands and ears: a configuration ([`Config`]), what agents
//! report ([`feed`]), what makes a guest larger or smaller ([`actuator`]), and the loop that joins
//! them ([`Keeper`]). Whatever a guest, its agent or its hypervisor does, or does not, costs no more
//! than a time limit.

#![forbid(unsafe_code)]

pub mod actuator;
pub mod config;
pub mod feed;
mod hints;
mod keeper;
mod line;

pub use config::{Config, ConfigError};
pub use keeper::{Keeper, Report};
