//! What went wrong with a store, and the way out.

use object_store::{Error, ObjectStoreScheme};
use std::io::{self, ErrorKind};

/// Where virtual machines of clouds ask for credentials: asked only where no others are named.
const OF_MACHINES: [&str; 2] = ["169.254.169.254", "metadata.google.internal"];

/// A URL that cannot be used.
pub fn invalid(message: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, message.into())
}

/// An error of a store.
pub fn of_store(error: &Error, scheme: &ObjectStoreScheme) -> io::Error {
    let said = innermost(error);
    let text = error.to_string();
    let (kind, message) = match error {
        Error::NotFound { .. } => {
            let what = match scheme {
                ObjectStoreScheme::Http => "the server has no such file; check the path",
                _ => "there is no such object; check the bucket and the key",
            };
            (ErrorKind::NotFound, format!("{what} ({said})"))
        }
        Error::Unauthenticated { .. } | Error::PermissionDenied { .. } => {
            let message = format!("the store refuses access; {} ({said})", credentials(scheme));
            (ErrorKind::PermissionDenied, message)
        }
        _ if OF_MACHINES
            .iter()
            .any(|of_machines| text.contains(of_machines)) =>
        {
            let message = format!("there are no credentials; {}", credentials(scheme));
            (ErrorKind::PermissionDenied, message)
        }
        Error::NotSupported { .. } => (
            ErrorKind::Unsupported,
            format!("the server does not send ranges of a file; download it first ({said})"),
        ),
        // What a connection died of is often only in the last of its causes.
        _ if text.contains(&said) => (ErrorKind::Other, text),
        _ => (ErrorKind::Other, format!("{} ({said})", text.trim_end())),
    };
    io::Error::new(kind, message)
}

/// How credentials are given.
fn credentials(scheme: &ObjectStoreScheme) -> &'static str {
    match scheme {
        ObjectStoreScheme::AmazonS3 => {
            "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_SKIP_SIGNATURE=true for public data"
        }
        ObjectStoreScheme::GoogleCloudStorage => {
            "set GOOGLE_SERVICE_ACCOUNT to the path of a key, or GOOGLE_SKIP_SIGNATURE=true for public data"
        }
        ObjectStoreScheme::MicrosoftAzure => {
            "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or AZURE_SKIP_SIGNATURE=true for public data"
        }
        _ => "it may need a login, which futae cannot give; download it first",
    }
}

/// The last of an error's causes, in one line.
fn innermost(error: &Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let text = last.to_string();
    let words: Vec<_> = text.split_whitespace().collect();
    // The body of a reply follows the colon, if it has one.
    words.join(" ").trim_end_matches(':').to_owned()
}
