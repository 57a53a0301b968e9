//! The features that a mount negotiates with the kernel.

use fuser::{InitFlags, KernelConfig};

/// Background requests (read-ahead, asynchronous I/O) that the kernel may have in flight.
const BACKGROUND_REQUESTS: u16 = 256;

/// The transport of requests and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Through `/dev/fuse`.
    Device,
    /// By FUSE over io_uring, a ring for each processor.
    Ring,
}

impl Transport {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Ring => "ring",
        }
    }
}

/// The features negotiated when the mount was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// Version of the kernel's FUSE protocol.
    pub protocol: (u32, u32),
    /// The longest read or write that this kernel sends, in bytes.
    pub request_bytes: u32,
    /// The longest read-ahead, in bytes.
    pub readahead_bytes: u32,
    /// The largest number of background requests in flight.
    pub background_requests: u16,
    /// The transport of requests.
    pub transport: Transport,
    /// Whether a file opened past the page cache can be mapped shared (since Linux 6.6).
    pub shared_mmap: bool,
}

impl Negotiated {
    /// Requests useful features: requests of up to `request_bytes`, and those in `wanted` that the
    /// kernel supports. If the kernel has a lower limit, that limit applies.
    pub(crate) fn agree(
        config: &mut KernelConfig,
        request_bytes: u32,
        wanted: &[InitFlags],
        wants_ring: bool,
    ) -> Self {
        if let Err(nearest) = config.set_max_write(request_bytes) {
            let _ = config.set_max_write(nearest);
        }
        let mut readahead_bytes = request_bytes;
        if let Err(nearest) = config.set_max_readahead(request_bytes) {
            readahead_bytes = nearest;
            let _ = config.set_max_readahead(nearest);
        }
        let _ = config.set_max_background(BACKGROUND_REQUESTS);
        for &capability in wanted {
            let _ = config.add_capabilities(capability);
        }
        let shared_mmap = config
            .add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
            .is_ok();
        // Once this is negotiated, no request is answered until the rings exist.
        let has_ring = wants_ring
            && config
                .add_capabilities(InitFlags::FUSE_OVER_IO_URING)
                .is_ok();
        let abi = config.kernel_abi();
        Self {
            protocol: (abi.0, abi.1),
            request_bytes,
            readahead_bytes,
            background_requests: BACKGROUND_REQUESTS,
            transport: if has_ring {
                Transport::Ring
            } else {
                Transport::Device
            },
            shared_mmap,
        }
    }
}
