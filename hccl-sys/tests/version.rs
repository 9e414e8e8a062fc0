//! Versions compare by number, and are found in the files of every layout.

use std::cmp::Ordering;
use std::fs;
use std::path::Path;

use hccl_sys::version::{
    Driver, Layout, Stage, TORCH_NPU_PACKAGES, TORCH_NPU_RELEASES, Toolkit, Version, VersionError,
    allows_several_processes, cann_of, cann_of_package, goes_with, oldest_driver, splits_libraries,
    torch_npu_of,
};
use proptest::prelude::*;

fn version(text: &str) -> Version {
    text.parse().expect("a version")
}

#[test]
fn versions_of_the_vendor_are_in_order() {
    let ascending = [
        "7.0.RC1",
        "7.0.0",
        "8.0.RC1.alpha001",
        "8.0.RC1.alpha003",
        "8.0.RC1.beta1",
        "8.0.RC1",
        "8.0.RC2.alpha002",
        "8.0.RC2",
        "8.0.RC3",
        "8.0.0",
        "8.1.RC1",
        "8.1.RC2",
        "8.1.0",
        "8.1.1",
        "8.2.RC1",
        "8.5.0.alpha001",
        "8.5.0.alpha002",
        "8.5.0-beta.1",
        "8.5.0-beta.2",
        "8.5.0-rc.1",
        "8.5.0",
        "8.5.1",
        "9.0.0",
        "9.1.0-beta.1",
        "9.1.0",
        "9.2.0-beta.2",
        "10.0.0",
        "23.0.rc1",
        "23.0.6",
        "24.1.rc2",
        "24.1.rc2.2",
        "24.1.rc3",
        "24.1.0",
        "24.1.1.1",
        "25.0.RC1",
    ];
    for (at, older) in ascending.iter().enumerate() {
        for newer in &ascending[at + 1..] {
            assert!(version(older) < version(newer), "{older} before {newer}");
            assert!(version(newer) > version(older), "{newer} after {older}");
        }
        assert_eq!(version(older), version(older));
    }
}

#[test]
fn spelling_does_not_matter_and_a_suffix_is_kept_but_not_compared() {
    assert_eq!(version("8.1.RC1"), version("8.1.0.rc1"));
    assert_eq!(version("8.5.0.beta1"), version("8.5.0-Beta.1"));
    assert_eq!(version(" 8.5 \n"), version("8.5.0"));
    let emulated = version("8.1.RC1-emulated-0.1.0");
    assert_eq!(emulated, version("8.1.RC1"));
    assert_eq!(emulated.suffix(), Some("emulated-0.1.0"));
    assert_eq!(emulated.to_string(), "8.1.RC1-emulated-0.1.0");
    assert!(emulated.is_emulated());
    assert_eq!(emulated.numbers(), [8, 1]);
    assert_eq!(emulated.stage(), Some((Stage::ReleaseCandidate, 1)));
    assert!(!version("8.1.RC1").is_emulated());
    let test_build = version("8.0.T63");
    assert_eq!(test_build.suffix(), Some("T63"));
    assert_eq!(test_build.stage(), None);
    assert_eq!(version("7.7.0.1.238").numbers(), [7, 7, 0, 1, 238]);
}

#[test]
fn what_is_no_version_is_refused() {
    let error = |text: &str| text.parse::<Version>().expect_err("no version");
    for text in ["", "  ", "A", "RC1", "v8.1", ".8", "-1"] {
        let expected = VersionError::NoNumber {
            text: text.trim().to_owned(),
        };
        assert_eq!(error(text), expected);
    }
    for text in ["8.", "8..1", "8.1.", "8.5.0-"] {
        let expected = VersionError::EmptyPart {
            text: text.to_owned(),
        };
        assert_eq!(error(text), expected);
    }
    let number = "4294967296".to_owned();
    assert_eq!(
        error("8.4294967296"),
        VersionError::NumberTooLarge {
            number: number.clone()
        }
    );
    assert_eq!(
        error("8.RC4294967296"),
        VersionError::NumberTooLarge { number }
    );
    assert_eq!(
        error(&"1".repeat(129)),
        VersionError::TooLong { bytes: 129 }
    );
}

#[test]
fn numbers_of_the_version_call_are_those_that_the_vendor_computes() {
    // Values of the vendor's documentation and tests.
    for (text, number) in [
        ("9.0.0", 90_000_000),
        ("8.5.1", 80_501_000),
        ("8.5.0.beta.1", 80_500_000 - 200 + 1),
        ("8.5.0.alpha001", 80_500_000 - 300 + 1),
        ("8.5.0-rc1", 80_500_000 - 100 + 1),
    ] {
        assert_eq!(version(text).number(), Some(number), "{text}");
        let back = Version::from_number(number).expect("a version");
        assert_eq!(back, version(text), "{text}");
    }
    assert_eq!(version("8.1.RC1").number(), None);
    assert_eq!(version("999.0.0").number(), None);
    for number in [0, -1, i32::MIN, i32::MAX, 80_500_000 - 301, 90_000_009] {
        assert_eq!(Version::from_number(number), None, "{number}");
    }
}

proptest! {
    #[test]
    fn any_text_is_a_version_or_an_error_and_a_version_keeps_its_text(text in "\\PC{0,40}") {
        if let Ok(version) = text.parse::<Version>() {
            prop_assert_eq!(version.as_str(), text.trim());
            prop_assert_eq!(version.cmp(&version.clone()), Ordering::Equal);
        }
    }

    #[test]
    fn numbers_compare_as_numbers(left in prop::array::uniform3(0_u32..300), right in prop::array::uniform3(0_u32..300)) {
        let text = |n: [u32; 3]| version(&format!("{}.{}.{}", n[0], n[1], n[2]));
        prop_assert_eq!(text(left).cmp(&text(right)), left.cmp(&right));
    }

    #[test]
    fn order_is_total(texts in prop::array::uniform3("[0-2](\\.[0-2]){0,3}(\\.(rc|beta|alpha)[0-2]?){0,2}(\\.[0-2])?(-emulated)?")) {
        let [a, b, c] = texts.map(|text| version(&text));
        prop_assert_eq!(a.cmp(&b), b.cmp(&a).reverse());
        if a <= b && b <= c {
            prop_assert!(a <= c);
        }
        if a == b {
            prop_assert_eq!(a.cmp(&c), b.cmp(&c));
        }
    }

    #[test]
    fn a_candidate_comes_before_its_release_and_after_the_release_before(
        numbers in prop::array::uniform3(0_u32..50), stage in "(alpha|beta|rc|RC)", own in 1_u32..99,
    ) {
        let [major, minor, patch] = numbers;
        let release = version(&format!("{major}.{minor}.{patch}"));
        let candidate = version(&format!("{release}.{stage}{own}"));
        let earlier = version(&format!("{release}.{stage}{}", own - 1));
        prop_assert!(earlier < candidate && candidate < release);
        if let Some(before) = patch.checked_sub(1) {
            let release_before = version(&format!("{major}.{minor}.{before}"));
            prop_assert!(release_before < earlier);
        }
    }

    #[test]
    fn the_number_of_a_version_says_which_it_is(
        numbers in prop::array::uniform3(0_u32..100), stage in 0_usize..4, own in 0_u32..99,
    ) {
        let [major, minor, patch] = numbers;
        prop_assume!(major > 0);
        let tail = ["", ".alpha", ".beta", ".rc"][stage];
        let own = if stage == 0 { String::new() } else { own.to_string() };
        let text = version(&format!("{major}.{minor}.{patch}{tail}{own}"));
        let number = text.number().expect("three numbers");
        prop_assert_eq!(Version::from_number(number), Some(text));
    }
}

/// Writes a file and the folders that it needs.
fn put(root: &Path, name: &str, text: &str) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    fs::write(path, text).expect("a file");
}

/// The layout of an installed 8.1.RC1.
fn old_toolkit(root: &Path) {
    put(
        root,
        "x86_64-linux/ascend_toolkit_install.info",
        "package_name=Ascend-cann-toolkit\nversion=8.1.RC1\ninnerversion=V100R001C21SPC001B238\n\
         compatible_version=[V100R001C15],[V100R001C18]\narch=x86_64\nos=linux\npath=/somewhere\n",
    );
    put(
        root,
        "version.cfg",
        "# version: 1.0\nruntime_running_version=[7.7.0.1.238:8.1.RC1]\n\
         hccl_running_version=[7.7.0.1.238:8.1.RC1]\naoe_running_version=[x:y]\n\
         runtime_installed_version=[7.7.0.1.238:8.1.RC1],[7.6.0.1.220:8.0.0]\n",
    );
    put(
        root,
        "hccl/version.info",
        "Version=7.7.0.1.238\nversion_dir=8.1.RC1\ntimestamp=20250428_203017761\n",
    );
}

#[test]
fn every_file_of_an_older_toolkit_is_read() {
    let root = tempfile::tempdir().expect("a folder");
    old_toolkit(root.path());
    let toolkit = Toolkit::read(root.path());
    assert!(toolkit.unreadable.is_empty(), "{:?}", toolkit.unreadable);
    let layouts: Vec<Layout> = toolkit.files.iter().map(|file| file.layout).collect();
    assert_eq!(
        layouts,
        [
            Layout::InstallInfo,
            Layout::VersionCfg,
            Layout::VersionCfg,
            Layout::PackageInfo
        ]
    );
    assert_eq!(toolkit.version().map(Version::as_str), Some("8.1.RC1"));
    assert_eq!(toolkit.disagreeing().count(), 0);
    let info = &toolkit.files[0];
    assert_eq!(info.package, "Ascend-cann-toolkit");
    assert_eq!(info.internal.as_deref(), Some("V100R001C21SPC001B238"));
    assert_eq!(info.fields["arch"], "x86_64");
    let hccl = &toolkit.files[3];
    assert_eq!(
        (hccl.package.as_str(), hccl.version.as_str()),
        ("hccl", "8.1.RC1")
    );
    assert_eq!(hccl.internal.as_deref(), Some("7.7.0.1.238"));
    assert_eq!(toolkit.files[1].internal.as_deref(), Some("7.7.0.1.238"));
}

#[test]
fn a_toolkit_is_found_below_latest_too() {
    let root = tempfile::tempdir().expect("a folder");
    old_toolkit(&root.path().join("latest"));
    let toolkit = Toolkit::read(root.path());
    assert_eq!(toolkit.version(), Some(&version("8.1.RC1")));
}

#[test]
fn every_file_of_a_newer_toolkit_is_read() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    put(
        root,
        "share/info/hcomm/version.info",
        "Version=9.1.0-beta.1\n",
    );
    put(
        root,
        "share/info/runtime/version.info",
        "Version=9.1.0-beta.1 \n",
    );
    put(
        root,
        "include/version/cann_version.h",
        "#ifndef X\n#define CANN_VERSION_STR \"9.1.0-beta.1\"\n#define CANN_MAJOR 9\n#endif\n",
    );
    put(
        root,
        "version.cfg",
        "toolkit_running_version=[9.1.0-beta.1]\n",
    );
    let toolkit = Toolkit::read(root);
    assert!(toolkit.unreadable.is_empty(), "{:?}", toolkit.unreadable);
    let packages: Vec<(Layout, &str)> = toolkit
        .files
        .iter()
        .map(|file| (file.layout, file.package.as_str()))
        .collect();
    assert_eq!(
        packages,
        [
            (Layout::Header, "toolkit"),
            (Layout::VersionCfg, "toolkit"),
            (Layout::ShareInfo, "hcomm"),
            (Layout::ShareInfo, "runtime"),
        ]
    );
    assert_eq!(toolkit.version(), Some(&version("9.1.0-beta.1")));
    assert_eq!(toolkit.disagreeing().count(), 0);
}

#[test]
fn parts_of_another_installation_are_named() {
    let root = tempfile::tempdir().expect("a folder");
    old_toolkit(root.path());
    put(
        root.path(),
        "runtime/version.info",
        "Version=7.6.0.1.220\nversion_dir=8.0.0\n",
    );
    // An internal number alone says nothing of a release.
    put(root.path(), "opp/version.info", "Version=7.6.0.1.220\n");
    let toolkit = Toolkit::read(root.path());
    let strangers: Vec<(&str, &str)> = toolkit
        .disagreeing()
        .map(|file| (file.package.as_str(), file.version.as_str()))
        .collect();
    assert_eq!(strangers, [("runtime", "8.0.0")]);
}

#[test]
fn files_that_state_nothing_are_named_with_the_reason() {
    let root = tempfile::tempdir().expect("a folder");
    put(root.path(), "hccl/version.info", "Version=\n");
    put(root.path(), "runtime/version.info", "Version=latest\n");
    put(root.path(), "version.cfg", "nothing\n");
    put(root.path(), "include/version/cann_version.h", "\u{0}\u{1}");
    put(root.path(), "acl", "a file where a folder should be");
    let toolkit = Toolkit::read(root.path());
    assert_eq!(toolkit.version(), None);
    assert_eq!(toolkit.unreadable.len(), 4, "{:?}", toolkit.unreadable);
    let nothing = Toolkit::read(&root.path().join("not there"));
    assert!(nothing.files.is_empty() && nothing.unreadable.is_empty());
}

#[test]
fn the_driver_is_found_where_its_installer_says_or_at_the_usual_place() {
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    put(
        root,
        "elsewhere/driver/version.info",
        "Version=24.1.rc2.2\nascendhal_version=7.35.23\nInnerversion=V100R001C18SPC001B233\n\
         compatible_version=[V100R001C30],[V100R001C13]\n",
    );
    let usual = "usr/local/Ascend/driver/version.info";
    assert_eq!(
        Driver::read_below(root).problem.as_deref(),
        Some("no such file")
    );
    put(root, usual, "");
    assert_eq!(
        Driver::read_below(root).problem.as_deref(),
        Some("no line Version=")
    );
    put(root, usual, "package_version=25.0.RC1\n");
    let driver = Driver::read_below(root);
    assert_eq!(driver.version, Some(version("25.0.RC1")));
    // A path on the host is one below its root.
    put(
        root,
        "etc/ascend_install.info",
        "UserName=HwHiAiUser\nDriver_Install_Path_Param= /elsewhere\n",
    );
    let driver = Driver::read_below(root);
    assert_eq!(driver.version, Some(version("24.1.rc2.2")));
    assert_eq!(driver.problem, None);
    assert_eq!(driver.fields["Innerversion"], "V100R001C18SPC001B233");
}

#[test]
fn what_is_known_of_compatibility_is_said_and_nothing_else() {
    for (cann, npu) in TORCH_NPU_RELEASES {
        assert_eq!(torch_npu_of(&version(cann)), Some(npu));
        assert_eq!(cann_of(&version(npu)), Some(cann));
    }
    for (package, cann) in TORCH_NPU_PACKAGES {
        assert_eq!(cann_of_package(package), Some(cann));
    }
    assert_eq!(cann_of_package("2.5.1+gitabc"), Some("8.1.RC1"));
    assert_eq!(cann_of_package("2.5.1.dev1"), None);
    for (made_for, cann, goes) in [
        ("8.3.RC1", "8.0.0", true),
        ("8.0.0", "8.3.RC1", true),
        ("8.5.0", "9.0.0", true),
        ("8.5.0", "8.3.RC1", false),
        ("8.3.RC1", "8.5.0", false),
    ] {
        assert_eq!(goes_with(&version(made_for), &version(cann)), goes);
    }
    for (cann, driver) in [
        ("7.0.0", None),
        ("8.1.RC1", Some("23.0.2")),
        ("8.2.RC1", Some("24.1.RC2")),
        ("9.0.0", Some("25.0.RC1")),
    ] {
        assert_eq!(oldest_driver(&version(cann)), driver);
    }
    assert_eq!(torch_npu_of(&version("8.1.RC1-emulated")), Some("7.0.0"));
    assert_eq!(torch_npu_of(&version("9.0.0")), None);
    assert_eq!(torch_npu_of(&version("8.1.0")), None);
    for (cann, split) in [
        ("8.1.RC1", Some(false)),
        ("8.3.RC2", Some(false)),
        ("8.3.0", Some(false)),
        ("8.4.RC1", None),
        ("8.5.0.alpha001", None),
        ("8.5.0", Some(true)),
        ("9.1.0-beta.1", Some(true)),
    ] {
        assert_eq!(splits_libraries(&version(cann)), split, "{cann}");
    }
    assert!(!allows_several_processes(&version("24.1.0")));
    assert!(allows_several_processes(&version("25.0.rc1.1")));
}
