//! Tells the tool where it is built: cargo leaves the emulator's library there, and `cargo install` copies only the tool.

use std::path::Path;

#[expect(
    clippy::disallowed_methods,
    reason = "cargo speaks to a build script by variables"
)]
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Ok(out) = std::env::var("OUT_DIR") else {
        return;
    };
    // TARGET/PROFILE/build/muster-HASH/out
    if let Some(profile) = Path::new(&out).ancestors().nth(3) {
        // `cargo run` gives it to the program too, which warns of names that begin as its own do.
        println!(
            "cargo::rustc-env=BUILD_DEPS_OF_MUSTER={}",
            profile.join("deps").display()
        );
    }
}
