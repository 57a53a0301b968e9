#![no_main]

use futae_fuzz::plant;
use futae_inputs::hostile_guest::{run, seeds};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: plant(&seeds()), |input: &[u8]| run(input));
