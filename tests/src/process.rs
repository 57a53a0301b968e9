//! A running program, which does not outlive its test.

use futae_testkit::wait::{PATIENCE, eventually, within};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, DirEntry};
use std::io::{self, BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread::{self, JoinHandle};

/// A running program. Dropping it kills it.
pub struct Running {
    what: String,
    child: Child,
    lines: Receiver<String>,
    errors: Option<JoinHandle<String>>,
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit status.
    pub status: ExitStatus,
    /// The lines of its standard output that nobody had read before.
    pub lines: Vec<String>,
    /// Its standard error.
    pub errors: String,
}

impl Running {
    /// Starts a program; `what` is what messages call it.
    #[must_use]
    pub fn start(what: &str, mut command: Command) -> Self {
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        let (sender, lines) = mpsc::channel();
        let out = child.stdout.take().expect("its output is piped");
        thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut err = child.stderr.take().expect("its errors are piped");
        let errors = thread::spawn(move || {
            let mut text = Vec::new();
            // What was read until then is as much as there is.
            let _ = err.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Self {
            what: what.to_owned(),
            child,
            lines,
            errors: Some(errors),
        }
    }

    /// Its process number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line that it prints.
    pub fn line(&mut self) -> String {
        self.try_line().unwrap_or_else(|ended| {
            panic!(
                "{} did not say anything: {} {}",
                self.what, ended.status, ended.errors
            )
        })
    }

    /// The next line that it prints.
    ///
    /// # Errors
    ///
    /// How it ended, if it printed none.
    pub fn try_line(&mut self) -> Result<String, Box<Ended>> {
        self.lines.recv_timeout(PATIENCE).map_err(|_| {
            self.signal(Signal::KILL);
            Box::new(self.wait())
        })
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&mut self, signal: Signal) {
        let has_ended = matches!(self.child.try_wait(), Ok(Some(_)));
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
            && !has_ended
        {
            kill_process(pid, signal).expect("a child of ours can be signalled");
        }
    }

    /// Stops all of its threads until [`go_on`](Self::go_on). The kernel does not stop any before one of them has taken the signal, which
    /// it may get late on a busy machine; until then the others go on.
    ///
    /// # Panics
    ///
    /// If they do not stop.
    pub fn hold_up(&mut self) {
        self.signal(Signal::STOP);
        let tasks = format!("/proc/{}/task", self.id());
        let is_held = |task: io::Result<DirEntry>| {
            let stat = task.and_then(|task| fs::read_to_string(task.path().join("stat")));
            // The state follows the name, which may have any characters.
            stat.is_ok_and(|stat| {
                stat.rsplit(") ")
                    .next()
                    .is_some_and(|rest| rest.starts_with('T'))
            })
        };
        eventually("every thread is held up", || {
            let mut all = fs::read_dir(&tasks).expect("it has not ended");
            all.all(is_held)
        });
    }

    /// Ends what [`hold_up`](Self::hold_up) began.
    pub fn go_on(&mut self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end, as an operator would.
    pub fn stop(mut self) -> Ended {
        self.signal(Signal::TERM);
        self.wait()
    }

    /// Ends it at once.
    pub fn kill(mut self) -> Ended {
        self.signal(Signal::KILL);
        self.wait()
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> Ended {
        let status = within(PATIENCE, || {
            let status = self.child.try_wait();
            status.expect("a child can be waited for").ok_or(())
        });
        let status = status.unwrap_or_else(|()| {
            self.signal(Signal::KILL);
            panic!("{} does not end", self.what);
        });
        let errors = self.errors.take().map(JoinHandle::join);
        Ended {
            status,
            lines: self.lines.iter().collect(),
            errors: errors.and_then(Result::ok).unwrap_or_default(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
