//! Why there is no connection.

/// Why a server could not be reached or does not serve the export.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{uri}: {problem}")]
pub struct ConnectError {
    /// The address.
    pub uri: String,
    /// What is wrong.
    pub problem: String,
}

impl ConnectError {
    pub(crate) fn new(uri: impl ToString, problem: String) -> Self {
        let uri = uri.to_string();
        Self { uri, problem }
    }
}
