//! One request for a page, read and judged.

use std::net::IpAddr;

/// Bytes of a request at most; there is no body.
pub(crate) const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Header fields at most.
const FIELDS_MAX: usize = 64;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// The path, without a query.
    pub(crate) path: String,
    /// Whether the body is left out of the answer.
    pub(crate) head_only: bool,
}

/// Why a request is not answered with a page: a status and a sentence.
pub(crate) type Refusal = (u16, &'static str);

/// Reads the request in `bytes`; none if more must come.
///
/// `is_tcp` has a name in `Host` refused that is neither an address nor `localhost`. Otherwise a page from elsewhere could have a
/// browser on this machine read what is here, by a name that it lets stand for this machine.
pub(crate) fn read(bytes: &[u8], is_tcp: bool) -> Result<Option<Request>, Refusal> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < REQUEST_BYTES_MAX => return Ok(None),
        Ok(httparse::Status::Partial) => return Err((431, "the request is too long")),
        Err(_) => return Err((400, "this is no HTTP request")),
    }
    let head_only = match parsed.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err((405, "only GET and HEAD are answered")),
    };
    let mut hosts = parsed
        .headers
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case("host"));
    if is_tcp && !hosts.all(|field| is_this_machine(field.value)) {
        return Err((
            403,
            "write an IP address or localhost in place of this name",
        ));
    }
    let path = parsed.path.unwrap_or_default();
    let path = path.split(['?', '#']).next().unwrap_or_default().to_owned();
    Ok(Some(Request { path, head_only }))
}

/// Whether this is an address or `localhost`, with a port or without.
fn is_this_machine(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else {
        return false;
    };
    let host = host.trim();
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_once_it_is_whole() {
        let text = b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost:9\r\n\r\n";
        for end in 0..text.len() {
            assert_eq!(read(&text[..end], true), Ok(None), "{end}");
        }
        let path = "/metrics".to_owned();
        let whole = Request {
            path,
            head_only: false,
        };
        assert_eq!(read(text, true), Ok(Some(whole)));
        let head = read(b"HEAD / HTTP/1.0\r\n\r\n", true).expect("a request");
        assert!(head.is_some_and(|request| request.head_only));
    }

    #[test]
    fn what_is_no_request_for_a_page_is_refused() {
        let status = |bytes: &[u8]| read(bytes, true).err().map(|(status, _)| status);
        assert_eq!(status(b"POST / HTTP/1.1\r\n\r\n"), Some(405));
        assert_eq!(status(b"\x16\x03\x01\x02\x00"), Some(400));
        assert_eq!(
            status(&[b"GET /".to_vec(), vec![b'a'; REQUEST_BYTES_MAX]].concat()),
            Some(431)
        );
        let many = (0..=FIELDS_MAX)
            .map(|at| format!("a{at}: b\r\n"))
            .collect::<String>();
        assert_eq!(
            status(format!("GET / HTTP/1.1\r\n{many}\r\n").as_bytes()),
            Some(400)
        );
    }

    #[test]
    fn a_name_that_somebody_else_gave_this_machine_is_refused() {
        let asked = |host: &str, is_tcp| {
            let text = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            read(text.as_bytes(), is_tcp).is_ok()
        };
        for host in [
            "127.0.0.1:9",
            "127.0.0.1",
            "[::1]:9",
            "localhost",
            "LOCALHOST:80",
        ] {
            assert!(asked(host, true), "{host}");
        }
        for host in ["evil.example", "localhost.evil.example:9", "", "[x]:1"] {
            assert!(!asked(host, true), "{host}");
            assert!(asked(host, false), "{host}");
        }
    }
}
