//! The reports of `muster doctor`.

use std::fs;

use super::{attribute, check_page, forms, sample, schema};

#[test]
fn doctor_writes_every_form() {
    let root = tempfile::tempdir().expect("a folder");
    fs::create_dir(root.path().join("etc")).expect("a folder");
    let preload = root.path().join("etc/ld.so.preload");
    fs::write(preload, "/nowhere/libfast.so\n").expect("a file");
    let folder = tempfile::tempdir().expect("a folder");
    let root = root.path().to_str().expect("UTF-8");
    let words = ["doctor", "--root", root, "--only", "preload,huge-pages"];
    let [page, xml, markdown, csv, prom, json] = forms(folder.path(), &words, 60);
    schema::check("doctor", &serde_json::from_str(&json).expect("JSON"));
    check_page(&page, "doctor");
    for text in [&page, &xml, &markdown, &csv] {
        assert!(text.contains("/nowhere/libfast.so"), "{text}");
        assert!(text.contains("install"), "what to do: {text}");
    }
    assert_eq!(attribute(&xml, "tests"), 2);
    assert_eq!(attribute(&xml, "failures"), 1);
    assert_eq!(csv.lines().count(), 3);
    assert!(sample(&prom, "muster_doctor_check_passed{check=\"preload\"").abs() < 1e-9);
    assert!((sample(&prom, "muster_doctor_checks{status=\"fail\"") - 1.0).abs() < 1e-9);
}
