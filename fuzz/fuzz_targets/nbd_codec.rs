#![no_main]

use futae_inputs::nbd_codec::run;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| run(input));
