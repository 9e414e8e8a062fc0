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
