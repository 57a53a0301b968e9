//! A reader and writer of real paths: chosen at random, timed, and checked if that is asked for.
//!
//! | file | holds |
//! | --- | --- |
//! | `plan` | what is asked for, and where on which file each operation goes |
//! | `files` | the files: found, made, opened |
//! | `map` | files read as memory |
//! | `pace` | readers that are no faster than they are told |
//! | `stamp` | what is written, so that a wrong read is known |
//! | `work` | the threads |
//! | `report` | what came of it |

mod files;
mod map;
mod pace;
mod plan;
mod report;
mod stamp;
mod work;

pub use files::Files;
pub use pace::Pace;
pub use plan::{LoadPlan, Until, choice};
pub use work::work;
