//! How the library is linked: it must stay loaded once it is.

fn main() {
    // Worker threads of streams run its code until the process ends, whatever a client unloads.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
