//! `--config FILE`: options of a command as TOML. A file comes to the words of a command line, so that every option means
//! the same in both places and is checked once.

mod file;
mod include;
mod values;

pub use file::ConfigFile;
