//! The page for people lists every check, and nothing else.

use muster_harness::doctor::CHECKS;

#[test]
fn the_document_lists_every_check_with_its_question_in_order() {
    let page = include_str!("../../../docs/doctor.md");
    let rows: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `") && line.matches('|').count() == 4)
        .collect();
    let wanted: Vec<String> = CHECKS
        .iter()
        .map(|check| {
            format!(
                "| `{}` | {} | {} |",
                check.id,
                check.group.name(),
                check.asks
            )
        })
        .collect();
    assert_eq!(
        rows, wanted,
        "make docs/doctor.md anew from muster doctor --list"
    );
}
