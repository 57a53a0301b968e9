//! Kernel modules, each after those that it depends on.

use crate::error::{GuestError, file, host};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One module, ready to be loaded.
#[derive(Debug)]
pub struct Module {
    /// Its name, with `_` between words.
    pub name: String,
    /// Its bytes, uncompressed.
    pub bytes: Vec<u8>,
}

/// The modules of one kernel.
pub struct Modules {
    by_name: BTreeMap<String, PathBuf>,
    built_in: Vec<String>,
}

impl Modules {
    /// Finds the modules of an unpacked kernel package.
    pub fn find(package: &Path) -> Result<Self, GuestError> {
        // Debian has moved /lib to /usr/lib.
        let places = ["lib/modules", "usr/lib/modules"].map(|place| package.join(place));
        let mut found = Self {
            by_name: BTreeMap::new(),
            built_in: Vec::new(),
        };
        for place in places.iter().filter(|place| place.is_dir()) {
            found.walk(place)?;
        }
        Ok(found)
    }

    fn walk(&mut self, directory: &Path) -> Result<(), GuestError> {
        for entry in fs::read_dir(directory).map_err(file(directory))? {
            let path = entry.map_err(file(directory))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_dir() && !path.is_symlink() {
                self.walk(&path)?;
            } else if name == "modules.builtin" {
                let text = fs::read_to_string(&path).map_err(file(&path))?;
                let names = text.lines().filter_map(|line| line.rsplit('/').next());
                self.built_in.extend(names.filter_map(name_of));
            } else if let Some(name) = name_of(&name) {
                self.by_name.insert(name, path);
            }
        }
        Ok(())
    }

    /// The modules that are named and those that they depend on, in the order in which they can be
    /// loaded.
    pub fn resolve(&self, names: &[String]) -> Result<Vec<Module>, GuestError> {
        let mut chosen = Vec::new();
        for name in names {
            self.add(&name.replace('-', "_"), &mut chosen, 0)?;
        }
        Ok(chosen)
    }

    fn add(&self, name: &str, chosen: &mut Vec<Module>, depth: u32) -> Result<(), GuestError> {
        let is_there = chosen.iter().any(|module| module.name == name);
        // A chain longer than any real one goes round in a circle.
        if is_there || depth > 32 || self.built_in.iter().any(|other| other == name) {
            return Ok(());
        }
        let Some(path) = self.by_name.get(name) else {
            return Err(GuestError::Missing(format!(
                "the kernel has no module {name}"
            )));
        };
        let bytes = read(path)?;
        for needed in depends(&bytes) {
            self.add(&needed, chosen, depth + 1)?;
        }
        chosen.push(Module {
            name: name.to_owned(),
            bytes,
        });
        Ok(())
    }
}

/// `virtio-rng.ko.xz` is `virtio_rng`.
fn name_of(file: &str) -> Option<String> {
    let (name, kind) = file.split_once(".ko")?;
    ["", ".xz"].contains(&kind).then(|| name.replace('-', "_"))
}

fn read(path: &Path) -> Result<Vec<u8>, GuestError> {
    if path.extension().is_some_and(|extension| extension == "xz") {
        let output = Command::new("xz").arg("-dc").arg(path).output();
        return Ok(output.map_err(host("xz cannot be started"))?.stdout);
    }
    fs::read(path).map_err(file(path))
}

/// What a module says that it depends on: a text in it, `depends=` and names.
fn depends(module: &[u8]) -> Vec<String> {
    const MARK: &[u8] = b"\0depends=";
    let Some(at) = module.windows(MARK.len()).position(|bytes| bytes == MARK) else {
        return Vec::new();
    };
    let rest = &module[at + MARK.len()..];
    let end = rest
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(rest.len());
    let text = String::from_utf8_lossy(&rest[..end]);
    let names = text.split(',').filter(|name| !name.is_empty());
    names.map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_come_after_what_they_depend_on() {
        let directory = tempfile::tempdir().expect("a directory");
        let modules = directory.path().join("lib/modules/1.2/kernel");
        fs::create_dir_all(&modules).expect("directories");
        let put = |name: &str, content: &str| {
            fs::write(modules.join(name), content).expect("a file");
        };
        put("top.ko", "x\0depends=mid-dle,base\0y");
        put("mid-dle.ko", "x\0depends=base,inside\0y");
        put("base.ko", "x\0depends=\0y");
        put("modules.builtin", "kernel/a/inside.ko\n");
        let found = Modules::find(directory.path()).expect("modules");
        let names = |wanted: &[&str]| {
            let wanted: Vec<_> = wanted.iter().map(|&name| name.to_owned()).collect();
            let order = found.resolve(&wanted);
            order.map(|order| order.into_iter().map(|m| m.name).collect::<Vec<_>>())
        };
        assert_eq!(
            names(&["top"]).expect("all there"),
            ["base", "mid_dle", "top"]
        );
        assert!(names(&["none"]).is_err_and(|error| error.is_missing()));
    }
}
