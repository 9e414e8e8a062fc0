//! Where Python lies and what is installed for it, told from files: no interpreter is started.

use super::System;

/// The first Python interpreter in `PATH`.
pub(super) fn interpreter(system: &System) -> Option<String> {
    let path = system
        .text("PATH")
        .unwrap_or("/usr/local/bin:/usr/bin:/bin");
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .flat_map(|folder| ["python3", "python"].map(|name| format!("{folder}/{name}")))
        .find(|file| system.exists(file))
}

/// Folders in which packages may lie: `PYTHONPATH`, then those of the environment and the system.
pub(super) fn package_folders(system: &System) -> Vec<String> {
    let mut found: Vec<String> = python_path(system);
    let mut roots: Vec<String> = ["VIRTUAL_ENV", "CONDA_PREFIX"]
        .into_iter()
        .filter_map(|name| system.text(name).map(|root| format!("{root}/lib")))
        .collect();
    if let Some(bin) = interpreter(system)
        && let Some((root, _)) = bin.rsplit_once("/bin/")
    {
        roots.push(format!("{root}/lib"));
    }
    roots.extend(["/usr/local/lib".to_owned(), "/usr/lib".to_owned()]);
    for root in roots {
        for name in system.names(&root) {
            if name.starts_with("python3") {
                found.push(format!("{root}/{name}/site-packages"));
                found.push(format!("{root}/{name}/dist-packages"));
            }
        }
    }
    found.retain(|folder| system.exists(folder));
    found.dedup();
    let linked: Vec<String> = found
        .iter()
        .flat_map(|folder| linked(system, folder))
        .collect();
    found.extend(linked);
    found
}

/// The folders that `.pth` files of this folder add, as `pip install -e` makes them.
fn linked(system: &System, folder: &str) -> Vec<String> {
    let names = system.names(folder).into_iter();
    let texts = names
        .filter(|name| name.ends_with(".pth"))
        .filter_map(|name| system.read(format!("{folder}/{name}")));
    let folders = texts.flat_map(|text| {
        let lines = text.lines().filter(|line| line.starts_with('/'));
        lines.map(|line| line.trim().to_owned()).collect::<Vec<_>>()
    });
    folders.filter(|folder| system.exists(folder)).collect()
}

/// Where Python finds a module such as `megatron.core`, if it does. A program that starts in the folder of a module finds it
/// there, which is not known here.
pub(super) fn module(system: &System, name: &str) -> Option<String> {
    let path = name.replace('.', "/");
    let top = name.split('.').next().unwrap_or(name);
    package_folders(system).into_iter().find_map(|folder| {
        let place = format!("{folder}/{path}");
        if system.exists(format!("{place}/__init__.py")) || system.exists(format!("{place}.py")) {
            return Some(place);
        }
        // An editable install may import it from anywhere.
        let is_editable =
            |entry: &&String| entry.starts_with("__editable__") && entry.contains(top);
        let names = system.names(&folder);
        let editable = names.iter().find(is_editable)?;
        Some(format!("{folder}/{editable}"))
    })
}

/// The folders of `PYTHONPATH`.
pub(super) fn python_path(system: &System) -> Vec<String> {
    let path = system.text("PYTHONPATH").unwrap_or_default();
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The version of an installed package and the folder that says so.
pub(super) fn package(system: &System, name: &str) -> Option<(String, String)> {
    let plain = name.replace('-', "_");
    for folder in package_folders(system) {
        for entry in system.names(&folder) {
            let Some(stem) = entry.strip_suffix(".dist-info") else {
                continue;
            };
            let Some((found, version)) = stem.rsplit_once('-') else {
                continue;
            };
            if found.replace('-', "_").eq_ignore_ascii_case(&plain) {
                return Some((version.to_owned(), format!("{folder}/{entry}")));
            }
        }
    }
    None
}
