//! Volumes that come, go, grow and are cut: the files of a tree.

#[path = "../common/mod.rs"]
mod common;
mod files;
mod lower;
mod write_back;
