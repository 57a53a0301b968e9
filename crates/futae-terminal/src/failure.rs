//! How a command fails: wrong usage exits with 2, anything else with 1.

use std::fmt;
use std::process::ExitCode;

/// Why a command did not do what was asked.
pub enum Failure {
    /// The arguments cannot be meant: nothing was started.
    Usage(String),
    /// It was tried and failed.
    Failed(anyhow::Error),
}

impl Failure {
    /// Wrong usage, in a sentence that says what and what to do.
    pub fn usage(message: impl fmt::Display) -> Self {
        Self::Usage(message.to_string())
    }

    /// The exit status for the shell.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Usage(_) => ExitCode::from(2),
            Self::Failed(_) => ExitCode::from(1),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) => f.write_str(message),
            Self::Failed(error) => write!(f, "{error:#}"),
        }
    }
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}
