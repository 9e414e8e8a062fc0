//! `cargo run -p xtask -- lines`: how much code each crate holds, with and without its tests.
//!
//! A line of code is one that is neither blank nor only a comment. Tests are files in a folder `tests` or `benches`,
//! files named `tests.rs`, and what stands behind `#[cfg(test)]`: modules, in whichever file, and single items.
//! The sources are formatted by rustfmt, so an item ends where a line of its own depth closes it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::invariants::find_sources;
use crate::{Failure, root};

const TEST_ONLY: &str = "#[cfg(test)]";

/// Lines of code.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    code: usize,
    tests: usize,
}

/// A row for each crate, and the sum.
pub(crate) fn table() -> Result<String, Failure> {
    let root = root();
    let mut paths = Vec::new();
    find_sources(&root, &mut paths)?;
    let mut sources = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path)?;
        sources.push((path.strip_prefix(&root)?.to_owned(), text));
    }
    let modules: BTreeSet<PathBuf> = sources
        .iter()
        .flat_map(|(path, text)| test_modules(path, text))
        .collect();
    let mut crates: BTreeMap<String, Count> = BTreeMap::new();
    let mut sum = Count::default();
    for (path, text) in &sources {
        let mut count = count(text);
        if is_test(path) || path.ancestors().any(|above| modules.contains(above)) {
            count.tests += std::mem::take(&mut count.code);
        }
        let name = path.components().next().map(|first| first.as_os_str());
        let name = name.unwrap_or_default().to_string_lossy().into_owned();
        let row = crates.entry(name).or_default();
        for row in [row, &mut sum] {
            row.code += count.code;
            row.tests += count.tests;
        }
    }
    let mut text = format!("{:<12}{:>9}{:>9}\n", "crate", "code", "tests");
    for (name, count) in crates.iter().chain([(&"all".to_owned(), &sum)]) {
        writeln!(text, "{name:<12}{:>9}{:>9}", count.code, count.tests)?;
    }
    Ok(text)
}

fn is_test(path: &Path) -> bool {
    let is_test = |part: &std::ffi::OsStr| part == "tests" || part == "benches";
    path.iter().any(is_test) || path.ends_with("tests.rs")
}

/// The modules that a file declares for tests only: as the path of a folder, and of a file.
fn test_modules(path: &Path, text: &str) -> Vec<PathBuf> {
    let is_folder = ["mod.rs", "lib.rs", "main.rs"]
        .iter()
        .any(|name| path.ends_with(name));
    let folder = match path.parent() {
        Some(folder) if is_folder => folder.to_owned(),
        _ => path.with_extension(""),
    };
    let after = text.split(TEST_ONLY).skip(1);
    let declared = after.filter_map(|after| {
        let (words, _) = after.trim_start().split_once(';')?;
        let (before, name) = words.rsplit_once("mod ")?;
        (!before.contains(['{', '\n'])).then_some(name)
    });
    declared
        .flat_map(|name| [folder.join(name), folder.join(format!("{name}.rs"))])
        .collect()
}

/// The lines of a file that is no test as a whole.
fn count(text: &str) -> Count {
    let mut count = Count::default();
    // The depth of the item for tests that we are in.
    let mut inside: Option<usize> = None;
    for line in text.lines() {
        let words = line.trim_start();
        if words.is_empty() || words.starts_with("//") {
            continue;
        }
        let depth = line.len() - words.len();
        if inside.is_none() && words.starts_with(TEST_ONLY) {
            inside = Some(depth);
        }
        match inside {
            Some(_) => count.tests += 1,
            None => count.code += 1,
        }
        if inside == Some(depth) && words.ends_with(['}', ';', ',']) {
            inside = None;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_blank_lines_are_no_code_and_items_for_tests_are_tests() {
        let text = "//! A.\n\nuse b;\n// c\n#[cfg(test)]\n#[path = \"x\"]\nmod tests {\n    fn d() {\n    }\n}\n\
                    fn e() {\n    #[cfg(test)]\n    f();\n    g();\n}\n";
        assert_eq!(count(text), Count { code: 4, tests: 8 });
    }

    #[test]
    fn a_module_for_tests_is_found_beside_its_file_or_in_the_folder_of_it() {
        let text = "mod a;\n#[cfg(test)]\npub(crate) mod b;\n#[cfg(test)]\nfn c() { x; }\n";
        let found = test_modules(Path::new("k/src/d.rs"), text);
        assert_eq!(found, [Path::new("k/src/d/b"), Path::new("k/src/d/b.rs")]);
        let found = test_modules(Path::new("k/src/mod.rs"), text);
        assert_eq!(found[1], Path::new("k/src/b.rs"));
        assert!(is_test(Path::new("k/src/d/tests.rs")) && is_test(Path::new("k/tests/a.rs")));
        assert!(!is_test(Path::new("k/src/contests.rs")));
    }
}
