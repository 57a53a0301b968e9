//! What the tests of every crate share.

#![forbid(unsafe_code)]

pub mod need;
