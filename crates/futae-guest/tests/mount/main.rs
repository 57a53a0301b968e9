//! Real mounts. Every test says why it is skipped where FUSE or a tool is missing, and leaves
//! nothing mounted, also when it fails.

mod common;
mod contents;
mod cut;
mod ends;
mod holes;
mod listing;
mod loops;
mod refusals;
mod rings;
