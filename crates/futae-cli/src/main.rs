//! The futae command line.
fn main() {}
