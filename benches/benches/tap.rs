//! What the tap costs a program that calls HCCL: the same calls without it, with it, and with its events, over the emulator
//! and over a library that does nothing. One rank; the programs take turns.

use std::error::Error;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use muster_benches::batches::time_asked;

/// Turns that the programs take.
const TURNS: usize = 10;
/// Calls of one turn, over the library that does nothing and over the emulator.
const CALLS: [u32; 2] = [5_000_000, 100_000];
/// What cargo calls the libraries.
const LIBRARIES: [&str; 2] = ["libmuster_tap.so", "libmuster_emu.so"];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let Some(time) = time_asked("tap", Duration::from_secs(1)) else {
        return Ok(());
    };
    let is_short = time.is_zero();
    let (turns, divisor) = if is_short { (1, 1000) } else { (TURNS, 1) };
    let folder = tempfile::tempdir()?;
    let stage = Stage::new(folder.path())?;
    let mut out = std::io::stdout();
    writeln!(
        out,
        "one rank, all_reduce of 8 bytes: ns a call and calls a second, least and median of {turns}"
    )?;
    let heads = ["library", "tap", "least", "median", "calls/s"];
    writeln!(
        out,
        "{:<10} {:<18} {:>9} {:>9} {:>12}",
        heads[0], heads[1], heads[2], heads[3], heads[4]
    )?;
    for (library, calls) in ["empty", "emulator"].into_iter().zip(CALLS) {
        let ways = [
            ("without", library.to_owned(), "0"),
            ("without events", format!("tap-{library}"), "0"),
            ("with events", format!("tap-{library}"), "1"),
        ];
        // The library that does nothing has no streams, and so no events.
        let ways = &ways[..if library == "empty" { 2 } else { 3 }];
        let mut taken = vec![Vec::new(); ways.len()];
        for _ in 0..turns {
            for ((_, libraries, events), taken) in ways.iter().zip(&mut taken) {
                taken.push(stage.time(libraries, events, calls / divisor)?);
            }
        }
        for ((way, ..), mut taken) in ways.iter().zip(taken) {
            taken.sort_unstable_by(f64::total_cmp);
            let (least, median) = (taken[0], taken[taken.len() / 2]);
            writeln!(
                out,
                "{library:<10} {way:<18} {least:>9.1} {median:>9.1} {:>12.0}",
                1e9 / median
            )?;
        }
    }
    Ok(())
}

/// The program, and folders with the libraries that it finds.
struct Stage {
    folder: PathBuf,
}

impl Stage {
    fn new(folder: &Path) -> Outcome<Self> {
        let own = std::env::current_exe()?;
        let built = own.parent().ok_or("no folder")?;
        let [tap, emulator] = LIBRARIES.map(|name| built.join(name));
        let stage = Self {
            folder: folder.to_owned(),
        };
        stage.compile("client", &["-O2", "-ldl"])?;
        std::fs::create_dir(folder.join("empty"))?;
        stage.compile(
            "empty/libhccl.so",
            &[
                "-O2",
                "-DEMPTY",
                "-shared",
                "-fPIC",
                "-Wl,-soname,libhccl.so",
            ],
        )?;
        std::fs::create_dir(folder.join("emulator"))?;
        for name in ["libhccl.so", "libascendcl.so"] {
            symlink(&emulator, folder.join("emulator").join(name))?;
        }
        for library in ["empty", "emulator"] {
            let front = folder.join(format!("tap-{library}"));
            std::fs::create_dir(&front)?;
            for name in ["libhccl.so", "libhcomm.so"] {
                symlink(&tap, front.join(name))?;
            }
            let real = folder.join(library).join("libhccl.so");
            for name in ["libhccl.muster-real.so", "libhcomm.muster-real.so"] {
                symlink(&real, front.join(name))?;
            }
        }
        symlink(&emulator, folder.join("tap-emulator/libascendcl.so"))?;
        Ok(stage)
    }

    fn compile(&self, name: &str, options: &[&str]) -> Outcome<()> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tap_client.c");
        let mut command = Command::new("cc");
        command
            .arg(source)
            .arg("-o")
            .arg(self.folder.join(name))
            .args(options);
        if command.status()?.success() {
            return Ok(());
        }
        Err(format!("the C compiler does not make {name}").into())
    }

    /// Nanoseconds a call with the libraries of a folder.
    fn time(&self, libraries: &str, events: &str, calls: u32) -> Outcome<f64> {
        let output = Command::new(self.folder.join("client"))
            .arg(calls.to_string())
            .env("LD_LIBRARY_PATH", self.folder.join(libraries))
            .env("MUSTER_TAP_EVENTS", events)
            .output()?;
        let said = String::from_utf8(output.stdout)?;
        let failed = || format!("{libraries}: {}", String::from_utf8_lossy(&output.stderr));
        said.trim().parse().map_err(|_| failed().into())
    }
}
