//! A web server, nginx, and its client, ab, over the loopback device.

use super::cgroup::Group;
use super::process::Background;
use anyhow::{Context, anyhow, bail};
use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long the server may take to answer its first connection.
const PATIENCE: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// How often another port is tried, should somebody else have taken the one that was free.
const PORTS: u32 = 3;

/// Where the server finds its programs beside those of `PATH`.
const SYSTEM: &str = "/usr/sbin:/usr/local/sbin";

/// A running web server. Dropping it ends it.
pub struct WebServer {
    process: Background,
    port: u16,
}

impl WebServer {
    /// Whether what is needed is installed; what is missing.
    pub fn check() -> anyhow::Result<()> {
        program("nginx").and(program("ab")).map(drop)
    }

    /// Serves the files of `root`, as one process in `group`. What it writes is in `place`.
    pub fn start(root: &Path, sendfile: bool, group: &Group, place: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(place).with_context(|| place.display().to_string())?;
        let mut said = String::new();
        for _ in 0..PORTS {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let port = free.local_addr()?.port();
            drop(free);
            let settings = place.join("nginx.conf");
            let text = configuration(root, sendfile, port, place);
            fs::write(&settings, text).with_context(|| settings.display().to_string())?;
            let mut nginx = Command::new(program("nginx")?);
            nginx.args(["-e", "stderr", "-p"]).arg(place);
            nginx.arg("-c").arg(&settings);
            let process = Background::begin("nginx", group.run(&nginx))?;
            let mut server = Self { process, port };
            match server.wait()? {
                None => return Ok(server),
                Some(problem) => said = problem,
            }
        }
        Err(anyhow!("nginx: {said}"))
    }

    /// Waits until it answers; what it said, if it has ended instead.
    fn wait(&mut self) -> anyhow::Result<Option<String>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(said) = self.process.last_words()? {
                return Ok(Some(said));
            }
            if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
                return Ok(None);
            }
            if Instant::now() > deadline {
                bail!("nginx does not answer");
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }

    /// Asks for a file once, as its path from the root on; the response time in milliseconds.
    pub fn get(&self, path: &str, bytes: u64) -> anyhow::Result<f64> {
        let address = format!("http://{}:{}/{path}", Ipv4Addr::LOCALHOST, self.port);
        let mut ab = Command::new(program("ab")?);
        let output = ab.args(["-q", "-n", "1", &address]).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        let wrong = || {
            let errors = String::from_utf8_lossy(&output.stderr);
            anyhow!("ab {address}: {}{}", said.trim(), errors.trim())
        };
        let figure = |name: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(name));
            let word = line.and_then(|line| line.split_whitespace().next());
            word.and_then(|word| word.parse::<f64>().ok())
                .ok_or_else(wrong)
        };
        let is_whole = figure("Document Length:")? == bytes as f64
            && figure("Complete requests:")? == 1.0
            && figure("Failed requests:")? == 0.0
            && !said.contains("Non-2xx");
        if is_whole {
            figure("Time per request:")
        } else {
            Err(wrong())
        }
    }

    /// Bytes that it has had read from disks.
    pub fn read_bytes(&self) -> anyhow::Result<f64> {
        self.process.read_bytes()
    }
}

/// One process, which neither asks anything of the network nor writes outside of `place`.
fn configuration(root: &Path, sendfile: bool, port: u16, place: &Path) -> String {
    let (root, place) = (root.display(), place.display());
    let sendfile = if sendfile { "on" } else { "off" };
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|what| format!("    {what}_temp_path '{place}/{what}';\n"));
    let temporary = temporary.concat();
    format!(
        "daemon off;\nmaster_process off;\npid '{place}/nginx.pid';\nerror_log stderr error;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n    access_log off;\n{temporary}    sendfile {sendfile};\n    \
         output_buffers 1 256k;\n    default_type application/octet-stream;\n    \
         server {{ listen {}:{port}; root '{root}'; }}\n}}\n",
        Ipv4Addr::LOCALHOST
    )
}

/// Where a program is; which package it is in, if it is nowhere.
fn program(name: &str) -> anyhow::Result<std::path::PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{path}:{SYSTEM}");
    let mut places = path.split(':').map(|place| Path::new(place).join(name));
    places.find(|path| path.is_file()).with_context(|| {
        let package = if name == "ab" {
            "apache2-utils"
        } else {
            "nginx-light"
        };
        format!("{name} is not installed; Debian has it in {package}")
    })
}
