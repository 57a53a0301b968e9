//! A running guest.

use crate::channel::Channel;
use crate::error::{GuestError, file, host};
use crate::initramfs::{self, Contents};
use crate::modules::Modules;
use crate::monitor::Monitor;
use crate::packages::Packages;
use crate::plan::{Disk, HostCache, Plan};
use serde_json::Value;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const MONITOR: &str = "qmp.sock";
const SECOND_MONITOR: &str = "qmp-2.sock";
pub(crate) const INITRAMFS: &str = "initramfs";
const CONSOLE: &str = "console.log";
const QEMU: &str = "qemu-system-x86_64";
/// Memory of a guest that can be moved, beside what its plan says. QEMU before 9.0 takes the marks of pages that an emulated
/// processor wrote by the word of 64 pages, and then does not see that the processor goes on writing to them; of memory
/// that is no whole number of such words it takes them by the page, and sees it.
const ODD_KIB: u64 = 128;
/// Lines of a log that an error shows.
const LOG_LINES: usize = 40;

/// What a command in the guest did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its exit status.
    pub status: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// A guest that takes orders. Dropping it ends it.
pub struct Guest {
    qemu: Child,
    channel: Channel,
    release: String,
    deadline: Instant,
    limit: Duration,
    directory: TempDir,
}

impl Plan {
    /// Boots it, and waits until it takes orders.
    pub fn boot(self) -> Result<Guest, GuestError> {
        Guest::boot(&self)
    }
}

impl Guest {
    fn boot(plan: &Plan) -> Result<Self, GuestError> {
        let packages = Packages::open(&plan.cache)?;
        let kernel = packages.kernel(plan.kernel)?;
        let busybox = packages.busybox()?;
        drop(packages);
        let directory = tempfile::Builder::new().prefix("futae-guest-").tempdir();
        let directory = directory.map_err(host("no temporary directory"))?;
        let initramfs = directory.path().join(INITRAMFS);
        let contents = Contents {
            busybox: &busybox,
            modules: &Modules::find(&kernel)?.resolve(&plan.modules)?,
            files: &plan.files,
        };
        initramfs::write(&initramfs, &contents)?;
        let deadline = Instant::now() + plan.limit;
        let mut guest = Self::start(plan, directory, deadline, &[])?;
        let ready = guest.channel.line(deadline);
        let ready = ready.map_err(|error| guest.fail(&error, "boot"))?;
        // The kernel goes on without the rest of the file that did not fit, and a program that is cut off ends by a fault of memory.
        if guest.log().contains("Initramfs unpacking failed") {
            let memory_mib = plan.memory_mib;
            return Err(GuestError::TooSmall { memory_mib });
        }
        guest.release = ready.trim_start_matches("ready ").to_owned();
        Ok(guest)
    }

    /// Starts QEMU with these arguments more, and waits until it holds the channel.
    pub(crate) fn start(
        plan: &Plan,
        directory: TempDir,
        deadline: Instant,
        more: &[&str],
    ) -> Result<Self, GuestError> {
        let kernel = Packages::open(&plan.cache)?.kernel(plan.kernel)?;
        let orders = directory.path().join("orders.sock");
        let mut command = command(plan, &image(&kernel)?, directory.path())?;
        command.args(more);
        let mut slot = None;
        let stopped = Arc::clone(&plan.stopped);
        let channel = accept(&orders, (deadline, stopped), command, &mut slot);
        let Some(mut qemu) = slot else {
            let error = channel.err().unwrap_or(io::ErrorKind::NotFound.into());
            return Err(not_started(error));
        };
        let channel = match channel {
            Ok(channel) => channel,
            Err(error) => {
                end(&mut qemu);
                let what = ("its start", plan.limit);
                return Err(failure(&error, what, directory.path()));
            }
        };
        // From here on it is ended by being dropped.
        Ok(Self {
            qemu,
            channel,
            release: String::new(),
            deadline,
            limit: plan.limit,
            directory,
        })
    }

    /// Where its sockets and logs are.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn release_is(&mut self, release: &str) {
        release.clone_into(&mut self.release);
    }

    /// The kernel's release, as `uname -r` prints it.
    #[must_use]
    pub fn release(&self) -> &str {
        &self.release
    }

    /// The process number of QEMU.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.qemu.id()
    }

    /// Bytes of the host's memory that QEMU has, the guest's among them.
    ///
    /// # Errors
    ///
    /// The kernel does not tell.
    pub fn resident_bytes(&self) -> io::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
        kib.map(|kib| kib * 1024)
            .ok_or_else(|| io::Error::other("no VmRSS"))
    }

    /// The unix socket of QEMU's monitor, which takes its machine protocol from one program at a time.
    /// Only guests with a balloon have one, and those that can be moved.
    #[must_use]
    pub fn monitor(&self) -> PathBuf {
        self.directory.path().join(MONITOR)
    }

    /// Another such socket, for an observer while a program has the first.
    #[must_use]
    pub fn second_monitor(&self) -> PathBuf {
        self.directory.path().join(SECOND_MONITOR)
    }

    /// Gives QEMU an order of its machine protocol, such as `json!({ "execute": "query-status" })`; what it returns. Only of a guest
    /// with a [`monitor`](Self::monitor) that no other program has.
    ///
    /// # Errors
    ///
    /// QEMU refuses it, or does not answer.
    pub fn order_qemu(&self, order: &Value) -> Result<Value, GuestError> {
        let monitor = Monitor::open(&self.monitor(), self.deadline);
        let told = monitor.and_then(|mut monitor| monitor.order(order));
        told.map_err(|error| host(format!("QEMU does not take {order}: {error}"))(error))
    }

    /// All that the guest's kernel and its first program have said.
    #[must_use]
    pub fn console(&self) -> String {
        // What cannot be read was never written.
        let bytes = fs::read(self.directory.path().join(CONSOLE)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Runs a shell script in the guest to its end.
    pub fn run(&mut self, script: &str) -> Result<Output, GuestError> {
        self.exchange(script)
            .map_err(|error| self.fail(&error, script))
    }

    fn exchange(&mut self, script: &str) -> io::Result<Output> {
        self.channel.order(script)?;
        let line = self.channel.line(self.deadline)?;
        let numbers: Vec<u64> = line
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        let &[status, out, err] = numbers.as_slice() else {
            let message = format!("the guest answers {line:?}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(Output {
            status: i32::try_from(status).unwrap_or(i32::MAX),
            stdout: text(self.channel.bytes(out, self.deadline)?),
            stderr: text(self.channel.bytes(err, self.deadline)?),
        })
    }

    /// The end of the guest's console and of what QEMU said.
    #[must_use]
    pub fn log(&self) -> String {
        log(self.directory.path())
    }

    fn fail(&mut self, error: &io::Error, during: &str) -> GuestError {
        end(&mut self.qemu);
        failure(error, (during, self.limit), self.directory.path())
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        end(&mut self.qemu);
    }
}

/// Kills QEMU, and waits until it is gone; it may be already.
fn end(qemu: &mut Child) {
    let _ = qemu.kill();
    let _ = qemu.wait();
}

fn accept(
    path: &Path,
    (deadline, stopped): (Instant, Arc<AtomicBool>),
    mut command: Command,
    slot: &mut Option<Child>,
) -> io::Result<Channel> {
    let child = std::cell::RefCell::new(slot);
    let is_alive = || {
        let mut child = child.borrow_mut();
        let ended = child.as_mut().and_then(|child| child.try_wait().ok());
        ended.flatten().is_none()
    };
    let start = || {
        **child.borrow_mut() = Some(command.spawn()?);
        Ok(())
    };
    Channel::accept(path, (deadline, stopped), is_alive, start)
}

fn not_started(error: io::Error) -> GuestError {
    if error.kind() == io::ErrorKind::NotFound {
        return GuestError::Missing(format!("{QEMU} is not installed"));
    }
    host(format!("{QEMU} cannot be started"))(error)
}

fn failure(error: &io::Error, (during, limit): (&str, Duration), directory: &Path) -> GuestError {
    let during = during.to_owned();
    if error.kind() == io::ErrorKind::Interrupted {
        return GuestError::Stopped { during };
    }
    let log = log(directory);
    if error.kind() == io::ErrorKind::TimedOut {
        return GuestError::TimedOut { during, limit, log };
    }
    GuestError::Ended { during, log }
}

fn log(directory: &Path) -> String {
    let tail = |name: &str| {
        // What cannot be read was never written.
        let bytes = fs::read(directory.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes).replace('\r', "");
        let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).collect();
        let last_lines = lines.len().saturating_sub(LOG_LINES);
        // A kernel names the cause first; the call trace after it may be longer than all we show.
        let is_cause = |line: &&str| line.contains("Kernel panic");
        let cause = lines.iter().rposition(is_cause).unwrap_or(last_lines);
        lines[last_lines.min(cause)..].join("\n")
    };
    let (console, errors) = (tail(CONSOLE), tail("qemu.log"));
    let errors = match errors.as_str() {
        "" => errors,
        _ => format!("\nQEMU: {errors}"),
    };
    format!("{console}{errors}")
}

/// The kernel in its package.
fn image(package: &Path) -> Result<PathBuf, GuestError> {
    let boot = package.join("boot");
    let entries = fs::read_dir(&boot).map_err(file(&boot))?;
    let mut paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_kernel = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("vmlinuz-")
    };
    let found = paths.find(is_kernel);
    found.ok_or_else(|| GuestError::Missing(format!("{} has no kernel", boot.display())))
}

/// QEMU with everything it is told. `setpriv` has the kernel kill it when the thread that starts it
/// dies.
fn command(plan: &Plan, kernel: &Path, directory: &Path) -> Result<Command, GuestError> {
    let at = |name: &str| escaped(&directory.join(name));
    let has_setpriv = Command::new("setpriv").arg("--version").output().is_ok();
    let mut command = if has_setpriv {
        let found = Command::new(QEMU).arg("--version").output();
        found.map_err(not_started)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", QEMU]);
        command
    } else {
        Command::new(QEMU)
    };
    let odd_kib = if plan.movable { ODD_KIB } else { 0 };
    let memory = format!("{}K", u64::from(plan.memory_mib) * 1024 + odd_kib);
    let prealloc = if plan.preallocate { "on" } else { "off" };
    // A device outside of QEMU reads and writes the guest's memory where it lies. QEMU leaves out the guest's memory barriers
    // where there is but one processor at most, and then a guest can miss what such a device tells it, and wait for ever.
    let is_shared = |disk: &Disk| matches!(disk, Disk::VhostUser { .. });
    let (accelerator, processors, kind) = if plan.disks.iter().any(is_shared) {
        (
            "tcg,thread=multi",
            "1,maxcpus=2",
            "memory-backend-memfd,share=on",
        )
    } else {
        ("tcg,thread=single", "1", "memory-backend-ram")
    };
    // The guest's kernel would use what `max` has beyond this, which takes longer to emulate.
    command.args(["-accel", accelerator, "-cpu", "qemu64", "-smp", processors]);
    command.args(["-machine", "q35,memory-backend=memory", "-m", &memory]);
    command.arg("-object");
    command.arg(format!(
        "{kind},id=memory,size={memory},prealloc={prealloc}"
    ));
    command.args(["-nodefaults", "-no-reboot", "-display", "none"]);
    command.arg("-kernel").arg(kernel);
    command.arg("-initrd").arg(directory.join(INITRAMFS));
    let words = "console=ttyS0 quiet panic=-1 tsc=unstable no_timer_check";
    command.args(["-append", words]);
    command.args(["-serial", &format!("file:{}", at(CONSOLE))]);
    command.args(["-device", "virtio-serial-pci", "-chardev"]);
    command.arg(format!("socket,id=orders,path={}", at("orders.sock")));
    command.args(["-device", "virtserialport,chardev=orders,name=futae.orders"]);
    for (number, (name, path)) in plan.ports.iter().enumerate() {
        command.arg("-chardev");
        command.arg(format!(
            "socket,id=port{number},path={},reconnect=1",
            escaped(path)
        ));
        let device = format!("virtserialport,chardev=port{number},name={name}");
        command.args(["-device", &device]);
    }
    if plan.balloon {
        let reports = if plan.reports_free_pages { "on" } else { "off" };
        let device = format!("virtio-balloon-pci,free-page-reporting={reports}");
        command.args(["-device", &device]);
    }
    if plan.balloon || plan.movable {
        for monitor in [MONITOR, SECOND_MONITOR] {
            let monitor = format!("unix:{},server=on,wait=off", at(monitor));
            command.args(["-qmp", &monitor]);
        }
    }
    for (number, disk) in plan.disks.iter().enumerate() {
        if let Disk::VhostUser { socket } = disk {
            let socket = escaped(socket);
            let chardev = format!("socket,id=disk{number},path={socket},reconnect=1");
            command.args(["-chardev", &chardev]);
            let device = format!("vhost-user-blk-pci,chardev=disk{number},num-queues=2");
            command.args(["-device", &device]);
            continue;
        }
        command.args(["-drive", &format!("{},id=disk{number}", drive(disk)?)]);
        command.args(["-device", &format!("virtio-blk-pci,drive=disk{number}")]);
    }
    let errors = directory.join("qemu.log");
    let errors = File::create(&errors).map_err(file(&errors))?;
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(errors);
    Ok(command)
}

fn drive(disk: &Disk) -> Result<String, GuestError> {
    let (target, cache) = match disk {
        Disk::VhostUser { socket } => (escaped(socket), "none"),
        Disk::Nbd { uri } => (uri.replace(',', ",,"), "none"),
        Disk::Image { path, cache } => {
            // QEMU would say so as well, in more words.
            File::open(path).map_err(file(path))?;
            let cache = match cache {
                HostCache::None => "none",
                HostCache::Writeback => "writeback",
            };
            (escaped(path), cache)
        }
    };
    Ok(format!("file={target},if=none,format=raw,cache={cache}"))
}

/// A path as QEMU takes it among options.
pub(crate) fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}
