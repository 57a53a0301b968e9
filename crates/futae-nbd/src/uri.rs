//! NBD addresses: `nbd://host:port/export` and `nbd+unix:///export?socket=PATH`; with TLS `nbds` and `nbds+unix`.

use std::ffi::OsString;
use std::fmt::{self, Display, Formatter, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::str::FromStr;

use crate::constants::{DEFAULT_PORT, MAX_STRING_BYTES};
use crate::error::WireError;

/// How to reach a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Transport {
    /// A unix socket, named by its path.
    Unix {
        /// The socket's path, as it stands: relative to the working directory if not absolute.
        socket: PathBuf,
    },
    /// TCP.
    Tcp {
        /// Name or address; an IPv6 address without brackets.
        host: String,
        /// Port; 10809 if the address has none.
        port: u16,
    },
}

/// What a client says of TLS: the parameters of libnbd's addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct ClientTls {
    /// `tls-certificates=`: a directory with `ca-cert.pem`, and with `client-cert.pem` and `client-key.pem` for a server that asks
    /// for a certificate.
    pub certificates: Option<PathBuf>,
    /// `tls-hostname=`: the name that the server's certificate must have, where it is not the host's.
    pub hostname: Option<String>,
}

/// A server and the name of an export on it. `Display` gives an address that parses to the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NbdUri {
    /// Where the server is.
    pub transport: Transport,
    /// If the connection goes over TLS, how.
    pub tls: Option<ClientTls>,
    /// The export's name; empty for the default export.
    pub export: String,
}

impl FromStr for NbdUri {
    type Err = WireError;

    /// Understands the schemes `nbd`, `nbd+tcp` (the same) and `nbd+unix`, and with TLS `nbds`, `nbds+tcp` and `nbds+unix`.
    ///
    /// # Errors
    ///
    /// [`WireError::BadUri`] says what is wrong, unknown parameters included.
    fn from_str(uri: &str) -> Result<Self, WireError> {
        parse(uri).map_err(|problem| {
            let uri = uri.chars().take(300).collect();
            WireError::BadUri { uri, problem }
        })
    }
}

fn parse(uri: &str) -> Result<NbdUri, String> {
    let (scheme, rest) = uri
        .split_once("://")
        .ok_or("not an NBD address; write nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH")?;
    if rest.contains('#') {
        return Err("an NBD address has no #fragment; write # in a name as %23".into());
    }
    let (rest, query) = match rest.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (rest, None),
    };
    let (authority, path) = match rest.split_once('/') {
        Some((authority, path)) => (authority, path),
        None => (rest, ""),
    };
    let export = export_name(path)?;
    let Parameters { socket, tls: said } = query.map_or(Ok(Parameters::default()), parameters)?;
    let scheme = scheme.to_ascii_lowercase();
    let (family, carrier) = scheme.split_once('+').unwrap_or((&scheme, "tcp"));
    let is_tls = family == "nbds";
    if !is_tls && said != ClientTls::default() {
        return Err("tls-certificates= and tls-hostname= belong to nbds and nbds+unix".into());
    }
    let carrier = if is_tls || family == "nbd" {
        carrier
    } else {
        ""
    };
    let transport = match carrier {
        "tcp" => {
            if socket.is_some() {
                return Err("socket= belongs to the nbd+unix scheme".into());
            }
            tcp(authority)?
        }
        "unix" => {
            if !authority.is_empty() {
                return Err(
                    "a unix socket has no host; write nbd+unix:/// with three slashes".into(),
                );
            }
            let socket = socket.ok_or("the socket is missing; add ?socket=PATH")?;
            Transport::Unix { socket }
        }
        _ => {
            return Err(format!(
                "unknown scheme {scheme:?}; use nbd or nbd+unix, or with TLS nbds or nbds+unix"
            ));
        }
    };
    Ok(NbdUri {
        transport,
        tls: is_tls.then_some(said),
        export,
    })
}

fn export_name(path: &str) -> Result<String, String> {
    let export = String::from_utf8(unescape(path)?)
        .map_err(|_| "the export's name is not UTF-8".to_string())?;
    if export.contains('\0') {
        return Err("the export's name contains NUL".into());
    }
    if export.len() > MAX_STRING_BYTES {
        return Err("the export's name is longer than 4096 bytes".into());
    }
    Ok(export)
}

/// What stands behind the question mark.
#[derive(Default)]
struct Parameters {
    socket: Option<PathBuf>,
    tls: ClientTls,
}

fn parameters(query: &str) -> Result<Parameters, String> {
    let mut found = Parameters::default();
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let value = unescape(value)?;
        let is_path = !value.is_empty() && !value.contains(&0);
        let path = PathBuf::from(OsString::from_vec(value.clone()));
        let is_second = match key {
            "socket" if !is_path => {
                return Err("socket= must name a path (abstract sockets are not supported)".into());
            }
            "tls-certificates" if !is_path => {
                return Err("tls-certificates= must name a directory".into());
            }
            "socket" => found.socket.replace(path).is_some(),
            "tls-certificates" => found.tls.certificates.replace(path).is_some(),
            "tls-hostname" => {
                let name = String::from_utf8(value)
                    .ok()
                    .filter(|name| !name.is_empty());
                let name = name.ok_or("tls-hostname= must be a name")?;
                found.tls.hostname.replace(name).is_some()
            }
            _ => {
                return Err(format!(
                    "unknown parameter {key:?}; socket=, tls-certificates= and tls-hostname= are understood"
                ));
            }
        };
        if is_second {
            return Err(format!("{key}= is given twice"));
        }
    }
    Ok(found)
}

fn tcp(authority: &str) -> Result<Transport, String> {
    if authority.contains('@') {
        return Err(
            "a user name is only for TLS with pre-shared keys, which futae does not know".into(),
        );
    }
    let (host, port) = if let Some(bracketed) = authority.strip_prefix('[') {
        let (host, rest) = bracketed
            .split_once(']')
            .ok_or("the IPv6 address has no closing ]")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("{host:?} is not an IPv6 address"));
        }
        match rest.strip_prefix(':') {
            Some(port) => (host.to_string(), Some(port)),
            None if rest.is_empty() => (host.to_string(), None),
            None => return Err("only :PORT may follow the IPv6 address".into()),
        }
    } else {
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        if port.is_some_and(|port| port.contains(':')) {
            return Err("write an IPv6 address in brackets, as in nbd://[::1]/".into());
        }
        let host = String::from_utf8(unescape(host)?).map_err(|_| "the host is not UTF-8")?;
        if host
            .chars()
            .any(|c| c.is_control() || c.is_whitespace() || "/[]:@".contains(c))
        {
            return Err(format!("{host:?} is not a host name"));
        }
        (host, port)
    };
    if host.is_empty() {
        return Err("the host is missing; write nbd://HOST/EXPORT".into());
    }
    let port = match port {
        None | Some("") => DEFAULT_PORT,
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => port
            .parse()
            .map_err(|_| format!("{port:?} is not a port from 0 to 65535"))?,
        Some(port) => return Err(format!("{port:?} is not a port from 0 to 65535")),
    };
    Ok(Transport::Tcp { host, port })
}

/// Resolves `%41` to `A`.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'%' {
            plain.push(byte);
            continue;
        }
        let digits = after
            .split_first_chunk::<2>()
            .and_then(|([high, low], after)| {
                rest = after;
                let digit = |byte: u8| char::from(byte).to_digit(16);
                u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
            });
        plain.push(digits.ok_or("% must be followed by two hexadecimal digits; write % as %25")?);
    }
    Ok(plain)
}

/// Writes bytes so that [`unescape`] gives them back in a path or a parameter.
fn escape(bytes: &[u8], f: &mut Formatter<'_>) -> fmt::Result {
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                f.write_char(char::from(byte))?;
            }
            _ => write!(f, "%{byte:02X}")?,
        }
    }
    Ok(())
}

impl Display for NbdUri {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(if self.tls.is_some() { "nbds" } else { "nbd" })?;
        let mut mark = '?';
        match &self.transport {
            Transport::Unix { socket } => {
                f.write_str("+unix:///")?;
                escape(self.export.as_bytes(), f)?;
                f.write_str("?socket=")?;
                mark = '&';
                escape(socket.as_os_str().as_bytes(), f)?;
            }
            Transport::Tcp { host, port } => {
                f.write_str("://")?;
                if host.contains(':') {
                    write!(f, "[{host}]")?;
                } else {
                    escape(host.as_bytes(), f)?;
                }
                if *port != DEFAULT_PORT {
                    write!(f, ":{port}")?;
                }
                f.write_char('/')?;
                escape(self.export.as_bytes(), f)?;
            }
        }
        let Some(tls) = &self.tls else { return Ok(()) };
        let certificates = tls.certificates.as_ref();
        let certificates = certificates.map(|path| path.as_os_str().as_bytes());
        let hostname = tls.hostname.as_ref().map(String::as_bytes);
        for (key, value) in [
            ("tls-certificates", certificates),
            ("tls-hostname", hostname),
        ] {
            let Some(value) = value else { continue };
            write!(f, "{mark}{key}=")?;
            mark = '&';
            escape(value, f)?;
        }
        Ok(())
    }
}
