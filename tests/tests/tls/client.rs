//! A client that can do what the tools would not.

use crate::authority::Authorities;
use futae_nbd::client::{ClientWish, negotiate};
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring::{default_provider, sign::any_supported_type};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SignatureScheme, StreamOwned};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// What a client believes in, and what it shows.
pub struct Credentials(Arc<ClientConfig>);

/// Shows a certificate even if the server names other authorities.
#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesClientCert for Always {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl Credentials {
    pub fn new(files: &Authorities, authority: &str, own: Option<&str>) -> Self {
        let certificate = |name: &str| {
            let path = files.path(&format!("{name}.pem"));
            CertificateDer::from_pem_file(path).expect("a certificate")
        };
        let mut roots = RootCertStore::empty();
        roots.add(certificate(authority)).expect("an authority");
        let builder = ClientConfig::builder_with_provider(default_provider().into());
        let builder = builder
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = builder.with_root_certificates(roots);
        Self(Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(files.path(&format!("{name}.key")));
                let key = any_supported_type(&key.expect("a key")).expect("a key");
                let shown = CertifiedKey::new(vec![certificate(name)], key);
                builder.with_client_cert_resolver(Arc::new(Always(shown.into())))
            }
        }))
    }
}

/// Up to where TLS begins.
pub fn start_tls(socket: &mut TcpStream) -> io::Result<()> {
    socket.read_exact(&mut [0; 18])?;
    let ask = [
        &3u32.to_be_bytes()[..],
        b"IHAVEOPT",
        &5u32.to_be_bytes(),
        &[0; 4],
    ]
    .concat();
    socket.write_all(&ask)?;
    let mut answer = [0; 20];
    socket.read_exact(&mut answer)?;
    assert_eq!(answer[12..], [0, 0, 0, 1, 0, 0, 0, 0], "not an ACK");
    Ok(())
}

/// A client that was served.
#[derive(Debug)]
pub struct OverTls<S = StreamOwned<ClientConnection, TcpStream>>(S);

impl OverTls {
    /// Opens an export.
    pub fn open(
        mut socket: TcpStream,
        credentials: &Credentials,
        export: &str,
    ) -> io::Result<Self> {
        start_tls(&mut socket)?;
        let name = ServerName::try_from("localhost").expect("a name");
        let tls = ClientConnection::new(Arc::clone(&credentials.0), name);
        Self::greet(StreamOwned::new(tls.expect("a client"), socket), export)
    }

    /// Has both sides use other keys.
    pub fn refresh_keys(&mut self) -> io::Result<()> {
        self.0
            .conn
            .refresh_traffic_keys()
            .map_err(io::Error::other)?;
        self.0.flush()
    }
}

impl<S: Read + Write> OverTls<S> {
    /// Opens an export once TLS is there.
    pub fn greet(stream: S, export: &str) -> io::Result<Self> {
        let mut greeted = Greeted {
            stream,
            greeting: &[b"NBDMAGICIHAVEOPT", &3u16.to_be_bytes()[..]].concat(),
            flags: 4,
        };
        negotiate(&mut greeted, export, &ClientWish::default()).map_err(io::Error::other)?;
        Ok(Self(greeted.stream))
    }

    /// A block of 4 KiB.
    pub fn read(&mut self, offset: u64) -> Vec<u8> {
        let head = [0x25, 0x60, 0x95, 0x13, 0, 0, 0, 0];
        let request = [
            &head[..],
            &7u64.to_be_bytes(),
            &offset.to_be_bytes(),
            &4096u32.to_be_bytes(),
        ];
        self.0
            .write_all(&request.concat())
            .expect("it takes a request");
        let mut reply = vec![0; 16 + 4096];
        self.0.read_exact(&mut reply).expect("it answers");
        assert_eq!(reply[4..8], [0; 4], "an error");
        reply.split_off(16)
    }
}

/// What comes after TLS has begun, as if it were the beginning: the greeting and the flags have been exchanged before.
struct Greeted<'a, S> {
    stream: S,
    greeting: &'a [u8],
    flags: usize,
}

impl<S: Read> Read for Greeted<'_, S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.greeting.is_empty() {
            return self.stream.read(buffer);
        }
        self.greeting.read(buffer)
    }
}

impl<S: Write> Write for Greeted<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let skipped = self.flags.min(bytes.len());
        self.flags -= skipped;
        self.stream.write_all(&bytes[skipped..])?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
