//! The name that a client gives, kept with its connection.

use openssl::error::ErrorStack;
use openssl::ex_data::Index;
use openssl::ssl::Ssl;
use std::sync::OnceLock;

/// The name by which a client says it is known.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) name: String,
    /// Whether there is a key of this name.
    pub(super) is_known: bool,
}

/// Where a connection has its claim; one place for all of a process.
pub(super) fn claims() -> Result<Index<Ssl, Claim>, ErrorStack> {
    static PLACE: OnceLock<Index<Ssl, Claim>> = OnceLock::new();
    if let Some(place) = PLACE.get() {
        return Ok(*place);
    }
    let place = Ssl::new_ex_index()?;
    Ok(*PLACE.get_or_init(|| place))
}
