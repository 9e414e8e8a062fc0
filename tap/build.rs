//! How the library is linked: as libhccl.so, which needs the vendor's libraries under other names.

#![expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script by variables"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// What the tap needs, in this order. The first one is the tap itself by its other name: the loader notes that name for
/// it before it meets the vendor's library of that name. Then the names under which the vendor's libraries lie beside it.
const NEEDED: [&str; 3] = [
    "libhcomm.so",
    "libhccl.muster-real.so",
    "libhcomm.muster-real.so",
];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CC");
    // `rustc-cdylib-link-arg` would reach every cdylib that depends on this package, as the Python module does.
    println!("cargo:rustc-link-arg=-Wl,-soname,libhccl.so");
    // Its thread runs until the process ends, whatever a program unloads.
    println!("cargo:rustc-link-arg=-Wl,-z,nodelete");
    // In its own folder first, whatever LD_LIBRARY_PATH says: the old form of the entry goes before that variable.
    println!("cargo:rustc-link-arg=-Wl,--disable-new-dtags,-rpath,$ORIGIN");
    println!("cargo:rustc-link-arg=-Wl,--no-as-needed");
    let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for name in NEEDED {
        println!("cargo:rustc-link-arg={}", stand_in(&folder, name).display());
    }
    println!("cargo:rustc-link-arg=-Wl,--as-needed");
}

/// An empty library of which the linker notes the name.
fn stand_in(folder: &Path, name: &str) -> PathBuf {
    let library = folder.join(name);
    let source = folder.join("empty.c");
    fs::write(&source, "").expect("OUT_DIR can be written");
    let made = Command::new(compiler())
        .args(["-shared", "-nostdlib", "-o"])
        .arg(&library)
        .arg(format!("-Wl,-soname,{name}"))
        .arg(&source)
        .status();
    assert!(
        made.is_ok_and(|status| status.success()),
        "the C compiler that links Rust programs makes no shared library; set CC to one that does"
    );
    library
}

/// What links programs for the target.
fn compiler() -> String {
    let of = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    of("CC")
        .or_else(|| of("RUSTC_LINKER"))
        .unwrap_or_else(|| "cc".to_owned())
}
