//! Who of several guests gets how much memory.
//!
//! An [`Allocator`] is told once a period what each guest has and what its page cache did, and
//! says how large each guest shall be and why ([`Decision`]). Two evaluators can be asked:
//!
//! * [`paper`]: Aoki and Shiba's, a fixed step from the guest with the higher
//!   e = (hits − misses) ÷ memory to the one with the lower;
//! * [`mrc`]: every guest's miss-ratio curve, kept online ([`OnlineCurve`]), and the division with
//!   the least total access time.
//!
//! [`replay`] has an allocator decide on recorded periods, and says what that would have been worth.
//!
//! Whatever an evaluator wishes goes through [`Bounds`]: no guest below its minimum or above its
//! maximum, never more than the total or what the host has free, and nothing is given away before
//! it has been got back. So a guest that lies can gain its own maximum at most, and cost another
//! what that one has above its minimum.
//!
//! Nothing here does I/O or looks at a clock; sizes are in bytes.

#![forbid(unsafe_code)]

mod allocator;
mod bounds;
mod curve;
mod decision;
mod guest;
mod host;
pub mod mrc;
pub mod paper;
pub mod replay;

pub use allocator::{Allocator, Evaluator, Settings};
pub use bounds::{Bounds, SettingsError};
pub use curve::{OnlineCurve, SAMPLES_MAX};
pub use decision::{Decision, GuestState, Reason};
pub use guest::{Activity, GuestLimits, Observation};
pub use host::{Cause, Given, Host, HostSettings, IDLE_PAGES_A_SECOND};
