//! The `futae` binary, which the experiments start, and put into guests.

use anyhow::bail;
use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Names the binary. `futae paper` and `futae demo --guests` set it to themselves.
const OVERRIDE: &str = "FUTAE_BIN";
const NAME: &str = "futae";

/// Where it is: as `FUTAE_BIN` says, else beside this program, else in `PATH`.
pub fn program() -> anyhow::Result<PathBuf> {
    let own = env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent);
    let found = find(
        env::var_os(OVERRIDE).as_deref(),
        beside,
        env::var_os("PATH").as_deref(),
    );
    match found {
        Some(path) => Ok(path),
        None => bail!(
            "{NAME} is neither beside futae-lab nor in PATH; build it with `cargo build --release -p \
             futae-cli`, or name it with {OVERRIDE}"
        ),
    }
}

/// What is named is taken without a look, so that the error is of what was named.
fn find(named: Option<&OsStr>, beside: Option<&Path>, path: Option<&OsStr>) -> Option<PathBuf> {
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        return Some(PathBuf::from(named));
    }
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
    fn the_binary_is_the_named_one_else_the_one_beside_else_the_one_in_path() {
        let place = tempfile::tempdir().expect("a directory");
        let [beside, other] = ["beside", "other"].map(|name| place.path().join(name));
        for directory in [&beside, &other] {
            fs::create_dir(directory).expect("a directory");
        }
        let path = env::join_paths(["/nowhere".as_ref(), other.as_os_str()]).expect("a path");
        let look = |named: Option<&str>| find(named.map(OsStr::new), Some(&beside), Some(&path));
        assert_eq!(look(None), None);
        fs::write(other.join(NAME), "").expect("a file");
        assert_eq!(look(None), Some(other.join(NAME)));
        fs::write(beside.join(NAME), "").expect("a file");
        assert_eq!(look(None), Some(beside.join(NAME)));
        assert_eq!(look(Some("")), Some(beside.join(NAME)));
        assert_eq!(look(Some("/my/futae")), Some(PathBuf::from("/my/futae")));
    }
}
