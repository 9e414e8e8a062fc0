//! Hosts whose devices, driver, toolkit or libraries are broken.

use muster_harness::doctor::Status::{Fail, Warn};

use super::{Broken, broken};
use crate::host::TOOLKIT;

pub(super) const ASCEND: &[Broken] = &[
    broken(
        "devices",
        Fail,
        &["/dev/davinci_manager"],
        "--device",
        |host| {
            host.remove("/dev/davinci_manager");
        },
    ),
    broken(
        "devices",
        Fail,
        &["16 ranks", "8 devices", "EJ0001"],
        "at most 8",
        |host| {
            host.ranks = Some(16);
        },
    ),
    broken(
        "devices",
        Fail,
        &["vdavinci0", "virtual"],
        "whole devices",
        |host| {
            host.without_npu().file("/dev/vdavinci0", "");
        },
    ),
    broken(
        "devices",
        Fail,
        &["ASCEND_RT_VISIBLE_DEVICES"],
        "unset",
        |host| {
            host.without_npu().set("ASCEND_RT_VISIBLE_DEVICES", "0,1");
        },
    ),
    broken(
        "device-permissions",
        Fail,
        &["user id 1000", "/dev/davinci3"],
        "usermod -aG",
        |host| {
            let status =
                "Uid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\nGroups:\t1000\n";
            for device in 0..8 {
                host.mode(&format!("/dev/davinci{device}"), 0o666);
            }
            for node in ["davinci_manager", "devmm_svm", "hisi_hdc"] {
                host.mode(&format!("/dev/{node}"), 0o666);
            }
            host.file("/proc/self/status", status)
                .mode("/dev/davinci3", 0o640);
        },
    ),
    broken(
        "containers",
        Fail,
        &["driver is not mounted", "/usr/local/Ascend/driver/lib64"],
        "docker run -v",
        |host| {
            host.file("/.dockerenv", "")
                .remove("/usr/local/Ascend/driver");
        },
    ),
    broken(
        "containers",
        Fail,
        &["/dev/devmm_svm"],
        "--device=/dev/devmm_svm",
        |host| {
            host.file("/.dockerenv", "").remove("/dev/devmm_svm");
        },
    ),
    broken(
        "driver",
        Fail,
        &["libascend_hal.so"],
        "/usr/local/Ascend/driver/lib64",
        |host| {
            host.remove("/usr/local/Ascend/driver/lib64");
        },
    ),
    broken(
        "toolkit",
        Fail,
        &["ASCEND_HOME_PATH", "/opt/nowhere"],
        "set_env.sh",
        |host| {
            host.set("ASCEND_HOME_PATH", "/opt/nowhere");
        },
    ),
    broken(
        "toolkit",
        Fail,
        &["no CANN toolkit"],
        "install the toolkit",
        |host| {
            host.remove("/usr/local/Ascend/ascend-toolkit")
                .unset("ASCEND_HOME_PATH")
                .unset("ASCEND_TOOLKIT_HOME");
        },
    ),
    broken(
        "versions",
        Fail,
        &["mixture", "8.1.RC1", "8.2.RC1", "runtime"],
        "one version",
        |host| {
            let file = format!("{TOOLKIT}/runtime/version.info");
            host.file(&file, "Version=7.8.0\nversion_dir=8.2.RC1\n");
        },
    ),
    broken(
        "versions",
        Fail,
        &["8.5.0", "libhcomm.so"],
        "install the toolkit again",
        |host| {
            for part in ["hccl", "runtime"] {
                host.file(
                    &format!("{TOOLKIT}/{part}/version.info"),
                    "version_dir=8.5.0\n",
                );
            }
            let info = format!("{TOOLKIT}/x86_64-linux/ascend_toolkit_install.info");
            host.file(&info, "version=8.5.0\n");
        },
    ),
    broken(
        "versions",
        Fail,
        &[
            "ASCEND_HOME_PATH",
            "8.1.RC1",
            "ASCEND_TOOLKIT_HOME",
            "8.2.RC1",
        ],
        "one set_env.sh",
        |host| {
            host.file(
                "/opt/cann/version.cfg",
                "toolkit_running_version=[8.2.RC1:8.2.RC1]\n",
            )
            .set("ASCEND_TOOLKIT_HOME", "/opt/cann");
        },
    ),
    broken(
        "library-path",
        Fail,
        &["/runtime/lib64/stub", "libascend_hal.so"],
        "take",
        |host| {
            let stub = format!("{TOOLKIT}/runtime/lib64/stub");
            host.file(&format!("{stub}/libascend_hal.so"), "")
                .set("LD_LIBRARY_PATH", &format!("{stub}:{TOOLKIT}/lib64"));
        },
    ),
    broken(
        "library-path",
        Fail,
        &["/opt/old/lib64", "ASCEND_HOME_PATH"],
        "fresh shell",
        |host| {
            host.file("/opt/old/lib64/libhccl.so", "")
                .set("LD_LIBRARY_PATH", "/opt/old/lib64");
        },
    ),
    broken("python-acl", Warn, &["acl"], "PYTHONPATH", |host| {
        host.unset("PYTHONPATH");
    }),
    broken(
        "python-acl",
        Fail,
        &["CANN 8.3.RC1", "/opt/cann", "8.1.RC1"],
        "fresh shell",
        |host| {
            let packages = "/opt/cann/python/site-packages";
            host.file("/opt/cann/hccl/version.info", "version_dir=8.3.RC1\n")
                .file(&format!("{packages}/acl.so"), "")
                .set("PYTHONPATH", packages);
        },
    ),
    broken(
        "versions",
        Fail,
        &["driver 22.0.3", "CANN 8.1.RC1", "23.0.2"],
        "install the driver",
        |host| {
            host.file("/usr/local/Ascend/driver/version.info", "Version=22.0.3\n");
        },
    ),
    broken(
        "libraries",
        Fail,
        &["no libhccl.so", TOOLKIT],
        "install the toolkit",
        |host| {
            host.remove(&format!("{TOOLKIT}/lib64/libhccl.so"));
        },
    ),
    broken(
        "torch-npu",
        Warn,
        &["torch_npu 2.9.0", "CANN 8.5.0", "8.1.RC1"],
        "install CANN 8.5.0",
        |host| {
            host.package("torch", "2.9.0").package("torch_npu", "2.9.0");
        },
    ),
    broken(
        "python-stack",
        Fail,
        &["mindspeed", "torch_npu"],
        "pip install torch_npu",
        |host| {
            host.package("torch", "2.7.1")
                .package("mindspeed", "0.12.1");
        },
    ),
    broken(
        "python-stack",
        Fail,
        &["vllm_ascend", "vllm,"],
        "pip install vllm",
        |host| {
            host.package("torch_npu", "2.7.1")
                .package("vllm_ascend", "0.11.0");
        },
    ),
    broken(
        "torch-npu",
        Fail,
        &["torch_npu 2.5.1", "torch 2.6.0"],
        "pip install torch==2.5.1",
        |host| {
            let packages = "/usr/lib/python3.11/site-packages";
            host.file(
                &format!("{packages}/torch_npu-2.5.1.dist-info/METADATA"),
                "",
            )
            .file(
                &format!("{packages}/torch-2.6.0+cpu.dist-info/METADATA"),
                "",
            );
        },
    ),
    broken(
        "visible-devices",
        Fail,
        &["cut short", "only 0 is kept"],
        "export ASCEND_RT_VISIBLE_DEVICES=0,1,2",
        |host| {
            host.set("ASCEND_RT_VISIBLE_DEVICES", "0, 1,2");
        },
    ),
    broken(
        "visible-devices",
        Fail,
        &["/dev/davinci9"],
        "ASCEND_RT_VISIBLE_DEVICES",
        |host| {
            host.set("ASCEND_RT_VISIBLE_DEVICES", "0,9");
        },
    ),
    broken(
        "visible-devices",
        Fail,
        &["device 6", "ASCEND_VISIBLE_DEVICES", "4 devices"],
        "from 0 to 3",
        |host| {
            host.file("/.dockerenv", "")
                .set("ASCEND_VISIBLE_DEVICES", "0-3")
                .set("ASCEND_RT_VISIBLE_DEVICES", "0,6");
        },
    ),
    broken(
        "visible-devices",
        Fail,
        &["leaves 4 devices to 8 ranks"],
        "start 4 ranks",
        |host| {
            host.ranks = Some(8);
            host.set("ASCEND_RT_VISIBLE_DEVICES", "0,1,2,3");
        },
    ),
    broken(
        "visible-devices",
        Fail,
        &["ASCEND_VISIBLE_DEVICES"],
        "0,2-5",
        |host| {
            host.set("ASCEND_VISIBLE_DEVICES", "first");
        },
    ),
];
