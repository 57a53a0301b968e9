//! What futae's programs show on a terminal, and how they fail. The `futae` binary and the
//! laboratory's share it.
//!
//! | module | holds |
//! | --- | --- |
//! | [`failure`] | errors with their exit statuses |
//! | [`manual`] | the commands of a program as a page of Markdown |
//! | [`output`] | standard output, whose reader may leave |
//! | [`progress`] | a progress bar |
//! | [`table`] | plain tables, percentages, counts |
//! | [`text_file`] | text files that a user names |

#![forbid(unsafe_code)]

pub mod failure;
pub mod manual;
pub mod output;
pub mod progress;
pub mod table;
pub mod text_file;
