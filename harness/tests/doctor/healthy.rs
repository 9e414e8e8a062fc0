//! Hosts of every kind on which nothing is wrong: no check may warn or fail.

use muster_harness::doctor::{CHECKS, Status};

use crate::host::{Host, TOOLKIT};

/// What is done to the plain host.
type Change = fn(&mut Host);

/// How each differs from the plain host.
const HOSTS: &[(&str, Change)] = &[
    ("a plain host", |_| ()),
    ("no NPU", |host| {
        host.without_npu();
    }),
    ("half of the devices", |host| {
        host.set("ASCEND_RT_VISIBLE_DEVICES", "0,1,2,3");
    }),
    ("one device, as launchers give it", |host| {
        host.set("ASCEND_RT_VISIBLE_DEVICES", "5");
    }),
    ("half of the devices, for half of the ranks", |host| {
        host.ranks = Some(4);
        host.set("ASCEND_RT_VISIBLE_DEVICES", "4,5,6,7");
    }),
    ("a container with the upper half of the devices", |host| {
        host.file("/.dockerenv", "");
        for device in 0..4 {
            host.remove(&format!("/dev/davinci{device}"));
        }
        host.set("ASCEND_VISIBLE_DEVICES", "4-7")
            .set("ASCEND_RT_VISIBLE_DEVICES", "0,1,2,3");
    }),
    ("a mask for containers that this host starts", |host| {
        host.set("ASCEND_VISIBLE_DEVICES", "0-3")
            .set("ASCEND_RT_VISIBLE_DEVICES", "4,5");
    }),
    ("torchrun", |host| {
        for (name, value) in [
            ("RANK", "3"),
            ("WORLD_SIZE", "8"),
            ("LOCAL_RANK", "3"),
            ("LOCAL_WORLD_SIZE", "8"),
            ("MASTER_ADDR", "10.0.0.5"),
            ("MASTER_PORT", "29500"),
        ] {
            host.set(name, value);
        }
    }),
    ("CANN 8.5 with its driver", |host| {
        for (file, text) in [
            ("hccl/version.info", "version_dir=8.5.0\n"),
            ("runtime/version.info", "version_dir=8.5.0\n"),
            (
                "x86_64-linux/ascend_toolkit_install.info",
                "version=8.5.0\n",
            ),
            ("lib64/libhcomm.so", ""),
            ("lib64/libacl_rt.so", ""),
        ] {
            host.file(&format!("{TOOLKIT}/{file}"), text);
        }
        host.file("/usr/local/Ascend/driver/version.info", "Version=25.2.0\n");
    }),
    ("the oldest driver that is listed", |host| {
        host.file("/usr/local/Ascend/driver/version.info", "Version=23.0.2\n");
    }),
    ("a driver in another place", |host| {
        host.file(
            "/etc/ascend_install.info",
            "Driver_Install_Path_Param=/opt/npu\n",
        )
        .file("/opt/npu/driver/version.info", "Version=25.0.RC1\n");
    }),
    ("a copy of another host, and a literal address", |host| {
        host.script.resolves = None;
        host.set("MASTER_ADDR", "10.0.0.7");
    }),
    ("a copy of another host with /etc/hosts", |host| {
        host.script.resolves = None;
        host.file(
            "/etc/hosts",
            "127.0.0.1 localhost\n10.0.0.5\tfox fox.lan # this one\n10.0.0.7 Node-a\n",
        )
        .set("MASTER_ADDR", "node-a");
    }),
    ("torch and torch_npu of the toolkit", |host| {
        host.package("torch", "2.5.1").package("torch_npu", "2.5.1");
    }),
    ("a later torch_npu that goes with the toolkit", |host| {
        host.package("torch", "2.7.1+cpu")
            .package("torch_npu", "2.7.1");
    }),
    ("MindSpeed and Megatron from their sources", |host| {
        let packages = "/usr/lib/python3.11/site-packages";
        host.package("torch", "2.7.1")
            .package("torch_npu", "2.7.1")
            .file("/src/MindSpeed/mindspeed/__init__.py", "")
            .file("/src/Megatron-LM/megatron/core/__init__.py", "")
            .file(
                &format!("{packages}/__editable__.mindspeed-0.12.1.pth"),
                "/src/MindSpeed\n",
            );
        let path = format!("{TOOLKIT}/python/site-packages:/src/Megatron-LM");
        host.set("PYTHONPATH", &path);
    }),
    ("vllm-ascend", |host| {
        host.package("torch", "2.7.1")
            .package("torch_npu", "2.7.1")
            .package("vllm", "0.11.0")
            .package("vllm_ascend", "0.11.0")
            .set("VLLM_ASCEND_ENABLE_NZ", "2")
            .set("VLLM_ASCEND_ENABLE_FLASHCOMM1", "1")
            .set("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True");
    }),
    ("Ray that offers all devices", |host| {
        host.raylet("node:10.0.0.5,1.0,CPU,64.0,NPU,8.0")
            .set("RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES", "1");
    }),
    ("a preloaded allocator", |host| {
        host.file("/usr/lib/libjemalloc.so.2", "\x7fELF\x02\x01\x01")
            .set("LD_PRELOAD", "/usr/lib/libjemalloc.so.2");
    }),
    ("one interface by its exact name", |host| {
        host.set("HCCL_SOCKET_IFNAME", "=eth0");
    }),
    ("the usual settings of a training job", |host| {
        for (name, value) in [
            ("HCCL_CONNECT_TIMEOUT", "1800"),
            ("HCCL_EXEC_TIMEOUT", "1836"),
            ("HCCL_EVENT_TIMEOUT", "1868"),
            ("HCCL_BUFFSIZE", "200"),
            ("CUDA_DEVICE_MAX_CONNECTIONS", "1"),
            ("TASK_QUEUE_ENABLE", "2"),
        ] {
            host.set(name, value);
        }
    }),
];

#[test]
fn a_healthy_host_of_any_kind_has_nothing_to_complain_of() {
    assert!(HOSTS.len() >= 20);
    let mut complaints = Vec::new();
    for (name, how) in HOSTS {
        let mut host = Host::healthy();
        how(&mut host);
        for check in CHECKS {
            let finding = host.judge(check.id);
            if finding.status() <= Status::Warn {
                let (what, evidence) = (finding.what(), finding.evidence());
                complaints.push(format!("{name}: {}: {what} ({evidence})", check.id));
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
}

#[test]
fn names_of_a_host_elsewhere_are_found_in_its_own_file_or_not_judged() {
    let mut host = Host::healthy();
    host.script.resolves = None;
    host.set("MASTER_ADDR", "node-a");
    assert_eq!(host.judge("master-address").status(), Status::Skip);
    host.file("/etc/hosts", "10.0.0.7 Node-a # node-b\n");
    assert_eq!(host.judge("master-address").status(), Status::Ok);
    host.set("MASTER_ADDR", "node-b");
    assert_eq!(host.judge("master-address").status(), Status::Skip);
}
