//! A mount that goes on behind the command that made it.

use anyhow::Context;
use std::io::Write;

/// Begins to run in the background, for `mount.futae`: signals of its terminal no longer come here.
pub(super) fn detach() {
    // setsid fails for the leader of a process group. `mount.futae` has started this process, so it leads none.
    let _ = rustix::process::setsid();
}

/// Closes the pipe to `mount.futae`, which has heard where the files are. From now on the log goes to the journal, or nowhere
/// without one.
///
/// # Errors
///
/// Nothing can be opened to write to in place of standard output and standard error.
pub(super) fn let_go() -> anyhow::Result<()> {
    let nowhere = std::fs::File::options().write(true).open("/dev/null");
    let nowhere = nowhere.context("/dev/null")?;
    let journal = journal();
    match &journal {
        Ok(journal) => rustix::stdio::dup2_stderr(journal)?,
        Err(_) => rustix::stdio::dup2_stderr(&nowhere)?,
    }
    Ok(rustix::stdio::dup2_stdout(&nowhere)?)
}

/// A stream of lines into the journal, as systemd-cat(1) opens it.
fn journal() -> std::io::Result<std::os::unix::net::UnixStream> {
    let mut journal = std::os::unix::net::UnixStream::connect("/run/systemd/journal/stdout")?;
    // A name, no unit, the priority of a line without one, whether lines begin with theirs, and no copies.
    journal.write_all(b"mount.futae\n\n6\n1\n0\n0\n0\n")?;
    Ok(journal)
}
