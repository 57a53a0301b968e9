//! A directory tree, shown unchanged, with the data of its regular files in the cache.
//!
//! | file | content |
//! | --- | --- |
//! | `filesystem.rs`, `front.rs` | requests of the kernel, and their answers |
//! | `direct.rs` | reads and writes, which may also come by a ring |
//! | `names.rs`, `attributes.rs`, `directories.rs`, `data.rs` | the operations behind the requests |
//! | `appends.rs` | where the data of appends goes |
//! | `access.rs` | for what a file is opened |
//! | `state.rs` | the state of a tree |
//! | `node.rs`, `numbers.rs`, `way.rs` | the files that the kernel knows, their inode numbers, and how they are found again |
//! | `cached.rs` | the files whose blocks the cache holds |
//! | `kept_open.rs`, `kept_handle.rs` | closing, and files that stay open since their dirty data cannot be written |
//! | `contents.rs`, `lower.rs`, `seen.rs` | the data of a file: a volume of the engine, its store, and the detection of changes by other programs |
//! | `priority.rs` | which files are protected |
//! | `deleted.rs` | giving up files that were deleted in the source directory |
//! | `descriptors.rs` | how many files users may have open |
//! | `place.rs`, `errno.rs`, `lock.rs` | descriptors of files, translation of errors, locks |
//! | `warm.rs` | the blocks of an earlier mount |
//! | `weight.rs` | the memory that these tables take from the cache |

mod access;
mod appends;
mod attributes;
mod cached;
mod caller;
mod contents;
mod data;
mod deleted;
mod descriptors;
mod direct;
mod directories;
mod errno;
mod filesystem;
mod front;
mod kept_handle;
mod kept_open;
mod log;
mod lower;
mod mount;
mod names;
mod node;
mod node_table;
mod nodes;
mod numbers;
mod place;
mod priority;
mod seen;
mod stat;
mod state;
mod warm;
mod way;
mod weight;

pub use attributes::control_attribute;
pub use mount::{PageCacheUse, TreeHandle, TreeMount, TreeOptions};
pub use warm::Recalled;
pub use weight::FileTable;
