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
    found
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
