//! The environment variable `FUTAE_FUZZ_FORMAT` names what is read: a format, `any` or `columns`; `list` lists them all.

#![no_main]

use futae_fuzz::plant;
use futae_inputs::trace_readers::{Subject, run, seeds};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static SUBJECT: LazyLock<Subject> =
    LazyLock::new(|| match std::env::var("FUTAE_FUZZ_FORMAT").as_deref() {
        Ok("list") => {
            Subject::all().for_each(|(name, _)| println!("{name}"));
            std::process::exit(0);
        }
        Ok(name) => name.parse().expect("FUTAE_FUZZ_FORMAT names a format"),
        Err(_) => Subject::Any,
    });

fn begin() {
    // libFuzzer's hook ends the process at every panic, also at those that are caught, as those
    // of the Parquet library are; without it only panics that leave the target do.
    drop(std::panic::take_hook());
    plant(&seeds(*SUBJECT));
}

fuzz_target!(init: begin(), |input: &[u8]| run(*SUBJECT, input));
