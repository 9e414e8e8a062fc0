//! What a job pays for those that look at it, and for being recorded: `muster bench` alone, below ten `muster top`, and
//! with a recording. The three take turns.

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use muster_benches::batches::time_asked;
use serde_json::Value;

/// Turns that the ways take.
const TURNS: usize = 7;
const VIEWERS: usize = 10;
const SIZES: [&str; 3] = ["8", "1024", "65536"];
const WAYS: [&str; 3] = ["alone", "ten viewers", "recorded"];

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let Some(time) = time_asked("viewers", Duration::from_secs(1)) else {
        return Ok(());
    };
    let turns = if time.is_zero() { 1 } else { TURNS };
    let stage = Stage {
        program: program()?,
        folder: tempfile::tempdir()?,
    };
    let mut out = std::io::stdout();
    writeln!(
        out,
        "all_reduce of two ranks: us a call, least and median of {turns} runs' medians"
    )?;
    let heads = ["bytes", "way", "least", "median", "over alone"];
    writeln!(
        out,
        "{:>6} {:<12} {:>9} {:>9} {:>10}",
        heads[0], heads[1], heads[2], heads[3], heads[4]
    )?;
    for bytes in SIZES {
        let mut taken: [Vec<f64>; WAYS.len()] = Default::default();
        for _ in 0..turns {
            for (way, taken) in WAYS.iter().zip(&mut taken) {
                taken.push(stage.time(way, bytes)?);
            }
        }
        let mut alone = None;
        for (way, mut taken) in WAYS.iter().zip(taken) {
            taken.sort_unstable_by(f64::total_cmp);
            let (least, median) = (taken[0], taken[taken.len() / 2]);
            let alone = *alone.get_or_insert(median);
            writeln!(
                out,
                "{bytes:>6} {way:<12} {least:>9.2} {median:>9.2} {:>9.2}x",
                median / alone
            )?;
        }
    }
    Ok(())
}

/// The tool, which cargo has built beside the benchmark.
fn program() -> Outcome<PathBuf> {
    let own = std::env::current_exe()?;
    let built = own.parent().and_then(Path::parent).ok_or("no folder")?;
    let program = built.join("muster");
    if program.exists() {
        return Ok(program);
    }
    Err("the tool is not built: cargo build --release".into())
}

struct Stage {
    program: PathBuf,
    folder: tempfile::TempDir,
}

/// Programs that look, ended with this.
struct Viewers(Vec<Child>);

impl Drop for Viewers {
    fn drop(&mut self) {
        for viewer in &mut self.0 {
            // It may have ended by itself.
            let _ = viewer.kill();
            let _ = viewer.wait();
        }
    }
}

impl Stage {
    /// Microseconds of a call, the median of a run.
    fn time(&self, way: &str, bytes: &str) -> Outcome<f64> {
        let folder = self.folder.path();
        let viewers = if way == "ten viewers" { VIEWERS } else { 0 };
        let view = |number: usize| {
            let file = folder.join(format!("viewer-{number}.prom"));
            let mut command = Command::new(&self.program);
            command
                .args(["top", "--every", "500ms", "--prometheus"])
                .arg(file)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.spawn()
        };
        let _viewers = Viewers((0..viewers).map(view).collect::<Result<_, _>>()?);
        let mut command = Command::new(&self.program);
        command
            .args(["bench", "all_reduce", "-n", "2", "-b", bytes, "-e", bytes])
            .args(["--format", "json"]);
        if way == "recorded" {
            command.env("MUSTER_RECORD_DIR", folder.join("recording"));
        }
        let output = command.output()?;
        let failed = || format!("{way}: {}", String::from_utf8_lossy(&output.stderr));
        let result: Value = serde_json::from_slice(&output.stdout).map_err(|_| failed())?;
        let median = result["records"][0]["latency_us"]["median"].as_f64();
        median.ok_or_else(|| failed().into())
    }
}
