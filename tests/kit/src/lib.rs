//! What the tests of every crate share.
//!
//! | room | holds |
//! | --- | --- |
//! | [`need`] | what a test needs of its machine, and what it does where that is missing |
//! | [`unmount`] | unmounting, although other tests start programs |
//! | [`wait`] | waiting for a condition, the only way in which a test may wait |
//! | [`stamp`] | blocks that say which one and which version they are |
//! | [`nbd`] | NBD clients that keep the protocol |
//! | [`nbd_server`] | the handshake of an NBD server in a test |
//! | [`store`] | a store with a thread, that fails and stalls on command |
//! | [`manual_store`] | a store without one, whose operations end when the test says so |

#![forbid(unsafe_code)]

pub mod need;
pub mod stamp;
pub mod unmount;
pub mod wait;

#[cfg(feature = "cache")]
pub mod manual_store;
#[cfg(feature = "cache")]
pub mod nbd;
#[cfg(feature = "cache")]
pub mod nbd_server;
#[cfg(feature = "cache")]
pub mod store;
