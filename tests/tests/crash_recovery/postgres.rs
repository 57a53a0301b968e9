//! A PostgreSQL server whose data is on the file system. It recovers by its log when it starts on a state.

use crate::programs::{Ending, Load, Promised, Scribble, stored};
use crate::recorder::{Moment, Recorder};
use futae_testkit::wait::obtain;
use futae_tests::tools::{Need, has, skip, text};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const TRANSACTIONS: u64 = 80;
/// After this one, tables are written, too, and not only the log.
const CHECKPOINT_AFTER: u64 = 40;
/// The server refuses to run as root.
const USER: [&str; 4] = ["--reuid=nobody", "--regid=nogroup", "--clear-groups", "--"];

/// The server, and what it says to be committed.
pub const POSTGRES: Load = Load { work, judge };

/// Where Debian has the server's programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").ok()?.flatten();
    let programs = versions.map(|version| version.path().join("bin"));
    programs.filter(|bin| bin.join("postgres").exists()).max()
}

/// Whether there is a server to be started; says why not.
pub fn is_here() -> bool {
    if programs().is_none() {
        skip(Need::Tools, "PostgreSQL's server is not installed");
        return false;
    }
    has("setpriv") && has("psql")
}

fn program(name: &str) -> Command {
    let program = programs().expect("it is installed").join(name);
    let mut command = Command::new("setpriv");
    command.args(USER).arg(program);
    command
}

/// A server that runs.
struct Server {
    socket: TempDir,
    _running: Ending,
}

impl Server {
    /// Starts it on its data, and waits until it takes connections.
    fn start(data: &Path) -> Self {
        let socket = tempfile::tempdir().expect("a directory");
        fs::set_permissions(socket.path(), fs::Permissions::from_mode(0o777)).expect("its mode");
        let mut postgres = program("postgres");
        postgres.args(["-D", text(data), "-k", text(socket.path())]);
        postgres.args(["-c", "listen_addresses="]);
        postgres.stdout(Stdio::null()).stderr(Stdio::null());
        let running = Ending(postgres.spawn().expect("it starts"));
        let server = Self {
            socket,
            _running: running,
        };
        obtain("the server answers", || {
            let output = server.psql().args(["-Atc", "select 1"]).output();
            let output = output.expect("psql starts");
            match output.status.success() {
                true => Ok(()),
                false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            }
        });
        server
    }

    fn psql(&self) -> Command {
        let mut psql = Command::new("psql");
        psql.args([
            "-X",
            "-q",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "futae",
            "-d",
            "postgres",
            "-h",
        ]);
        psql.arg(self.socket.path());
        psql
    }

    /// What a query says.
    fn ask(&self, query: &str) -> String {
        let output = self.psql().args(["-Atc", query]).output();
        let output = output.expect("psql starts");
        assert!(output.status.success(), "{query}: {output:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Ends it at once, and all of its processes.
    fn stop(self, data: &Path) {
        let output = program("pg_ctl")
            .args(["stop", "-D", text(data), "-m", "immediate"])
            .output();
        let output = output.expect("pg_ctl starts");
        assert!(output.status.success(), "{output:?}");
    }
}

fn work(directory: &Path, disk: &Recorder) -> Promised {
    let data = directory.join("postgres");
    fs::create_dir(&data).expect("a directory");
    let owner = |flag: &str, who: &str| {
        let output = Command::new("chown")
            .args([flag, who, text(&data)])
            .output();
        assert!(output.expect("chown starts").status.success());
    };
    owner("-R", "nobody:nogroup");
    let mut made = program("initdb");
    made.args(["-U", "futae", "-A", "trust", "-D", text(&data)]);
    let made = made.output().expect("it starts");
    assert!(made.status.success(), "{made:?}");
    let server = Server::start(&data);
    server.ask("create table t (n int, body text)");
    let mut psql = server.psql();
    psql.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut psql = Ending(psql.spawn().expect("it starts"));
    let mut orders = psql.0.stdin.take().expect("piped");
    let mut said = BufReader::new(psql.0.stdout.take().expect("piped")).lines();
    let mut scribble = Scribble::new(directory);
    let mut promised = Promised::default();
    for number in 0..TRANSACTIONS {
        writeln!(
            orders,
            "insert into t values ({number}, repeat(chr(65 + {number} % 26), 3000));\n\\echo {number}"
        )
        .expect("it is asked");
        let line = said.next().expect("an answer").expect("a line");
        assert_eq!(line, number.to_string());
        promised.transactions.push(disk.now());
        scribble.write();
        if number == CHECKPOINT_AFTER {
            writeln!(orders, "checkpoint;").expect("it is asked");
        }
    }
    drop((orders, psql));
    server.stop(&data);
    promised
}

fn judge(directory: &Path, promised: &Promised, then: Moment) {
    let data = directory.join("postgres");
    // Of a server that lost its power.
    let _ = fs::remove_file(data.join("postmaster.pid"));
    let server = Server::start(&data);
    let found = server.ask(
        "select count(*), coalesce(max(n), -1) + 1, coalesce(bool_and(body = repeat(chr(65 + n % 26), 3000)), true) from t",
    );
    let stored = stored(&promised.transactions, then);
    let parts: Vec<&str> = found.split('|').collect();
    let rows: u64 = parts[0].parse().expect("a number");
    assert!(rows >= stored, "{stored} transactions were stored: {found}");
    assert_eq!((parts[0], parts[2]), (parts[1], "t"), "{found}");
    server.stop(&data);
}
