//! The laboratory, `futae-lab`: a program of its own, which this one knows by name only.

use anyhow::{Context, anyhow};
use futae_terminal::failure::Failure;
use std::env;
use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NAME: &str = "futae-lab";
/// How the laboratory is told which futae its experiments start.
const OWN_PLACE: &str = "FUTAE_BIN";

/// Replaces this process by a command of the laboratory. Returns only if that fails.
pub fn become_it<'a>(
    command: &str,
    arguments: impl IntoIterator<Item = &'a OsStr>,
) -> Result<(), Failure> {
    let own = env::current_exe().context("this program cannot find itself")?;
    let path = env::var_os("PATH");
    let Some(program) = find(own.parent(), path.as_deref()) else {
        return Err(anyhow!(
            "futae {command} needs the laboratory: {NAME} is neither beside futae nor in PATH; build it \
             with `cargo build --release -p {NAME}`"
        )
        .into());
    };
    let mut laboratory = Command::new(&program);
    // Its help shows what was typed.
    laboratory.arg0("futae").arg(command).args(arguments);
    if env::var_os(OWN_PLACE).is_none() {
        laboratory.env(OWN_PLACE, &own);
    }
    let error = laboratory.exec();
    Err(anyhow!("{}: {error}", program.display()).into())
}

/// Beside this program, else in `PATH`.
fn find(beside: Option<&Path>, path: Option<&OsStr>) -> Option<PathBuf> {
    let in_path = path.into_iter().flat_map(env::split_paths);
    let places = beside.map(Path::to_owned).into_iter().chain(in_path);
    places
        .map(|place| place.join(NAME))
        .find(|path| path.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_laboratory_is_the_one_beside_else_the_one_in_path() {
        let place = tempfile::tempdir().expect("a directory");
        let [beside, other] = ["beside", "other"].map(|name| place.path().join(name));
        for directory in [&beside, &other] {
            fs::create_dir(directory).expect("a directory");
        }
        let path = env::join_paths(["/nowhere".as_ref(), other.as_os_str()]).expect("a path");
        let look = || find(Some(&beside), Some(&path));
        assert_eq!(look(), None);
        fs::write(other.join(NAME), "").expect("a file");
        assert_eq!(look(), Some(other.join(NAME)));
        fs::write(beside.join(NAME), "").expect("a file");
        assert_eq!(look(), Some(beside.join(NAME)));
    }
}
