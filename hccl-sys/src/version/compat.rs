//! What fits what, as far as it is known. Where nothing is known, nothing is said.

use super::Version;

/// Releases of CANN and the releases of torch_npu made for them.
///
/// These are the numbers of torch_npu's releases (`v7.1.0`), not those of its Python package,
/// which follow PyTorch's.
pub const TORCH_NPU_RELEASES: [(&str, &str); 6] = [
    ("8.0.RC2", "6.0.rc2"),
    ("8.0.0", "6.0.0"),
    ("8.1.RC1", "7.0.0"),
    ("8.2.RC1", "7.1.0"),
    ("8.3.RC1", "7.2.0"),
    ("8.5.0", "7.3.0"),
];

/// Python packages of torch_npu, and the CANN that each was made for.
///
/// Source: the table of versions in torch_npu's README, and that of the installation guide of MindSpeed 2.0.0.
pub const TORCH_NPU_PACKAGES: [(&str, &str); 22] = [
    ("2.1.0.post10", "8.0.0"),
    ("2.3.1.post4", "8.0.0"),
    ("2.4.0.post2", "8.0.0"),
    ("2.1.0.post12", "8.1.RC1"),
    ("2.3.1.post6", "8.1.RC1"),
    ("2.4.0.post4", "8.1.RC1"),
    ("2.5.1", "8.1.RC1"),
    ("2.1.0.post13", "8.2.RC1"),
    ("2.5.1.post1", "8.2.RC1"),
    ("2.6.0", "8.2.RC1"),
    ("2.1.0.post17", "8.3.RC1"),
    ("2.6.0.post3", "8.3.RC1"),
    ("2.7.1", "8.3.RC1"),
    ("2.8.0", "8.3.RC1"),
    ("2.6.0.post5", "8.5.0"),
    ("2.7.1.post2", "8.5.0"),
    ("2.8.0.post2", "8.5.0"),
    ("2.9.0", "8.5.0"),
    ("2.7.1.post4", "9.0.0"),
    ("2.8.0.post4", "9.0.0"),
    ("2.9.0.post2", "9.0.0"),
    ("2.10.0", "9.0.0"),
];

/// The oldest driver that the vendor lists, for each CANN and those after it.
///
/// Sources: release notes of MindSDK 7.0.RC1 (CANN 8.0), of MindIE 2.1.RC1 (8.2.RC1) and of CANN 8.5.0.
const OLDEST_DRIVERS: [(&str, &str); 3] = [
    ("8.0.RC1", "23.0.2"),
    ("8.2.RC1", "24.1.RC2"),
    ("8.5.0", "25.0.RC1"),
];

/// The CANN that this Python package of torch_npu was made for, if the table has it. What follows a `+` in the package's version
/// does not count.
#[must_use]
pub fn cann_of_package(torch_npu: &str) -> Option<&'static str> {
    let plain = torch_npu.split('+').next().unwrap_or_default();
    let mut rows = TORCH_NPU_PACKAGES.iter();
    rows.find(|(package, _)| *package == plain)
        .map(|(_, cann)| *cann)
}

/// Whether a torch_npu made for `made_for` is supported on this CANN. Up to 8.3 all go with all; 8.5.0 and what was made for it
/// or later go together only (release notes of torch_npu 7.2.0 and of CANN 8.5.0).
#[must_use]
pub fn goes_with(made_for: &Version, cann: &Version) -> bool {
    at_least(made_for, "8.5.0") == at_least(cann, "8.5.0")
}

/// The oldest driver that is listed for this CANN, where one is.
#[must_use]
pub fn oldest_driver(cann: &Version) -> Option<&'static str> {
    let mut rows = OLDEST_DRIVERS.iter().rev();
    rows.find(|(from, _)| at_least(cann, from))
        .map(|(_, driver)| *driver)
}

/// The release of torch_npu made for this CANN, if the table has it.
#[must_use]
pub fn torch_npu_of(cann: &Version) -> Option<&'static str> {
    let mut rows = TORCH_NPU_RELEASES.iter();
    rows.find(|(row, _)| is(row, cann)).map(|(_, npu)| *npu)
}

/// The CANN that this release of torch_npu was made for, if the table has it.
#[must_use]
pub fn cann_of(torch_npu: &Version) -> Option<&'static str> {
    let mut rows = TORCH_NPU_RELEASES.iter();
    rows.find(|(_, row)| is(row, torch_npu))
        .map(|(cann, _)| *cann)
}

/// Whether this CANN has `libhcomm.so` and `libacl_rt.so` beside the two older libraries: those
/// from 8.5.0 on do, those up to 8.3 do not, and of those between nothing is known.
#[must_use]
pub fn splits_libraries(cann: &Version) -> Option<bool> {
    if at_least(cann, "8.5.0") {
        return Some(true);
    }
    (!at_least(cann, "8.4.RC1.alpha0")).then_some(false)
}

/// Whether this driver lets several processes communicate over one device of the A2 and A3
/// products: it takes 25.0.RC1. Other products never do.
#[must_use]
pub fn allows_several_processes(driver: &Version) -> bool {
    at_least(driver, "25.0.RC1")
}

fn is(row: &str, version: &Version) -> bool {
    row.parse::<Version>().is_ok_and(|row| row == *version)
}

fn at_least(version: &Version, least: &str) -> bool {
    least
        .parse::<Version>()
        .is_ok_and(|least| *version >= least)
}
