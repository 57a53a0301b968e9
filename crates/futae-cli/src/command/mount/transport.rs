//! How requests come from the kernel.

use futae_guest::TransportChoice;

/// `--transport`.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Transport {
    Auto,
    Device,
    Ring,
}

impl From<Transport> for TransportChoice {
    fn from(chosen: Transport) -> Self {
        match chosen {
            Transport::Auto => Self::Auto,
            Transport::Device => Self::Device,
            Transport::Ring => Self::Ring,
        }
    }
}
