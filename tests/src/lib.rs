//! End-to-end tests of the `futae` binary, and the tidy test of this source tree.
//!
//! The tests are in `tests/tests/`; this library is what they share. Everything in it panics
//! when something goes wrong, since a test is the only caller.

pub mod tidy;
