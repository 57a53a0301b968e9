#![no_main]

use futae_inputs::report_frames::run;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| run(input));
