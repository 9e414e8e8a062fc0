//! The documentation names what the code reads, row by row.

use muster_comm::config::rows;
use muster_comm::launch::Contract;

#[test]
fn the_table_of_variables_is_the_one_of_the_code() {
    let page = include_str!("../../docs/environment.md");
    let written: Vec<&str> = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .collect();
    let expected: Vec<String> = rows()
        .into_iter()
        .map(|row| {
            let cell = |text: &str| text.replace('|', "\\|");
            format!(
                "| `{}` | {} | {} | {} |",
                row.name,
                cell(row.meaning),
                cell(row.allowed),
                cell(row.default)
            )
        })
        .collect();
    assert_eq!(written, expected, "\n{}\n", expected.join("\n"));
}

#[test]
fn every_contract_has_its_row_in_the_documentation() {
    let page = include_str!("../../docs/launch.md");
    for contract in Contract::all() {
        let cell = format!("| `{contract}` |");
        assert!(page.contains(&cell), "docs/launch.md has no row {cell}");
    }
}
