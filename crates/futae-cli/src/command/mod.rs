//! One subcommand a file: its arguments and what it does with them.

pub mod policies;
pub mod sim;
