//! Whether the driver is there.

use super::super::{Finding, Problem, System};

const ROOT: &str = "/usr/local/Ascend/driver";

/// Where the driver's library lies, if it is there.
fn library(system: &System) -> Option<String> {
    ["driver", ".", "common"]
        .into_iter()
        .map(|folder| format!("{ROOT}/lib64/{folder}/libascend_hal.so"))
        .find(|file| system.exists(file))
}

pub(super) fn judge(system: &System) -> Finding {
    let devices = system.devices();
    let driver = system.driver();
    let file = system.shown(&driver.path);
    let version = driver.version;
    let library = library(system);
    if devices.is_empty() && version.is_none() && library.is_none() {
        return Finding::skip("no Ascend device and no driver");
    }
    let mut problems = Vec::new();
    if library.is_none() {
        problems.push(Problem::fail(
            "the driver's libascend_hal.so is missing, so no library of the toolkit will load",
            format!("not in {ROOT}/lib64, nor in its driver and common folders"),
            "install the driver; in a container mount it: docker run -v /usr/local/Ascend/driver/lib64:/usr/local/Ascend/driver/lib64:ro",
        ));
    }
    if version.is_none() {
        problems.push(Problem::warn(
            "the driver's version cannot be told",
            format!(
                "{file}: {}",
                driver.problem.unwrap_or_else(|| "no version".to_owned())
            ),
            format!(
                "in a container mount it: docker run -v {ROOT}/version.info:{ROOT}/version.info:ro"
            ),
        ));
    }
    if devices.is_empty() {
        problems.push(Problem::fail(
            "the driver is installed and there is no device node",
            format!("{ROOT} exists; no /dev/davinci*"),
            "look at `npu-smi info` and `dmesg`; load the driver, or pass the devices into the container",
        ));
    }
    Finding::of(problems, || {
        let library = library.unwrap_or_default();
        let version = version.map(|version| format!(" {version}"));
        Finding::ok(
            format!("driver{} is installed", version.unwrap_or_default()),
            format!("{file}; {library}"),
        )
    })
}
