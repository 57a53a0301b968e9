//! What the fuzz targets do with an input: each module is a target, and panics if an input shows a defect. libFuzzer
//! looks for inputs (`fuzz/`), and a test runs those that are saved.

pub mod certificate_names;
pub mod compressed;
pub mod hostile_client;
pub mod hostile_frames;
pub mod hostile_guest;
pub mod hostile_server;
pub mod nbd_codec;
pub mod report_frames;
pub mod ring_reader;
pub mod trace_readers;

#[path = "../../../crates/futae-host/tests/common/mod.rs"]
mod common;
mod formats;
mod hostile;
mod seeds;
