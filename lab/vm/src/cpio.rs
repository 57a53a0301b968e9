//! Archives as the Linux kernel unpacks them at boot (cpio, the format that is called newc).

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::Path;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;
const TRAILER: &str = "TRAILER!!!";

/// An archive being written.
pub struct Archive<W> {
    out: W,
    entries: u32,
    directories: BTreeSet<String>,
}

impl<W: Write> Archive<W> {
    /// An empty archive.
    pub fn new(out: W) -> Self {
        Self {
            out,
            entries: 0,
            directories: BTreeSet::new(),
        }
    }

    /// Adds a directory and those above it.
    pub fn directory(&mut self, path: &str) -> io::Result<()> {
        let path = path.trim_matches('/');
        if path.is_empty() || self.directories.contains(path) {
            return Ok(());
        }
        self.parents(path)?;
        self.directories.insert(path.to_owned());
        self.entry(path, DIRECTORY, &[])
    }

    /// Adds a file that can be read and executed.
    pub fn file(&mut self, path: &str, content: &[u8]) -> io::Result<()> {
        self.parents(path)?;
        self.entry(path, PROGRAM, content)
    }

    /// Adds a symbolic link.
    pub fn link(&mut self, path: &str, target: &str) -> io::Result<()> {
        self.parents(path)?;
        self.entry(path, LINK, target.as_bytes())
    }

    /// Ends the archive.
    pub fn finish(mut self) -> io::Result<W> {
        self.entry(TRAILER, 0, &[])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn parents(&mut self, path: &str) -> io::Result<()> {
        match Path::new(path.trim_matches('/')).parent() {
            Some(parent) => self.directory(&parent.to_string_lossy()),
            None => Ok(()),
        }
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let name = path.trim_start_matches('/');
        let length = u32::try_from(content.len())
            .map_err(|_| io::Error::new(io::ErrorKind::FileTooLarge, "more than 4 GiB"))?;
        self.entries += 1;
        // Number, mode, user, group, links, time, length, two device numbers twice, length of the
        // name with its zero, and a check sum that this format leaves out.
        let name_length = name.len() as u32 + 1;
        let numbers = [
            self.entries,
            mode,
            0,
            0,
            1,
            0,
            length,
            0,
            0,
            0,
            0,
            name_length,
            0,
        ];
        write!(self.out, "070701")?;
        for number in numbers {
            write!(self.out, "{number:08x}")?;
        }
        write!(self.out, "{name}\0")?;
        self.pad(110 + name.len() + 1)?;
        self.out.write_all(content)?;
        self.pad(content.len())
    }

    fn pad(&mut self, written: usize) -> io::Result<()> {
        let rest = written.next_multiple_of(4) - written;
        self.out.write_all(&[0; 3][..rest])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_aligned_and_directories_come_once_and_first() {
        let mut archive = Archive::new(Vec::new());
        for path in ["/a/b/one", "a/b/two"] {
            archive.file(path, b"12345").expect("a vector takes it");
        }
        archive.link("a/three", "b/one").expect("a vector takes it");
        let bytes = archive.finish().expect("a vector takes it");
        assert!(bytes.len().is_multiple_of(4));
        let text = String::from_utf8(bytes).expect("all of it is text");
        let begins: Vec<_> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert!(begins.iter().all(|at| at.is_multiple_of(4)), "{begins:?}");
        let name = |&at: &usize| text[at + 110..].split('\0').next().unwrap_or_default();
        let names: Vec<_> = begins.iter().map(name).collect();
        assert_eq!(
            names,
            ["a", "a/b", "a/b/one", "a/b/two", "a/three", TRAILER]
        );
    }
}
