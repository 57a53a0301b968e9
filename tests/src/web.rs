//! A web server on this machine for the files of a directory, whole and in ranges, as object stores have it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// How the server behaves.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Whether it sends whole files only.
    pub without_ranges: bool,
    /// Every so many requests it is busy: 503.
    pub busy_every: Option<usize>,
    /// After so many GETs files are others: their ETag changes.
    pub replaced_after: Option<usize>,
    /// Whether it gives the ETag of a file with its data only.
    pub head_without_tag: bool,
    /// How the header `Authorization` begins of the requests that it takes, where it takes no others, as object stores do.
    pub authorization: Option<&'static str>,
}

/// What was asked of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// `GET` or `HEAD`.
    pub method: String,
    /// With its slash.
    pub path: String,
    /// The first and the last byte.
    pub range: Option<(u64, u64)>,
}

/// A server, which answers until it is dropped.
pub struct Web {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    directory: PathBuf,
    manner: Manner,
    asked: Mutex<Vec<Asked>>,
    ended: AtomicBool,
}

impl Web {
    /// Serves the files of a directory.
    #[must_use]
    pub fn new(directory: &Path, manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            directory: directory.to_owned(),
            manner,
            asked: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if of_thread.ended.load(Ordering::SeqCst) {
                    break;
                }
                let shared = Arc::clone(&of_thread);
                // A client that leaves ends its connection, and that is all.
                thread::spawn(move || shared.converse(&stream).is_ok());
            }
        });
        Self { address, shared }
    }

    /// The URL of a file.
    #[must_use]
    pub fn url(&self, name: &str) -> String {
        format!("http://{}/{name}", self.address)
    }

    /// All that was asked so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.shared
            .asked
            .lock()
            .expect("no test fails in it")
            .clone()
    }

    /// The ranges of its GETs.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let asked = self.asked();
        let gets = asked.iter().filter(|asked| asked.method == "GET");
        gets.filter_map(|asked| asked.range).collect()
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // So that the thread looks.
        let _ = TcpStream::connect(self.address);
    }
}

impl Shared {
    fn converse(&self, mut stream: &TcpStream) -> io::Result<()> {
        let mut lines = BufReader::new(stream).lines();
        while let Some(first) = lines.next() {
            let first = first?;
            let mut headers = BTreeMap::new();
            for line in lines.by_ref() {
                let line = line?;
                let Some((name, value)) = line.split_once(':') else {
                    break;
                };
                headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            }
            let mut words = first.split(' ');
            let method = words.next().unwrap_or_default().to_owned();
            let path = words.next().unwrap_or_default().to_owned();
            let range = headers.get("range").and_then(|range| {
                let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
                Some((first.parse().ok()?, last.parse().ok()?))
            });
            let count = {
                let mut asked = self.asked.lock().expect("no test fails in it");
                asked.push(Asked {
                    method: method.clone(),
                    path: path.clone(),
                    range,
                });
                asked.len()
            };
            let given = headers.get("authorization");
            let wanted = self.manner.authorization;
            let may_read =
                wanted.is_none_or(|wanted| given.is_some_and(|given| given.starts_with(wanted)));
            let reply = self.reply(&method, &path, range, may_read, count);
            stream.write_all(&reply)?;
        }
        Ok(())
    }

    fn reply(
        &self,
        method: &str,
        path: &str,
        range: Option<(u64, u64)>,
        may_read: bool,
        count: usize,
    ) -> Vec<u8> {
        let error =
            |status: &str| format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes();
        if self
            .manner
            .busy_every
            .is_some_and(|every| count.is_multiple_of(every))
        {
            return error("503 Service Unavailable");
        }
        if !may_read {
            return error("403 Forbidden");
        }
        let name = decoded(path.trim_start_matches('/'));
        let Ok(file) = fs::read(self.directory.join(name)) else {
            return error("404 Not Found");
        };
        let tag = u8::from(
            self.manner
                .replaced_after
                .is_some_and(|after| count > after),
        );
        let tag = match method == "HEAD" && self.manner.head_without_tag {
            true => String::new(),
            false => format!("ETag: \"v{tag}\"\r\n"),
        };
        let of_all = format!(
            "Accept-Ranges: bytes\r\n{tag}Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n"
        );
        let range = range.filter(|_| !self.manner.without_ranges);
        let (status, body) = match range {
            Some((first, last)) => {
                let end = file.len().min(last as usize + 1);
                let of_range = format!(
                    "Content-Range: bytes {first}-{}/{}\r\n",
                    end - 1,
                    file.len()
                );
                (
                    format!("206 Partial Content\r\n{of_range}"),
                    &file[first as usize..end],
                )
            }
            None => ("200 OK\r\n".to_owned(), &file[..]),
        };
        let head = format!(
            "HTTP/1.1 {status}{of_all}Content-Length: {}\r\n\r\n",
            body.len()
        );
        let body = if method == "HEAD" { &[] } else { body };
        [head.as_bytes(), body].concat()
    }
}

/// A path of a URL without its `%20` and the like. Google's clients write slashes and dots in this way, too.
fn decoded(path: &str) -> String {
    let mut parts = path.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(code, 16).expect("two hexadecimal digits"));
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).expect("text")
}
