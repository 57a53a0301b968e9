//! What a guest boots into: busybox, modules, programs with the libraries they need, and a script
//! that does what it is told.

use crate::cpio::Archive;
use crate::error::{GuestError, file, host};
use crate::modules::Module;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The guest's side of the channel. The port can be opened once only.
const INIT: &str = include_str!("init.sh");

/// Everything that goes in.
pub struct Contents<'a> {
    /// A static busybox.
    pub busybox: &'a Path,
    /// Modules in the order in which they are to be loaded.
    pub modules: &'a [Module],
    /// Files of the host by their place in the guest.
    pub files: &'a BTreeMap<String, PathBuf>,
}

/// Writes the archive.
pub fn write(path: &Path, contents: &Contents<'_>) -> Result<(), GuestError> {
    let libraries = libraries(contents.files.values())?;
    let out = File::create(path).map_err(file(path))?;
    fill(BufWriter::new(out), contents, &libraries).map_err(host(format!(
        "{}: the initramfs cannot be made (TMPDIR chooses where)",
        path.display()
    )))
}

fn fill(out: impl Write, contents: &Contents<'_>, libraries: &[PathBuf]) -> io::Result<()> {
    let mut archive = Archive::new(out);
    for directory in ["bin", "dev", "mnt", "proc", "sys", "tmp", "run", "etc"] {
        archive.directory(directory)?;
    }
    archive.file("init", INIT.as_bytes())?;
    archive.file("bin/busybox", &fs::read(contents.busybox)?)?;
    archive.link("bin/sh", "busybox")?;
    let mut order = String::new();
    for module in contents.modules {
        archive.file(&format!("modules/{}.ko", module.name), &module.bytes)?;
        order += &format!("{}\n", module.name);
    }
    archive.file("modules/order", order.as_bytes())?;
    for path in libraries {
        archive.file(&path.to_string_lossy(), &fs::read(path)?)?;
    }
    for (place, path) in contents.files {
        archive.file(place, &without_symbols(path)?)?;
    }
    archive.finish()?;
    Ok(())
}

/// The libraries that programs load when they start, with the loader; none for static programs
/// and for files that are not programs.
fn libraries<'a>(files: impl Iterator<Item = &'a PathBuf>) -> Result<Vec<PathBuf>, GuestError> {
    let mut found = Vec::new();
    for path in files {
        // It is opened first, since ldd says of a missing file what it says of a static one.
        File::open(path).map_err(file(path))?;
        let said = Command::new("ldd").arg(path).output();
        let said = said.map_err(host("ldd cannot be started"))?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let paths = said.lines().filter_map(|line| {
            let words = line.split_whitespace();
            words.into_iter().find(|word| word.starts_with('/'))
        });
        found.extend(paths.filter(|path| !path.ends_with(':')).map(PathBuf::from));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// A program without what only a debugger reads, if `strip` is here to take it out: the guest
/// unpacks it in no time then.
fn without_symbols(path: &Path) -> io::Result<Vec<u8>> {
    let stripped = tempfile::NamedTempFile::new()?;
    let mut strip = Command::new("strip");
    strip.arg("-o").arg(stripped.path()).arg(path);
    match strip.output() {
        Ok(done) if done.status.success() => fs::read(stripped.path()),
        _ => fs::read(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_brings_its_libraries_and_a_script_none() {
        let shell = PathBuf::from("/bin/sh");
        let found = libraries([&shell].into_iter()).expect("a shell is there");
        let names: Vec<_> = found.iter().map(|path| path.to_string_lossy()).collect();
        assert!(
            names.iter().any(|name| name.contains("libc.so")),
            "{names:?}"
        );
        assert!(names.iter().any(|name| name.contains("ld-")), "{names:?}");
        let script = tempfile::NamedTempFile::new().expect("a file");
        let none = libraries([&script.path().to_owned()].into_iter());
        assert!(none.expect("it is there").is_empty());
        let missing = PathBuf::from("no such file");
        assert!(libraries([&missing].into_iter()).is_err());
    }
}
