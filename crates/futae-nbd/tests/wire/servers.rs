//! The client against the servers that people run, and the server against their client, where they
//! are installed. None knows the private option: to others, futae is plain NBD.

use futae_testkit::wait::{PATIENCE, obtain};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command as Process, Stdio};
use std::thread;

use futae_nbd::client::negotiate;
use futae_nbd::*;

use crate::client::serve;
use crate::common::Shelf;

/// A server that dies with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts a server and waits until it listens; says why if it is not installed.
fn start(program: &str, arguments: &[&str]) -> Option<Server> {
    let mut process = Process::new(program);
    process
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    match process.spawn() {
        Ok(child) => Some(Server(child)),
        Err(error) => {
            futae_testkit::need::skip(
                futae_testkit::need::Need::Tools,
                &format!("cannot run {program} ({error}); install it to run this test"),
            );
            None
        }
    }
}

fn connect(socket: &Path) -> UnixStream {
    let stream = obtain("the server listens", || UnixStream::connect(socket));
    let timeout = stream.set_read_timeout(Some(PATIENCE));
    timeout.expect("a timeout");
    stream
}

/// Negotiates, writes a pattern, reads it back, asks for the status of the range, and leaves.
fn visit(socket: &Path, export: &str, structured: bool) -> ClientExport {
    let mut stream = connect(socket);
    let wish = ClientWish {
        structured,
        base_allocation: structured,
        demotion_block_bytes: Some(65536),
        identity: true,
    };
    let granted = negotiate(&mut stream, export, &wish).expect("agreed");
    assert_eq!(granted.size_bytes, 64 << 20);
    assert_eq!(granted.structured, structured);
    assert_eq!(granted.demotion, None);

    let pattern: Vec<u8> = (0..65536u32).map(|i| (i % 251) as u8).collect();
    let length = pattern.len() as u32;
    let offset = 1 << 20;
    send(
        &mut stream,
        RequestHeader::new(Command::Write, 1, offset, length),
        &pattern,
    );
    assert_eq!(receive(&mut stream, 1, 0, offset), Vec::<u8>::new());
    send(
        &mut stream,
        RequestHeader::new(Command::Read, 2, offset, length),
        &[],
    );
    assert!(
        receive(&mut stream, 2, pattern.len(), offset) == pattern,
        "other data came back"
    );
    if granted.base_allocation_id.is_some() {
        send(
            &mut stream,
            RequestHeader::new(Command::BlockStatus, 3, offset, length),
            &[],
        );
        receive(&mut stream, 3, 0, offset);
    }
    send(
        &mut stream,
        RequestHeader::new(Command::Disconnect, 4, 0, 0),
        &[],
    );
    granted
}

fn send(stream: &mut UnixStream, header: RequestHeader, payload: &[u8]) {
    stream.write_all(&header.encode()).expect("sent");
    stream.write_all(payload).expect("sent");
}

/// Reads the reply to one request; `read_bytes` is what a READ asked for.
fn receive(stream: &mut UnixStream, asked: u64, read_bytes: usize, start: u64) -> Vec<u8> {
    let mut result = vec![0xee; read_bytes];
    loop {
        let mut held = Vec::new();
        // Byte by byte, so that no data are taken along.
        let (place, ended) = loop {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a reply");
            held.extend_from_slice(&byte);
            let Some((reply, taken)) = parse_reply(&held).expect("sound") else {
                continue;
            };
            assert_eq!(taken, held.len());
            let (cookie, place, ended) = match reply {
                Reply::Simple { cookie, error } => {
                    assert_eq!(error, None);
                    (cookie, 0..read_bytes, true)
                }
                Reply::Data {
                    cookie,
                    offset,
                    data_bytes,
                    last,
                } => {
                    let from = (offset - start) as usize;
                    (cookie, from..from + data_bytes as usize, last)
                }
                Reply::Hole {
                    cookie,
                    offset,
                    hole_bytes,
                    last,
                } => {
                    let from = (offset - start) as usize;
                    result[from..from + hole_bytes as usize].fill(0);
                    (cookie, 0..0, last)
                }
                Reply::BlockStatus {
                    cookie,
                    extents,
                    last,
                    ..
                } => {
                    assert!(extents.count() > 0);
                    (cookie, 0..0, last)
                }
                Reply::Done { cookie } => (cookie, 0..0, true),
                Reply::Error { error, message, .. } => {
                    panic!("{error}: {}", String::from_utf8_lossy(message))
                }
            };
            assert_eq!(cookie, asked);
            break (place, ended);
        };
        stream.read_exact(&mut result[place]).expect("data");
        if ended {
            return result;
        }
    }
}

#[test]
fn nbdkit_serves_our_client() {
    let room = tempfile::tempdir().expect("a directory");
    let socket = room.path().join("nbd.sock");
    let path = socket.to_str().expect("UTF-8");
    let Some(_server) = start("nbdkit", &["-f", "-U", path, "memory", "64M"]) else {
        return;
    };
    visit(&socket, "", true);
    let granted = visit(&socket, "any name", false);
    assert!(granted.flags.contains(TransmissionFlags::SEND_FLUSH));
}

#[test]
fn nbdkit_that_only_knows_export_name_is_entered_by_name() {
    let room = tempfile::tempdir().expect("a directory");
    let socket = room.path().join("nbd.sock");
    let path = socket.to_str().expect("UTF-8");
    let Some(_server) = start(
        "nbdkit",
        &["-f", "-U", path, "--mask-handshake=0", "memory", "64M"],
    ) else {
        return;
    };
    visit(&socket, "", false);
}

#[test]
fn qemu_nbd_serves_our_client() {
    let room = tempfile::tempdir().expect("a directory");
    let (socket, image) = (room.path().join("nbd.sock"), room.path().join("disk.img"));
    let file = std::fs::File::create(&image).expect("an image");
    file.set_len(64 << 20).expect("64 MiB");
    let (path, image) = (
        socket.to_str().expect("UTF-8"),
        image.to_str().expect("UTF-8"),
    );
    let arguments = ["-f", "raw", "-k", path, "-x", "vm1", "-t", "-e", "4", image];
    let Some(_server) = start("qemu-nbd", &arguments) else {
        return;
    };
    let granted = visit(&socket, "vm1", true);
    assert!(granted.base_allocation_id.is_some());
    visit(&socket, "vm1", false);

    let refused = negotiate(&mut connect(&socket), "no such", &ClientWish::default());
    let error = refused.expect_err("no such export");
    assert!(matches!(error, WireError::Refused { .. }), "{error}");
}

#[test]
fn nbdinfo_understands_our_server() {
    let room = tempfile::tempdir().expect("a directory");
    let socket = room.path().join("nbd.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    thread::spawn(move || {
        let mut shelf = Shelf::new();
        shelf.exports[0].description = "the first".into();
        for stream in listener.incoming().flatten() {
            let stays_open = stream.try_clone();
            serve(stream, &shelf);
            // Read on until the client is gone: it has to see an orderly end.
            let _ = stays_open.and_then(|mut stream| stream.read(&mut [0; 100]));
        }
    });
    let uri = format!("nbd+unix:///vm1?socket={}", socket.display());
    for extra in [&[][..], &["--list"]] {
        let mut process = Process::new("nbdinfo");
        let output = process
            .args(["--json", "--no-content"])
            .args(extra)
            .arg(&uri)
            .output();
        let output = match output {
            Ok(output) => output,
            Err(error) => {
                futae_testkit::need::skip(
                    futae_testkit::need::Need::Tools,
                    &format!("cannot run nbdinfo ({error}); install libnbd's tools"),
                );
                return;
            }
        };
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let compact: String = text.split_whitespace().collect();
        for part in [
            r#""export-name":"vm1""#,
            r#""description":"thefirst""#,
            r#""export-size":67108864"#,
            r#""structured":true"#,
            r#""contexts":["base:allocation"]"#,
            r#""can_cache":true"#,
            r#""can_df":true"#,
            r#""can_fast_zero":false"#,
            r#""block_size_preferred":65536"#,
        ] {
            assert!(compact.contains(part), "no {part} in {text}");
        }
        assert_eq!(compact.contains("vm2"), !extra.is_empty());
    }
}
