//! Bytes of a client that nobody has read yet.

/// What has been received of requests that have not been carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Unread {
    /// Bytes of requests, from the beginning of one, behind those to be skipped.
    pub(crate) bytes: Vec<u8>,
    /// Bytes to come before them that belong to a request that was refused.
    pub(crate) skip_bytes: usize,
}
