//! Disk images in containers: what is served of them is the container, byte by byte.

use super::volumes::Source;
use std::fs::File;
use std::os::unix::fs::FileExt;
use tracing::warn;

/// What files of these formats begin with, and what qemu-nbd calls the format.
const FORMATS: [(&[u8], &str); 4] = [
    (b"QFI\xfb", "qcow2"),
    (b"KDMV", "vmdk"),
    (b"vhdxfile", "vhdx"),
    (b"conectix", "vpc"),
];

/// The format of the container that begins so.
fn format_of(beginning: &[u8]) -> Option<&'static str> {
    let begins = |(magic, _): &&(&[u8], &str)| beginning.starts_with(magic);
    FORMATS.iter().find(begins).map(|(_, format)| *format)
}

/// Warns of a file that holds a disk image in a container, since a guest would see the container.
pub(super) fn warn_of(name: &str, source: &Source) {
    let Source::File(path) = source else {
        return;
    };
    let mut beginning = [0; 8];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut beginning, 0));
    // What cannot be read here fails where it is used.
    let Some(format) = read.ok().and_then(|()| format_of(&beginning)) else {
        return;
    };
    let path = path.display();
    warn!(
        volume = name,
        %path,
        format,
        "{name}: {path} looks like a {format} image, and its bytes are served as they are, not the disk in it; \
         convert it (qemu-img convert -f {format} -O raw), or serve it with qemu-nbd --format={format} --socket=PATH {path} \
         and name nbd+unix:///?socket=PATH as the source"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers_are_known_by_their_first_bytes() {
        assert_eq!(format_of(b"QFI\xfb\0\0\0\x03"), Some("qcow2"));
        assert_eq!(format_of(b"vhdxfile"), Some("vhdx"));
        assert_eq!(format_of(b"\xeb\x63\x90\0\0\0\0\0"), None);
    }
}
