//! Where reports go: connecting, queueing, trying again.

use self::look_up::LookUp;
use crate::system::connect_vsock;
use futae_agent_protocol::in_place::RingAnswer;
use futae_agent_protocol::{Frame, Message, Stream};
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::{Duration, Instant};
use tracing::{info, warn};

mod look_up;

/// Bytes that wait for a reader who is slow; what comes beyond is dropped.
const QUEUE_BYTES_MAX: usize = 1 << 20;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long nobody is at the other side of a port before that is logged: a server may be restarting.
const ABSENCE_MAX: Duration = Duration::from_secs(5);
/// Reads of what the host says before others get their turn.
const READS_AT_ONCE: usize = 16;

/// Who takes the reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// Lines of JSON on standard output.
    Output,
    /// A virtio-serial port, or another device that is opened by its path.
    Port(PathBuf),
    /// A port of another machine; machine 2 is the host.
    Vsock {
        /// Number of the machine.
        cid: u32,
        /// Its port.
        port: u32,
    },
    /// A unix socket.
    Unix(PathBuf),
    /// `HOST:PORT`.
    Tcp(String),
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "--report {text}: write the path of a port, vsock:CID:PORT, unix:PATH, tcp:HOST:PORT or -"
            )
        };
        if text == "-" {
            return Ok(Self::Output);
        }
        if let Some(rest) = text.strip_prefix("vsock:") {
            let (cid, port) = rest.split_once(':').ok_or_else(wrong)?;
            let number = |text: &str| text.parse().map_err(|_| wrong());
            return Ok(Self::Vsock {
                cid: number(cid)?,
                port: number(port)?,
            });
        }
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        if let Some(address) = text
            .strip_prefix("tcp:")
            .filter(|address| address.contains(':'))
        {
            return Ok(Self::Tcp(address.to_owned()));
        }
        if text.starts_with(['/', '.']) {
            return Ok(Self::Port(text.into()));
        }
        Err(wrong())
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Output => formatter.write_str("-"),
            Self::Port(path) => write!(formatter, "{}", path.display()),
            Self::Vsock { cid, port } => write!(formatter, "vsock:{cid}:{port}"),
            Self::Unix(path) => write!(formatter, "unix:{}", path.display()),
            Self::Tcp(address) => write!(formatter, "tcp:{address}"),
        }
    }
}

impl Destination {
    /// Opens it; what is opened never blocks.
    fn connect(&self, look_up: &mut LookUp) -> io::Result<OwnedFd> {
        let descriptor: OwnedFd = match self {
            Self::Output => return Err(io::ErrorKind::Unsupported.into()),
            Self::Port(path) => {
                let flags = OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
                let open = |way| rustix::fs::open(path, flags | way, Mode::empty());
                // One that can only be written to is good enough to report.
                return Ok(open(OFlags::RDWR).or_else(|_| open(OFlags::WRONLY))?);
            }
            Self::Unix(path) => {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let socket =
                    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
                rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
                return Ok(socket);
            }
            Self::Vsock { cid, port } => connect_vsock(*cid, *port)?,
            Self::Tcp(address) => {
                let stream = connect_tcp(&look_up.addresses(address, CONNECT_TIMEOUT)?)?;
                stream.set_nodelay(true)?;
                rustix::net::sockopt::set_tcp_user_timeout(&stream, 10_000)?;
                stream.into()
            }
        };
        rustix::io::ioctl_fionbio(&descriptor, true)?;
        Ok(descriptor)
    }
}

/// Connects to the first of a host's addresses that answers: it may listen at one of them only. All of them together have
/// [`CONNECT_TIMEOUT`].
fn connect_tcp(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let each = CONNECT_TIMEOUT / u32::try_from(addresses.len().max(1)).unwrap_or(u32::MAX);
    let mut last = io::ErrorKind::AddrNotAvailable.into();
    for address in addresses {
        match TcpStream::connect_timeout(address, each) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends frames, connects again for ever, and never makes the agent wait.
pub struct Sink {
    destination: Destination,
    look_up: LookUp,
    connection: Option<OwnedFd>,
    /// Frames that are on their way; the first `sent` bytes have left.
    queue: Vec<u8>,
    sent: usize,
    sequence: u64,
    /// Frames that nobody took.
    pub dropped: u64,
    pause: Duration,
    next_try: Instant,
    complained: bool,
    /// Since when nobody is at the other side of a port that is open.
    alone_since: Option<Instant>,
    /// What the host says, if anybody listens.
    stream: Option<Stream>,
}

impl Sink {
    /// Connects at the first [`Sink::pump`].
    #[must_use]
    pub fn new(destination: Destination) -> Self {
        Self {
            destination,
            look_up: LookUp::default(),
            connection: None,
            queue: Vec::new(),
            sent: 0,
            sequence: 0,
            dropped: 0,
            pause: PAUSE_MIN,
            next_try: Instant::now(),
            complained: false,
            alone_since: None,
            stream: None,
        }
    }

    /// Puts a message in the queue. It is dropped if nobody is connected, or too much is waiting.
    ///
    /// # Errors
    /// Only if standard output is gone.
    pub fn send(&mut self, message: Message) -> io::Result<()> {
        let frame = Frame {
            sequence: self.sequence,
            message,
        };
        self.sequence += 1;
        if self.destination == Destination::Output {
            let mut out = io::stdout().lock();
            writeln!(out, "{}", frame.to_json())?;
            return out.flush();
        }
        let bytes = frame.encode();
        let waiting = self.queue.len() - self.sent;
        if self.connection.is_none() || waiting + bytes.len() > QUEUE_BYTES_MAX {
            self.dropped += 1;
            return Ok(());
        }
        self.queue.drain(..self.sent);
        self.sent = 0;
        self.queue.extend_from_slice(&bytes);
        Ok(())
    }

    /// Connects if it is time to, and sends what can be sent. Returns whether a connection began.
    pub fn pump(&mut self) -> bool {
        if self.destination == Destination::Output {
            return false;
        }
        let began = self.connection.is_none() && self.try_connect();
        self.write();
        began
    }

    /// What to wait for: the connection, and what it is to be ready for.
    #[must_use]
    pub fn waits(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let connection = self.connection.as_ref()?;
        let mut wants = PollFlags::empty();
        wants.set(PollFlags::OUT, self.sent < self.queue.len());
        wants.set(PollFlags::IN, self.stream.is_some());
        Some((connection.as_fd(), wants))
    }

    /// From now on what the host says is kept for [`Self::heard`].
    pub fn listen(&mut self) {
        self.stream = Some(Stream::default());
    }

    /// Whether there is a connection.
    #[must_use]
    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// What the host has said since the last call.
    pub fn heard(&mut self) -> Vec<RingAnswer> {
        let (mut answers, mut buffer, mut is_over) = (Vec::new(), [0; 4096], false);
        let (Some(connection), Some(stream)) = (&self.connection, &mut self.stream) else {
            return answers;
        };
        for _ in 0..READS_AT_ONCE {
            match rustix::io::read(connection, &mut buffer) {
                Ok(0) => {
                    // A port whose other side is gone is read as if it had ended.
                    is_over = !matches!(self.destination, Destination::Port(_));
                    break;
                }
                Ok(count) => stream.feed(&buffer[..count]),
                Err(_) => break,
            }
            while let Some(frame) = stream.next_frame() {
                if let Message::RingAnswer(answer) = frame.message {
                    answers.push(answer);
                }
            }
        }
        if is_over {
            self.lose(&io::ErrorKind::ConnectionReset.into());
        }
        answers
    }

    /// The other side is gone for now. A port stays open, since it can be opened once only; what
    /// was meant for a reader who is gone is forgotten.
    pub fn hung_up(&mut self) {
        if !matches!(self.destination, Destination::Port(_)) {
            self.lose(&io::ErrorKind::ConnectionReset.into());
            return;
        }
        self.forget();
        let since = *self.alone_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= ABSENCE_MAX && !std::mem::replace(&mut self.complained, true) {
            warn!(
                "{}: on the host nobody has opened the other side of this port (futae serve --feed, or futae balance, \
                 opens it); reports are dropped until then",
                self.destination
            );
        }
    }

    /// The other side is there, if there is a connection.
    pub fn has_not_hung_up(&mut self) {
        let was_alone = self.alone_since.take().is_some();
        if was_alone && std::mem::take(&mut self.complained) {
            info!("{}: the host has opened it", self.destination);
        }
    }

    /// Whether somebody takes what is sent.
    #[must_use]
    pub fn has_reader(&self) -> bool {
        self.is_connected() && self.alone_since.is_none()
    }

    fn try_connect(&mut self) -> bool {
        if Instant::now() < self.next_try {
            return false;
        }
        match self.destination.connect(&mut self.look_up) {
            Ok(connection) => {
                self.connection = Some(connection);
                self.pause = PAUSE_MIN;
                self.complained = false;
                true
            }
            Err(error) => {
                self.lose(&error);
                false
            }
        }
    }

    fn lose(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.complained, true) {
            warn!(
                "{}: {error}; reports are dropped until the agent has connected again; it keeps trying",
                self.destination
            );
        }
        self.connection = None;
        self.forget();
        self.next_try = Instant::now() + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Forgets what is on its way to a reader who is gone, and the beginning of what that reader was about to say.
    fn forget(&mut self) {
        self.queue.clear();
        self.sent = 0;
        if let Some(stream) = &mut self.stream {
            stream.restart();
        }
    }

    fn write(&mut self) {
        while let Some(connection) = &self.connection {
            if self.sent == self.queue.len() {
                self.queue.clear();
                self.sent = 0;
                return;
            }
            let rest = &self.queue[self.sent..];
            let result = match &self.destination {
                Destination::Port(_) => rustix::io::write(connection, rest),
                _ => rustix::net::send(connection, rest, rustix::net::SendFlags::NOSIGNAL),
            };
            match result {
                Ok(count) => self.sent += count,
                Err(rustix::io::Errno::AGAIN) => return,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => self.lose(&error.into()),
            }
        }
    }
}

#[cfg(test)]
mod random;

#[cfg(test)]
mod tests {
    use super::*;
    use futae_agent_protocol::{Hello, Sample};
    use std::io::Read;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    #[test]
    fn destinations_are_read_as_written() {
        for text in [
            "-",
            "/dev/virtio-ports/futae.0",
            "vsock:2:9000",
            "unix:/run/x",
            "tcp:[::1]:9",
        ] {
            let destination: Destination = text.parse().expect(text);
            assert_eq!(destination.to_string(), text);
        }
        for text in [
            "",
            "x",
            "vsock:2",
            "vsock:a:1",
            "unix:",
            "tcp:host",
            "vsock:2:99999999999",
        ] {
            assert!(text.parse::<Destination>().is_err(), "{text}");
        }
    }

    fn hello() -> Message {
        Message::Hello(Hello::default())
    }

    /// Waits for what must come in the end.
    fn pump_until(sink: &mut Sink, what: impl Fn(&Sink, bool) -> bool) {
        for _ in 0..5000 {
            let began = sink.pump();
            if what(sink, began) {
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        panic!("it never came");
    }

    #[test]
    fn it_connects_again_when_the_reader_comes_back() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("host.sock");
        let mut sink = Sink::new(Destination::Unix(path.clone()));
        assert!(!sink.pump(), "nobody listens");
        sink.send(hello()).expect("dropped");
        assert_eq!(sink.dropped, 1);
        for round in 0..2 {
            let listener = UnixListener::bind(&path).expect("a socket");
            pump_until(&mut sink, |_, began| began);
            sink.send(hello()).expect("sent");
            sink.pump();
            let (mut reader, _) = listener.accept().expect("the sink");
            let mut bytes = [0; 4096];
            let count = reader.read(&mut bytes).expect("a frame");
            let mut stream = Stream::default();
            stream.feed(&bytes[..count]);
            let frame = stream.next_frame().expect("whole");
            assert_eq!((frame.sequence, frame.message), (round + 1, hello()));
            drop((listener, reader));
            std::fs::remove_file(&path).expect("it was there");
            sink.hung_up();
            assert!(sink.waits().is_none());
        }
    }

    #[test]
    fn an_answer_that_broke_off_does_not_cost_the_first_of_the_next_connection() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("host.sock");
        let listener = UnixListener::bind(&path).expect("a socket");
        let mut sink = Sink::new(Destination::Unix(path));
        sink.listen();
        let frame = Frame {
            sequence: 0,
            message: Message::RingAnswer(RingAnswer::default()),
        };
        let bytes = frame.encode();
        for (said, answers) in [(&bytes[..bytes.len() - 1], 0), (&bytes[..], 1)] {
            pump_until(&mut sink, |_, began| began);
            let (mut host, _) = listener.accept().expect("the sink");
            host.write_all(said).expect("heard");
            drop(host);
            let mut heard = 0;
            while sink.is_connected() {
                heard += sink.heard().len();
            }
            assert_eq!(heard, answers);
        }
    }

    #[test]
    fn a_host_is_reached_at_the_address_at_which_it_listens() {
        // Nobody listens where a listener has been.
        let silent = TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
        let silent = silent.expect("bound");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let stream = connect_tcp(&[silent, address]).expect("the second");
        assert_eq!(stream.peer_addr().expect("connected"), address);
        let error = connect_tcp(&[silent]).expect_err("nobody");
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        let error = connect_tcp(&[]).expect_err("no address");
        assert_eq!(error.kind(), io::ErrorKind::AddrNotAvailable);
    }

    #[test]
    fn a_reader_who_does_not_read_costs_no_more_than_the_queue() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("host.sock");
        let _listener = UnixListener::bind(&path).expect("a socket");
        let mut sink = Sink::new(Destination::Unix(path));
        assert!(sink.pump());
        for _ in 0..20_000 {
            sink.send(Message::Sample(Sample::default()))
                .expect("queued or dropped");
            sink.pump();
        }
        assert!(sink.dropped > 0);
        assert!(sink.queue.len() <= QUEUE_BYTES_MAX);
    }
}
