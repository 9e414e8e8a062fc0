//! What the pages for people say is what the code does: the example of the README is the one that
//! is compiled, the output it shows is what the commands print, links lead somewhere, and every
//! label of ARCHITECTURE.md stands in a source.

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| format!("{}: {error}", path.display()))
}

/// Every file below `folder` with this ending.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![root().join(folder)]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push(path);
            }
        }
    }
    found
}

/// The text of the fenced blocks of one language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(fence.as_str())
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect()
}

#[test]
fn the_example_of_the_readme_is_the_one_that_is_compiled() {
    let example = read("comm/examples/hello_world.rs");
    let code = &example[example.find("use ").expect("code")..];
    let page = read("README.md");
    assert_eq!(blocks(&page, "rust"), [code]);
}

#[test]
fn the_output_that_the_readme_shows_is_what_the_commands_print() {
    let page = read("README.md");
    let mut shown = 0;
    for block in blocks(&page, "text") {
        let Some((command, expected)) = block
            .strip_prefix("$ muster ")
            .and_then(|block| block.split_once('\n'))
        else {
            continue;
        };
        let output = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(command.split_whitespace())
            .env("NO_COLOR", "1")
            .output()
            .expect("the tool starts");
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8(printed).expect("UTF-8");
        assert!(
            printed.starts_with(expected),
            "muster {command} prints\n{printed}"
        );
        shown += 1;
    }
    assert_eq!(shown, 3);
}

#[test]
fn links_between_pages_lead_to_files() {
    let mut pages = files("docs", "md");
    let top = [
        "README",
        "ARCHITECTURE",
        "CONTRIBUTING",
        "CHANGELOG",
        "SECURITY",
    ];
    pages.extend(top.map(|name| root().join(format!("{name}.md"))));
    let mut links = 0;
    for page in &pages {
        let text = read(page);
        for link in text.split("](").skip(1) {
            let target = link.split([')', '#']).next().unwrap_or_default();
            if target.is_empty() || target.contains("://") {
                continue;
            }
            let path = page.parent().expect("a folder").join(target);
            assert!(path.exists(), "{} links to {target}", page.display());
            links += 1;
        }
    }
    assert!(links > 40, "only {links} links found");
}

#[test]
fn every_label_of_the_architecture_stands_in_a_source() {
    let rooms = [
        "comm/src",
        "harness/src",
        "hccl-emu/src",
        "hccl-sys/src",
        "python/src",
        "tap/src",
    ];
    let sources: String = rooms
        .iter()
        .flat_map(|room| files(room, "rs"))
        .map(read)
        .collect();
    let page = read("ARCHITECTURE.md");
    let mut labels = 0;
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let cell = line.split('|').nth(1).unwrap_or_default();
        let is_label = |word: &&str| {
            word.split_once('-').is_some_and(|(name, number)| {
                name.chars().all(|c| c.is_ascii_uppercase()) && number.parse::<u32>().is_ok()
            })
        };
        for label in cell.split([' ', ',']).filter(is_label) {
            let stands = [format!("{label}:"), format!("{label}`:")]
                .iter()
                .any(|text| sources.contains(text));
            assert!(stands, "{label} stands in no source");
            labels += 1;
        }
    }
    assert!(labels > 40, "only {labels} labels found");
}
