//! The worked example of `docs/ci.md`: its YAML is YAML, and its script does what the page says.

use std::path::{Path, PathBuf};
use std::process::Command;

use muster_tests::{Ended, binary, start};

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/ci.md");
    std::fs::read_to_string(path).expect("the page")
}

/// The fenced blocks of one language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    let after = page.split(fence.as_str()).skip(1);
    after.filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn the_jobs_are_yaml() {
    let page = page();
    let jobs = blocks(&page, "yaml");
    assert_eq!(jobs.len(), 2);
    for job in jobs {
        assert!(job.contains("sh ci/muster.sh baseline results"), "{job}");
        let program = "import sys, yaml; assert len(yaml.safe_load(sys.argv[1])) > 0";
        let Ok(output) = Command::new("python3").args(["-c", program, job]).output() else {
            println!("skipped: there is no python3");
            return;
        };
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("No module named") {
            println!("skipped: python3 has no yaml");
            return;
        }
        assert!(output.status.success(), "{said}");
    }
}

/// The script of the page, with the program on its path and short choices.
fn script(folder: &Path, baseline: &str, results: &str) -> Ended {
    let path = folder.join("muster.sh");
    std::fs::write(&path, blocks(&page(), "sh")[0]).expect("written");
    let bin = binary().parent().expect("a folder").display().to_string();
    let of = |name: &str| folder.join(name).display().to_string();
    let words = [path.display().to_string(), of(baseline), of(results)];
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let variables = [
        ("PATH", format!("{bin}:/usr/bin:/bin")),
        ("MATRICES", "tp2 --dtypes f32 --sizes 8".to_owned()),
        ("BENCH", "all_reduce -g 2 -e 64 -n 3".to_owned()),
        (
            "MOE",
            "--hidden 64 --experts 4 --top-k 2 --ep 2 -t 4 -n 1".to_owned(),
        ),
    ];
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    start(Path::new("/bin/sh"), &words, &variables).wait()
}

#[test]
fn the_script_keeps_files_compares_them_and_ends_with_the_worst_code() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| -> PathBuf { folder.path().join(name) };
    script(folder.path(), "baseline", "first").expect_code(0);
    let summary = std::fs::read_to_string(file("first/summary.md")).expect("a summary");
    assert_eq!(summary.matches("no baseline yet").count(), 3, "{summary}");
    // What was measured is the baseline of the next run.
    std::fs::rename(file("first"), file("baseline")).expect("moved");
    let ended = script(folder.path(), "baseline", "second");
    // Nobody knows how the machine was: what counts is that every file was judged.
    assert!(
        matches!(ended.code, Some(0 | 50 | 70)),
        "{:?} {}",
        ended.code,
        ended.stderr
    );
    let summary = std::fs::read_to_string(file("second/summary.md")).expect("a summary");
    assert_eq!(
        summary.matches("### muster compare").count(),
        3,
        "{summary}"
    );
    // A row less in the baseline's successor is no pass.
    let path = file("baseline/moe.json");
    let text = std::fs::read_to_string(&path).expect("a file");
    std::fs::write(
        &path,
        text.replace("\"tokens\":4,\"routing\"", "\"tokens\":5,\"routing\""),
    )
    .expect("written");
    let ended = script(folder.path(), "baseline", "third");
    assert!(
        matches!(ended.code, Some(50 | 70)),
        "{:?} {}",
        ended.code,
        ended.stderr
    );
    let summary = std::fs::read_to_string(file("third/summary.md")).expect("a summary");
    assert!(summary.contains("| missing | dispatch"), "{summary}");
}
