//! Compiles the eBPF programs, and tells the builds of other crates where the header is. Without clang the crate is built without
//! them, and says so.

use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rustc-check-cfg=cfg(futae_has_bpf)");
    let here = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names a place"));
    println!("cargo:include={}", here.join("src/bpf").display());
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo names a place"));
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    for name in ["marks", "bases"] {
        let mut command = Command::new(&clang);
        // The debug information holds the types by which the programs are fitted to a kernel.
        command.args([
            "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Werror",
        ]);
        command.args(["-fno-ident", "-fdebug-compilation-dir", "."]);
        command.arg("-c").arg(format!("src/bpf/{name}.bpf.c"));
        command.arg("-o").arg(out.join(format!("{name}.bpf.o")));
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => panic!("the eBPF programs were not compiled: clang ended with {status}"),
            Err(error) => {
                let clang = clang.to_string_lossy();
                println!("cargo:warning=futae-page-cache is built without eBPF: {clang}: {error}");
                return look_again_when_clang_may_be_there();
            }
        }
    }
    println!("cargo:rustc-cfg=futae_has_bpf");
}

/// Otherwise a build from before clang was installed would be taken for up to date ever after.
fn look_again_when_clang_may_be_there() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    for directory in std::env::split_paths(&path).filter(|directory| directory.is_dir()) {
        println!("cargo:rerun-if-changed={}", directory.display());
    }
}
