//! Pages in a real browser: that they render, without a complaint, and hold what they should.

use std::fs;
use std::path::Path;

use muster_tests::{find_program, skipped, start};

/// Its names in distributions.
const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
/// Nothing but the page: no network in the background, no first-run dialogue, no sandbox that a
/// container would refuse.
const OPTIONS: [&str; 10] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--no-default-browser-check",
    "--hide-scrollbars",
    "--enable-logging=stderr",
];

/// Loads a page and fails the test where the browser complains or shows no verdict; says so where
/// there is no browser.
pub(super) fn check(page: &str, command: &str) {
    let Some(program) = NAMES.iter().find_map(|name| find_program(name)) else {
        skipped("no chromium is installed (apt-get install chromium): no page is rendered");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("page.html");
    fs::write(&file, page).expect("written");
    for (width, height) in [("1440", "900"), ("500", "900")] {
        let dom = dom(&program, folder.path(), &file, &format!("{width},{height}"));
        let title = format!("<title>muster {command}: ");
        assert!(dom.contains(&title), "{command} at {width}: {dom}");
        let verdict = dom
            .split("id=\"verdict\">")
            .nth(1)
            .and_then(|rest| rest.split('<').next());
        assert!(
            verdict.is_some_and(|text| !text.trim().is_empty()),
            "{command}: {dom}"
        );
        assert!(
            !dom.contains("<script"),
            "{command}: markup of a stranger became markup"
        );
        assert!(dom.trim_end().ends_with("</html>"), "{command} at {width}");
    }
    let picture = folder.path().join("page.png");
    let shot = format!("--screenshot={}", picture.display());
    run(
        &program,
        folder.path(),
        &file,
        &["--window-size=1440,900", &shot],
    );
    let bytes = fs::metadata(&picture).expect("a picture").len();
    assert!(
        bytes > 10_000,
        "{command}: a picture of {bytes} bytes shows nothing"
    );
}

fn dom(program: &Path, folder: &Path, file: &Path, size: &str) -> String {
    run(
        program,
        folder,
        file,
        &[&format!("--window-size={size}"), "--dump-dom"],
    )
}

fn run(program: &Path, folder: &Path, file: &Path, more: &[&str]) -> String {
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    let address = format!("file://{}", file.display());
    let words = [&OPTIONS[..], more, &[&profile, &address]].concat();
    // Names of sockets and caches are made below the home of a user.
    let home = folder.to_str().expect("a path");
    let ended = start(
        program,
        &words,
        &[("HOME", home), ("XDG_RUNTIME_DIR", home)],
    )
    .wait_for_all();
    ended.expect_code(0);
    let complaints: Vec<&str> = ended
        .stderr
        .lines()
        .filter(|line| line.contains(":CONSOLE") || line.contains("Content Security Policy"))
        .collect();
    assert!(complaints.is_empty(), "{complaints:#?}");
    ended.stdout
}
