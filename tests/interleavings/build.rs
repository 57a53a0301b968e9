//! Takes files of other crates, without what they say of themselves and without their tests, which need what is modelled here.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

const FILES: [(&str, &str); 5] = [
    (
        "lock_turns.rs",
        "crates/futae-engine/src/engine/lock_turns.rs",
    ),
    ("mailbox.rs", "crates/futae-engine/src/mailbox.rs"),
    ("outbox.rs", "crates/futae-nbd-store/src/outbox.rs"),
    (
        "reader.rs",
        "crates/futae-agent-protocol/src/in_place/reader.rs",
    ),
    ("writer.rs", "crates/futae-agent/src/evictions/in_place.rs"),
];

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for (name, path) in FILES {
        let from = root.join(path);
        println!("cargo::rerun-if-changed={}", from.display());
        let text = fs::read_to_string(&from)?;
        let lines = text.lines().filter(|line| !line.starts_with("//!"));
        let lines = lines.take_while(|line| *line != "#[cfg(test)]");
        let text: String = lines.flat_map(|line| [line, "\n"]).collect();
        // The model's thread-local values are not made by the compiler.
        let text = text.replace(
            "const { RefCell::new(Vec::new()) }",
            "RefCell::new(Vec::new())",
        );
        fs::write(out.join(name), text)?;
    }
    Ok(())
}
