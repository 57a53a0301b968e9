//! Commands, futae's own for the most part, as child processes.

use crate::product::program;
use anyhow::{Context, anyhow, bail};
use futae_control::{EngineReport, ask};
use futae_engine::EngineStatus;
use futae_terminal::failure::Failure;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a command may take to end when it is told to.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A command of futae's.
pub fn futae<const N: usize>(arguments: [&str; N]) -> anyhow::Result<Command> {
    let mut command = Command::new(program()?);
    command.args(arguments).stdin(Stdio::null());
    Ok(command)
}

/// A command that runs beside the experiment. Dropping it ends it.
pub struct Background {
    child: Child,
    /// Kept open, since what it says at its end must have somewhere to go.
    _out: Option<BufReader<ChildStdout>>,
}

impl Background {
    /// Starts a command and waits until it says, in a line of JSON, that it is ready.
    pub fn start(what: &str, mut command: Command) -> anyhow::Result<(Self, Value)> {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn();
        let mut child = child.with_context(|| not_started(what, &command))?;
        let mut out = child.stdout.take().map(BufReader::new);
        let mut line = String::new();
        if let Some(out) = &mut out {
            out.read_line(&mut line)?;
        }
        let mut started = Self { child, _out: out };
        match serde_json::from_str(&line) {
            Ok(ready) => Ok((started, ready)),
            Err(_) => {
                started.end();
                let mut said = String::new();
                if let Some(mut errors) = started.child.stderr.take() {
                    errors.read_to_string(&mut said)?;
                }
                bail!("{what}: {}", said.trim().trim_start_matches("futae: "));
            }
        }
    }

    /// Starts a command that does not say when it is ready.
    pub fn begin(what: &str, mut command: Command) -> anyhow::Result<Self> {
        command.stdin(Stdio::null());
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn();
        let child = child.with_context(|| not_started(what, &command))?;
        Ok(Self { child, _out: None })
    }

    /// What it has said of its errors, if it has ended.
    pub fn last_words(&mut self) -> anyhow::Result<Option<String>> {
        if self.child.try_wait()?.is_none() {
            return Ok(None);
        }
        let mut said = String::new();
        if let Some(mut errors) = self.child.stderr.take() {
            errors.read_to_string(&mut said)?;
        }
        Ok(Some(said.trim().to_owned()))
    }

    /// Bytes that it has had read from disks.
    pub fn read_bytes(&self) -> anyhow::Result<f64> {
        read_bytes(self.child.id())
    }

    /// Bytes that it has read and written by read(2), write(2) and the like, wherever they came from and went.
    pub fn characters(&self) -> anyhow::Result<(f64, f64)> {
        let count = |name| io_counter(self.child.id(), name);
        Ok((count("rchar")?, count("wchar")?))
    }

    /// Ends it as an operator would; by force if it does not end.
    fn end(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended already.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says which program was to be started.
fn not_started(what: &str, command: &Command) -> String {
    let program = Path::new(command.get_program()).display();
    format!("{what} cannot be started: {program}")
}

/// Runs a command to its end; what it prints is JSON.
pub fn run_json(what: &str, mut command: Command) -> Result<Value, Failure> {
    let output = command.output();
    let output = output.with_context(|| not_started(what, &command))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let said = said.trim().trim_start_matches("futae: ").to_owned();
        return Err(anyhow!("{what}: {said}").into());
    }
    let read = serde_json::from_slice(&output.stdout);
    Ok(read.with_context(|| format!("{what} does not answer in JSON"))?)
}

/// What the only cache of a server or a mount says of itself.
pub fn status(control: &Path) -> anyhow::Result<EngineStatus> {
    let mut status = ask(control, &json!({ "command": "status" }))?;
    let engines: Vec<EngineReport> = serde_json::from_value(status["engines"].take())?;
    let first = engines.into_iter().next();
    Ok(first.context("there is no cache")?.engine)
}

/// Bytes that a process has had read from disks.
pub fn read_bytes(process: u32) -> anyhow::Result<f64> {
    io_counter(process, "read_bytes")
}

fn io_counter(process: u32, name: &str) -> anyhow::Result<f64> {
    let path = format!("/proc/{process}/io");
    let text = fs::read_to_string(&path).with_context(|| path.clone())?;
    let mut lines = text.lines();
    let number = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let number = number.and_then(|number| number.parse().ok());
    number.with_context(|| format!("{path}: no {name}"))
}
