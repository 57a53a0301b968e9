//! Addresses to listen on.

use crate::HostError;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// An address on which a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `unix:PATH`: a socket at a path. If the path is a directory, the socket has a default name
    /// in it.
    Unix(PathBuf),
    /// `vhost-user:PATH`: a socket at a path, to which the frontends of virtual machines' disks
    /// connect. If the path is a directory, the socket has a default name in it.
    VhostUser(PathBuf),
    /// `tcp:HOST:PORT`: a name or an address, and a port.
    Tcp {
        /// The host, an IPv6 address without its brackets.
        host: String,
        /// The port; 0 lets the system choose.
        port: u16,
    },
}

impl FromStr for Listen {
    type Err = HostError;

    fn from_str(text: &str) -> Result<Self, HostError> {
        let wrong = |problem| {
            Err(HostError::Address {
                text: text.to_owned(),
                problem,
            })
        };
        let bad = |problem: &'static str| wrong(problem.into());
        if let Some(path) = text.strip_prefix("unix:") {
            if path.is_empty() {
                return bad("the path is missing");
            }
            return Ok(Self::Unix(path.into()));
        }
        if let Some(path) = text.strip_prefix("vhost-user:") {
            if path.is_empty() {
                return bad("the path is missing");
            }
            return Ok(Self::VhostUser(path.into()));
        }
        let Some(address) = text.strip_prefix("tcp:") else {
            return match kind_of(text) {
                Some(kind) => wrong(format!("its kind is missing ({kind}:{text})").into()),
                None => bad("not an address"),
            };
        };
        let Some((host, port)) = address.rsplit_once(':') else {
            return bad("the port is missing");
        };
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        match port.parse() {
            _ if host.is_empty() => bad("the host is missing"),
            Ok(port) => Ok(Self::Tcp {
                host: host.to_owned(),
                port,
            }),
            Err(_) => bad("the port is not a number from 0 to 65535"),
        }
    }
}

/// The kind that an address without one has, if it looks like one.
fn kind_of(text: &str) -> Option<&'static str> {
    if text.starts_with(['/', '.']) {
        return Some("unix");
    }
    let (host, port) = text.rsplit_once(':')?;
    (!host.is_empty() && port.parse::<u16>().is_ok()).then_some("tcp")
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::VhostUser(path) => write!(f, "vhost-user:{}", path.display()),
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp:[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp:{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in [
            "unix:/run/futae.sock",
            "vhost-user:/v",
            "tcp:localhost:10809",
            "tcp:[::1]:0",
        ] {
            assert_eq!(text.parse::<Listen>().expect("valid").to_string(), text);
        }
        for text in [
            "",
            "unix:",
            "vhost-user:",
            "tcp:",
            "tcp:host",
            "tcp::1",
            "tcp:host:65536",
            "/run/x",
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text:?}");
        }
    }
}
