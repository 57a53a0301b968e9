//! Compilers, as the authors of plug-ins use them.

use futae_testkit::need::{Need, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

pub const CRATE: &str = env!("CARGO_MANIFEST_DIR");

/// Runs a compiler, which says what is wrong by its status; false if there is none.
pub fn compiles(compiler: &str, arguments: &[&str], output: &Path) -> bool {
    let mut command = Command::new(compiler);
    command.args(arguments).arg("-o").arg(output);
    match command.output() {
        Err(error) => {
            skip(Need::Tools, &format!("{compiler}: {error}"));
            false
        }
        Ok(done) => {
            let said = String::from_utf8_lossy(&done.stderr);
            assert!(done.status.success(), "{command:?}: {said}");
            true
        }
    }
}

/// A C file as a library in `folder`, compiled as the header says, every warning an error.
pub fn library_of_c(folder: &Path, name: &str, source: &str, more: &[&str]) -> Option<String> {
    let output = folder.join(name);
    let include = format!("-I{CRATE}/include");
    let source = format!("{CRATE}/{source}");
    let usual = "-O2 -std=c11 -pedantic -Wall -Wextra -Werror -shared -fPIC";
    let mut arguments: Vec<&str> = usual.split(' ').collect();
    arguments.extend([include.as_str(), source.as_str()]);
    arguments.extend(more);
    compiles("cc", &arguments, &output).then(|| text(output))
}

pub fn text(path: PathBuf) -> String {
    path.into_os_string().into_string().expect("plain")
}
