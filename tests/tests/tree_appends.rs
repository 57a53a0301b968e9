//! Appends of several megabytes to a file of a mounted tree, which the kernel sends as several requests at once.

use futae_tests::kernel_pages;
use futae_tests::rings;
use futae_tests::tools::{has, has_fuse, text};
use futae_tests::tree::{Tree, read};
use std::process::Command;

const PART: usize = 1 << 20;
const PARTS: usize = 8;
/// Requests that change places do so in about every third write.
const WRITES: usize = 24;

/// Appends `PARTS` megabytes, each of a byte of its own, `WRITES` times: past the page cache, and by asynchronous I/O, in turn.
const APPEND: &str = "\
import ctypes, mmap, os, struct, sys
name, part, parts, writes = sys.argv[1], *map(int, sys.argv[2:])
libc = ctypes.CDLL(None, use_errno=True)
setup, getevents, submit = (206, 208, 209) if os.uname().machine == 'x86_64' else (0, 4, 2)
def call(number, *words):
    answer = libc.syscall(ctypes.c_long(number), *words)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return answer
one = ctypes.c_long(1)
context = ctypes.c_ulong(0)
call(setup, ctypes.c_ulong(1), ctypes.byref(context))
data = mmap.mmap(-1, part * parts)
address = ctypes.addressof(ctypes.c_char.from_buffer(data))
for number in range(writes):
    for at in range(parts):
        data[at * part:(at + 1) * part] = bytes([(number * parts + at) % 251]) * part
    direct = os.O_DIRECT if number % 2 else 0
    file = os.open(name, os.O_CREAT | os.O_WRONLY | os.O_APPEND | direct, 0o644)
    if direct:
        written = os.write(file, data)
    else:
        fields = (0, 0, 0, 1, 0, file, address, part * parts, 0, 0, 0, 0)
        asked = ctypes.create_string_buffer(struct.pack('<QIIHhIQQqQII', *fields), 64)
        call(submit, context, one, (ctypes.c_void_p * 1)(ctypes.addressof(asked)))
        event = ctypes.create_string_buffer(32)
        call(getevents, context, one, one, event, None)
        written = struct.unpack('<QQqq', event.raw)[2]
    assert written == part * parts, written
    os.close(file)
";

#[test]
fn a_long_append_is_in_its_order() {
    if !has_fuse() || !has("python3") {
        return;
    }
    let mut tree = Tree::new();
    tree.mount(&["--cache", "32MiB"]);
    let path = tree.upper("file");
    let numbers = [PART, PARTS, WRITES].map(|number| number.to_string());
    let mut append = Command::new("python3");
    append.args(["-c", APPEND, text(&path)]).args(numbers);
    let ended = append.output().expect("python3 starts");
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{errors}");
    for path in [&path, &tree.lower("file")] {
        let all = read(path);
        let firsts: Vec<_> = all.chunks(PART).map(|part| usize::from(part[0])).collect();
        let expected: Vec<_> = (0..PARTS * WRITES).map(|part| part % 251).collect();
        assert_eq!(firsts, expected);
        assert!(all.chunks(PART).all(|part| part == vec![part[0]; PART]));
    }
    tree.stop();
}

#[test]
fn also_held_by_the_kernel() {
    kernel_pages::again(&["a_long_append"]);
}

#[test]
fn also_by_ring() {
    rings::again(&["a_long_append"]);
}
