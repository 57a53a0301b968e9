//! Memory moved between running guests.
//!
//! [`futae_allocate`] decides; here are the hands and ears: a configuration ([`Config`]), what agents
//! report ([`feed`]), what makes a guest larger or smaller ([`actuator`]), and the loop that joins
//! them ([`Controller`]). What guests did can be recorded ([`samples`]), and decided on later without them ([`Adviser`]). Whatever a guest, its agent or its hypervisor does, or does not, costs no more
//! than a time limit.

#![forbid(unsafe_code)]

pub mod actuator;
mod advise;
pub mod config;
mod controller;
pub mod feed;
mod hints;
mod libvirt;
mod line;
mod pressure;
pub mod samples;

pub use advise::{Advice, Adviser};
pub use config::{Config, ConfigError};
pub use controller::{Controller, Report};
pub use libvirt::LibvirtConfig;
