//! Text files that a user names.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// The longest file that is read whole. A device such as `/dev/zero` has no end.
const TEXT_BYTES_MAX: u64 = 1 << 30;

/// The text of a file.
///
/// # Errors
///
/// The file cannot be read, is no UTF-8, or is longer than 1 GiB.
pub fn read_text(path: &Path) -> io::Result<String> {
    read_at_most(path, TEXT_BYTES_MAX)
}

fn read_at_most(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path)?;
    let mut bytes = file.metadata()?.len();
    if bytes <= bytes_max {
        // Pipes and devices do not say how long they are.
        file.take(bytes_max + 1).read_to_string(&mut text)?;
        bytes = text.len() as u64;
    }
    if bytes > bytes_max {
        return Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            "it is longer than 1 GiB, so it is another file than is meant here",
        ));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_an_end_is_refused() {
        let refused = read_at_most(Path::new("/dev/zero"), 1 << 16);
        let said = refused.expect_err("it has no end").to_string();
        assert!(said.starts_with("it is longer than"), "{said}");
        assert!(read_text(Path::new("/proc/self/status")).is_ok());
        assert!(read_text(Path::new("/")).is_err());
    }
}
