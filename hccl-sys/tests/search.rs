//! The search finds what is there, names what is not, and mixes no two installations.

use std::fs;
use std::path::{Path, PathBuf};

use hccl_sys::search::{Library, Places, Why, candidates, probe};

/// No variable set and nothing installed.
fn nowhere(root: &Path) -> Places {
    Places {
        installations: vec![root.join("not-installed")],
        device_folder: root.join("dev"),
        ..Places::default()
    }
}

fn paths(places: &Places, library: Library) -> Vec<(PathBuf, Why)> {
    candidates(places)
        .into_iter()
        .filter(|candidate| candidate.library == library)
        .map(|candidate| (candidate.path, candidate.why))
        .collect()
}

#[test]
fn places_are_tried_in_the_documented_order_and_each_once() {
    let places = Places {
        hccl_so_path: Some(PathBuf::from("/opt/emu/libhccl-x.so")),
        ascend_home_path: Some(PathBuf::from("/home/cann")),
        ascend_toolkit_home: Some(PathBuf::from("/usr/local/Ascend/cann")),
        ..Places::default()
    };
    let machine = format!("{}-linux/lib64/libhccl.so", std::env::consts::ARCH);
    let home_of_machine = format!("/home/cann/{machine}");
    let toolkit_of_machine = format!("/usr/local/Ascend/cann/{machine}");
    let expected = [
        ("/opt/emu/libhccl-x.so", Why::HcclSoPath),
        ("libhccl.so", Why::Loader),
        ("/home/cann/lib64/libhccl.so", Why::AscendHomePath),
        (&home_of_machine, Why::AscendHomePath),
        (
            "/usr/local/Ascend/cann/lib64/libhccl.so",
            Why::AscendToolkitHome,
        ),
        (&toolkit_of_machine, Why::AscendToolkitHome),
        (
            "/usr/local/Ascend/ascend-toolkit/latest/lib64/libhccl.so",
            Why::Installation,
        ),
        (
            "/usr/local/Ascend/nnae/latest/lib64/libhccl.so",
            Why::Installation,
        ),
        (
            "/usr/local/Ascend/nnrt/latest/lib64/libhccl.so",
            Why::Installation,
        ),
    ];
    let expected: Vec<(PathBuf, Why)> = expected
        .iter()
        .map(|(path, why)| (PathBuf::from(path), *why))
        .collect();
    assert_eq!(paths(&places, Library::Hccl), expected);
    let runtime = paths(&places, Library::AscendCl);
    assert_eq!(
        runtime[0],
        (
            PathBuf::from("/opt/emu/libascendcl.so"),
            Why::BesideHcclSoPath
        )
    );
    for library in Library::ALL {
        assert!(paths(&places, library).len() >= 6, "{library}");
    }
}

#[test]
fn a_bare_name_in_the_variable_is_left_to_the_loader() {
    let places = Places {
        hccl_so_path: Some(PathBuf::from("libhccl.so")),
        ..Places::default()
    };
    let bare = PathBuf::from("libhccl.so");
    assert_eq!(paths(&places, Library::Hccl)[0], (bare, Why::HcclSoPath));
    assert_eq!(paths(&places, Library::Hcomm)[0].1, Why::Loader);
}

#[test]
fn a_machine_without_the_vendor_says_in_one_line_what_is_missing_and_in_full_where_it_looked() {
    let root = tempfile::tempdir().expect("a folder");
    let probe = probe(&nowhere(root.path()));
    assert!(!probe.is_usable());
    if probe
        .outcomes
        .iter()
        .any(|outcome| outcome.loaded.is_some())
    {
        // The loader of this machine does know the vendor's libraries.
        return;
    }
    assert_eq!(
        probe.obstacle(),
        Some(format!(
            "no NPU ({}/dev/davinci*), no libhccl.so, no libascendcl.so or libacl_rt.so",
            root.path().display()
        ))
    );
    let lines = probe.lines();
    // Four libraries, by name and in one folder each; then the loader's path and the devices.
    assert_eq!(lines.len(), 4 * 2 + 2, "{lines:#?}");
    assert!(lines[0].starts_with("libhccl.so (loader path): "));
    assert!(
        lines[0].contains("cannot open shared object file"),
        "{lines:#?}"
    );
    assert_eq!(lines[8], "LD_LIBRARY_PATH: not set");
    assert!(lines[9].ends_with("0 device nodes"));
}

#[test]
fn a_file_that_is_no_library_is_named_with_what_the_loader_says_of_it() {
    let root = tempfile::tempdir().expect("a folder");
    let lib64 = root.path().join("toolkit/lib64");
    fs::create_dir_all(&lib64).expect("a folder");
    let file = lib64.join("libhccl.so");
    fs::write(&file, "not a library").expect("a file");
    let places = Places {
        ascend_home_path: Some(root.path().join("toolkit")),
        ..nowhere(root.path())
    };
    let probe = probe(&places);
    let outcome = &probe.outcomes[0];
    assert_eq!(outcome.library, Library::Hccl);
    assert_eq!(outcome.loaded, None);
    let there: Vec<_> = outcome
        .failures
        .iter()
        .filter(|failure| failure.exists)
        .collect();
    assert_eq!(there.len(), 1);
    assert_eq!(there[0].candidate.path, file);
    assert_eq!(there[0].candidate.why, Why::AscendHomePath);
    let obstacle = probe.obstacle().expect("it does not load");
    let start = format!("{} does not load: ", file.display());
    assert!(obstacle.contains(&start), "{obstacle}");
}

#[test]
fn a_file_on_the_loader_path_that_does_not_load_is_known_to_be_there() {
    let root = tempfile::tempdir().expect("a folder");
    fs::write(root.path().join("libhcomm.so"), "").expect("a file");
    let places = Places {
        ld_library_path: Some(format!("/nonexistent:{}", root.path().display())),
        ..nowhere(root.path())
    };
    let probe = probe(&places);
    let failure = &probe.outcomes[1].failures[0];
    assert_eq!(failure.candidate.why, Why::Loader);
    assert!(failure.exists);
    assert!(!probe.outcomes[0].failures[0].exists);
}

#[test]
fn device_nodes_are_counted_by_number_and_the_manager_is_none() {
    let root = tempfile::tempdir().expect("a folder");
    let dev = root.path().join("dev");
    fs::create_dir(&dev).expect("a folder");
    for name in [
        "davinci10",
        "davinci2",
        "davinci_manager",
        "davinci",
        "null",
    ] {
        fs::write(dev.join(name), "").expect("a file");
    }
    let probe = probe(&nowhere(root.path()));
    assert_eq!(probe.devices, [dev.join("davinci2"), dev.join("davinci10")]);
    let obstacle = probe.obstacle().expect("no library");
    assert!(!obstacle.contains("NPU"), "{obstacle}");
}

#[test]
fn what_loads_is_reported_with_its_place() {
    // Any library of the system will do: only that it loads is of interest here.
    let system = [
        "/lib/x86_64-linux-gnu/libm.so.6",
        "/lib/aarch64-linux-gnu/libm.so.6",
    ]
    .into_iter()
    .chain(["/lib64/libm.so.6", "/usr/lib/libm.so.6"])
    .map(Path::new)
    .find(|path| path.exists());
    let Some(system) = system else {
        return;
    };
    let root = tempfile::tempdir().expect("a folder");
    let places = Places {
        hccl_so_path: Some(system.to_owned()),
        ..nowhere(root.path())
    };
    let probe = probe(&places);
    let loaded = probe.outcomes[0].loaded.as_ref().expect("it loads");
    assert_eq!(
        (loaded.path.as_path(), loaded.why),
        (system, Why::HcclSoPath)
    );
    assert!(probe.lines()[0].ends_with("(HCCL_SO_PATH): loaded"));
    assert!(!probe.is_usable(), "a library alone is no device");
}
