//! The servers to compare, and how each is started on an image that is hot in memory.

use crate::client;
use crate::load;
use crate::pattern;
use crate::process::{Nursery, Running};
use anyhow::{Context, bail};
use futae_nbd::{NbdUri, Transport};
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

const WARM_REQUEST_BYTES: u32 = 128 << 10;

/// A kind of server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `futae serve` of this program, all of the image in its cache.
    Futae(PathBuf),
    /// nbdkit's memory plugin.
    NbdkitMemory,
    /// nbdkit's file plugin, on the page cache.
    NbdkitFile,
    /// qemu-nbd, on the page cache.
    QemuNbd,
    /// [`crate::floor`].
    Floor,
}

/// A server under its name in the tables.
#[derive(Clone, Debug)]
pub struct Server {
    /// The name.
    pub name: String,
    /// How it is started.
    pub kind: Kind,
}

impl Server {
    fn new(name: &str, kind: Kind) -> Self {
        let name = name.to_owned();
        Self { name, kind }
    }

    /// A futae by the path of its program, or `NAME=PATH` to tell several apart.
    #[must_use]
    pub fn futae(text: &str) -> Self {
        match text.split_once('=') {
            Some((name, path)) => Self::new(name, Kind::Futae(path.into())),
            None => Self::new("futae", Kind::Futae(text.into())),
        }
    }

    /// The others: peers and floor.
    #[must_use]
    pub fn peers() -> Vec<Self> {
        vec![
            Self::new("nbdkit memory", Kind::NbdkitMemory),
            Self::new("nbdkit file", Kind::NbdkitFile),
            Self::new("qemu-nbd", Kind::QemuNbd),
            Self::new("floor", Kind::Floor),
        ]
    }

    /// Whether it is one of ours, to which the others are compared.
    #[must_use]
    pub fn is_futae(&self) -> bool {
        matches!(self.kind, Kind::Futae(_))
    }

    /// The program that it needs, and how to come by it, if it is not there.
    #[must_use]
    pub fn missing(&self) -> Option<String> {
        let (program, package) = match &self.kind {
            Kind::NbdkitMemory | Kind::NbdkitFile => ("nbdkit", "nbdkit"),
            Kind::QemuNbd => ("qemu-nbd", "qemu-utils"),
            Kind::Floor => return None,
            Kind::Futae(path) if path.is_file() => return None,
            Kind::Futae(path) => {
                let build = "cargo build --release -p futae-cli";
                return Some(format!("{} is missing; run {build}", path.display()));
            }
        };
        (!on_path(program))
            .then(|| format!("{program} is not installed; install the package {package}"))
    }
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).is_file())
}

/// Where the servers run: a directory with an image, and sockets beside it.
pub struct Ground {
    nursery: Nursery,
    directory: PathBuf,
    size_bytes: u64,
}

/// A server that serves an image which it has in memory.
pub struct Hot {
    /// Its name.
    pub name: String,
    /// Where.
    pub uri: NbdUri,
    /// How it was started.
    pub how: String,
    /// Whether it is one of ours.
    pub is_futae: bool,
    /// The process.
    pub running: Running,
}

impl Ground {
    /// Writes an image of `size_bytes` into `directory`.
    pub fn new(directory: &Path, size_bytes: u64) -> anyhow::Result<Self> {
        let nursery = Nursery::new(directory.to_owned())?;
        let ground = Self {
            nursery,
            directory: directory.to_owned(),
            size_bytes,
        };
        let mut image = File::create(ground.image())?;
        let mut chunk = vec![0; 1 << 20];
        for offset in (0..size_bytes).step_by(chunk.len()) {
            pattern::fill(offset, &mut chunk);
            image.write_all(&chunk).context("writing the image")?;
        }
        image.sync_all().context("writing the image")?;
        Ok(ground)
    }

    fn image(&self) -> PathBuf {
        self.directory.join("image")
    }

    /// Starts a server, has it read the whole image once, and checks every byte of it.
    pub fn start(&self, server: &Server) -> anyhow::Result<Hot> {
        let label: String = server
            .name
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        let socket = self.directory.join(format!("{label}.sock"));
        let log = self.directory.join(format!("{label}.log"));
        let mut problem = None;
        for (mut command, export) in self.commands(server, &socket)? {
            let how = spoken(&command, &self.directory);
            let running = match self.nursery.start(&mut command, &socket, &log) {
                Ok(running) => running,
                Err(error) => {
                    problem = Some(error);
                    continue;
                }
            };
            let uri = NbdUri {
                tls: None,
                transport: Transport::Unix {
                    socket: socket.clone(),
                },
                export: export.to_owned(),
            };
            match server.kind {
                Kind::Floor => {}
                Kind::NbdkitMemory => {
                    client::fill(&uri)?;
                    load::read_all(&uri, WARM_REQUEST_BYTES, true)?;
                }
                _ => load::read_all(&uri, WARM_REQUEST_BYTES, true)?,
            }
            return Ok(Hot {
                name: server.name.clone(),
                uri,
                how,
                is_futae: server.is_futae(),
                running,
            });
        }
        match problem {
            Some(problem) => Err(problem),
            None => bail!("no way to start {}", server.name),
        }
    }

    /// The ways to start a server, best first, and the name of the export.
    fn commands(
        &self,
        server: &Server,
        socket: &Path,
    ) -> anyhow::Result<Vec<(Command, &'static str)>> {
        let size = self.size_bytes.to_string();
        let image = self.image();
        Ok(match &server.kind {
            Kind::Futae(program) => {
                let mut command = Command::new(program);
                command.args(["serve", "--policy", "lru", "--cache", &size]);
                command
                    .arg("--export")
                    .arg(with("bench=", &image, ",read-only"));
                command.arg("--listen").arg(with("unix:", socket, ""));
                vec![(command, "bench")]
            }
            Kind::NbdkitMemory => vec![(nbdkit(socket, &["memory", &size]), "")],
            Kind::NbdkitFile => {
                let mut command = nbdkit(socket, &["-r", "file"]);
                command.arg(&image);
                vec![(command, "")]
            }
            Kind::QemuNbd => ["io_uring", "threads"]
                .map(|aio| {
                    let mut command = Command::new("qemu-nbd");
                    command.args(["--persistent", "--shared=16", "--read-only", "--format=raw"]);
                    command.arg(format!("--aio={aio}")).arg("--cache=writeback");
                    command.arg("--socket").arg(socket).arg(&image);
                    (command, "")
                })
                .into(),
            Kind::Floor => {
                let mut command = Command::new(std::env::current_exe()?);
                command
                    .arg("--serve-floor")
                    .arg(socket)
                    .args(["--size", &size]);
                vec![(command, "floor")]
            }
        })
    }
}

fn nbdkit(socket: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("nbdkit");
    command.args(["--foreground", "--exit-with-parent", "--unix"]);
    command.arg(socket).args(arguments);
    command
}

fn with(before: &str, path: &Path, after: &str) -> std::ffi::OsString {
    let mut text = std::ffi::OsString::from(before);
    text.push(path);
    text.push(after);
    text
}

/// A command as one would type it, without the names of directories.
fn spoken(command: &Command, directory: &Path) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    let mut text = program.to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text.replace(&format!("{}/", directory.display()), "")
}
