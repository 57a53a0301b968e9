//! Answers as HTTP has them.

use crate::request::Refusal;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: String,
    /// The `nonce` of the scripts and styles in the body that may have an effect; none if none may.
    pub nonce: Option<String>,
}

/// An answer without a page.
pub(crate) fn refused((status, sentence): Refusal, head_only: bool) -> String {
    let reason = match status {
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Request Header Fields Too Large",
    };
    let reply = Reply {
        content_type: "text/plain; charset=utf-8",
        body: format!("{sentence}\n"),
        nonce: None,
    };
    page(&format!("{status} {reason}"), &reply, head_only)
}

/// A whole answer. No script and no style but those of the page itself has an effect, and nothing is loaded from elsewhere.
pub(crate) fn page(status: &str, reply: &Reply, head_only: bool) -> String {
    let own = reply.nonce.as_ref().map_or_else(String::new, |nonce| {
        format!("; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; connect-src 'self'; img-src data:")
    });
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Content-Security-Policy: default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'{own}\r\n\r\n{}",
        reply.content_type,
        reply.body.len(),
        if head_only { "" } else { &reply.body },
    )
}
