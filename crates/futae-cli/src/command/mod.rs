//! One subcommand a file: its arguments and what it does with them.

pub mod advise;
pub mod agent;
pub mod balance;
pub mod check;
mod container;
pub mod demo;
pub mod export;
mod file_lock;
mod forecast;
pub mod load;
pub mod locality;
#[cfg(feature = "manual")]
mod manual;
pub mod mount;
pub mod mrc;
mod names;
mod observe_args;
mod otlp;
pub mod paper;
pub mod plot;
pub mod policies;
pub mod policy;
pub mod protect;
pub mod record;
pub mod reference;
pub mod serve;
pub mod sim;
mod source_args;
mod state;
pub mod sweep;
pub mod top;
pub mod trace;
mod trace_args;
pub mod truth;
pub mod verify;
mod volumes;
mod write_args;
