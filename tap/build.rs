//! How the library is linked: as libhccl.so, which needs the vendor's library under another name.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script by variables"
)]

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

/// The name under which the vendor's library lies beside the tap.
const REAL: &str = "libhccl.muster-real.so";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CC");
    // `rustc-cdylib-link-arg` would reach every cdylib that depends on this package, as the Python module does.
    println!("cargo:rustc-link-arg=-Wl,-soname,libhccl.so");
    // Its thread runs until the process ends, whatever a program unloads.
    println!("cargo:rustc-link-arg=-Wl,-z,nodelete");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let stand_in = folder.join(REAL);
    // The linker notes the name of this empty library. At run time the vendor's has it.
    let source = folder.join("empty.c");
    fs::write(&source, "").expect("OUT_DIR can be written");
    let made = Command::new(compiler())
        .args(["-shared", "-nostdlib", "-o"])
        .arg(&stand_in)
        .arg(format!("-Wl,-soname,{REAL}"))
        .arg(&source)
        .status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "the C compiler that links Rust programs makes no shared library; set CC to one that does"
    );
    println!("cargo:rustc-link-arg=-Wl,--no-as-needed");
    println!("cargo:rustc-link-arg={}", stand_in.display());
    println!("cargo:rustc-link-arg=-Wl,--as-needed");
}

/// What links programs for the target.
fn compiler() -> String {
    let of = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    of("CC")
        .or_else(|| of("RUSTC_LINKER"))
        .unwrap_or_else(|| "cc".to_owned())
}
