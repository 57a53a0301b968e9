//! End-to-end tests and their helpers.
