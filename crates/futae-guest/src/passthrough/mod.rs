//! A directory tree as it is, with the data of its regular files in the cache.
//!
//! | file | holds |
//! | --- | --- |
//! | `filesystem.rs`, `front.rs` | requests of the kernel, and their answers |
//! | `direct.rs` | reads and writes among them, which may come another way |
//! | `names.rs`, `attributes.rs`, `directories.rs`, `data.rs` | what they come to |
//! | `state.rs` | all that is known of a tree |
//! | `node.rs` | the files that the kernel knows of |
//! | `cached.rs` | the files that the cache has blocks of |
//! | `contents.rs`, `lower.rs`, `seen.rs` | the data of a file: a volume of the engine, its store, and what tells our changes of it from others |
//! | `priority.rs` | which files are protected |
//! | `descriptors.rs` | how many files users may have open |
//! | `place.rs`, `errno.rs`, `lock.rs` | descriptors of files, names of failures, locks |
//! | `weight.rs` | what all this takes of the cache's memory |

mod attributes;
mod cached;
mod caller;
mod contents;
mod data;
mod descriptors;
mod direct;
mod directories;
mod errno;
mod filesystem;
mod front;
mod lock;
mod log;
mod lower;
mod mount;
mod names;
mod node;
mod place;
mod priority;
mod seen;
mod stat;
mod state;
mod weight;

pub use attributes::control_attribute;
pub use mount::{PageCacheUse, TreeHandle, TreeMount, TreeOptions};
