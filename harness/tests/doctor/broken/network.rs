//! Hosts whose interfaces, names or ports are broken.

use muster_harness::doctor::Status::{Fail, Warn};

use super::{Broken, broken, process};
use crate::host::Host;

pub(super) const NETWORK: &[Broken] = &[
    broken(
        "interface",
        Fail,
        &["bond0", "HCCL_SOCKET_IFNAME", "EI0001"],
        "HCCL_SOCKET_IFNAME==eth0",
        |host| {
            host.set("HCCL_SOCKET_IFNAME", "=bond0");
        },
    ),
    broken(
        "interface",
        Fail,
        &["eth0", "down"],
        "ip link set eth0 up",
        |host| {
            host.file("/sys/class/net/eth0/operstate", "down\n")
                .set("HCCL_SOCKET_IFNAME", "eth");
        },
    ),
    broken(
        "interface",
        Fail,
        &["leaves no interface"],
        "HCCL_SOCKET_IFNAME",
        |host| {
            host.set("HCCL_SOCKET_IFNAME", "^eth,lo");
        },
    ),
    broken(
        "host-address",
        Fail,
        &["10.9.9.9", "no address of this host"],
        "HCCL_SOCKET_IFNAME",
        |host| {
            host.set("HCCL_IF_IP", "10.9.9.9");
        },
    ),
    broken(
        "host-name",
        Warn,
        &["fox", "loopback"],
        "/etc/hosts",
        |host| {
            host.script.resolves = Some(Ok(vec!["127.0.1.1".parse().expect("an address")]));
        },
    ),
    broken(
        "master-address",
        Fail,
        &["node-a", "cannot be resolved"],
        "/etc/hosts",
        |host| {
            host.script.resolves = Some(Err("no such name".to_owned()));
            host.set("MASTER_ADDR", "node-a");
        },
    ),
    broken(
        "master-port",
        Fail,
        &["29500", "HCCL"],
        "export MASTER_PORT=29516",
        |host| {
            host.set("HCCL_IF_BASE_PORT", "29484")
                .set("MASTER_PORT", "29500");
        },
    ),
    broken(
        "master-port",
        Fail,
        &["60010", "HCCL"],
        "export MASTER_PORT=29500",
        |host| {
            host.set("MASTER_PORT", "60010");
        },
    ),
    broken(
        "master-port",
        Fail,
        &["29500", "python3 (pid 4711)"],
        "kill 4711",
        |host| {
            listener(host, 29_500);
            host.set("MASTER_PORT", "29500");
        },
    ),
    broken(
        "host-ports",
        Fail,
        &["60007", "60000-60031", "python3 (pid 4711)"],
        "HCCL_IF_BASE_PORT=60032",
        |host| {
            listener(host, 60_007);
        },
    ),
    broken(
        "port-reservation",
        Warn,
        &["60000-60031"],
        "ip_local_reserved_ports",
        |host| {
            host.file("/proc/sys/net/ipv4/ip_local_reserved_ports", "\n");
        },
    ),
    broken(
        "mtu",
        Warn,
        &["eth0", "9000", "eth1", "1500"],
        "ip link set eth1 mtu 9000",
        |host| {
            second_interface(host);
            host.file("/sys/class/net/eth0/mtu", "9000\n")
                .set("HCCL_SOCKET_IFNAME", "eth");
        },
    ),
    broken(
        "reverse-path",
        Warn,
        &["eth0", "eth1", "rp_filter"],
        "rp_filter=2",
        |host| {
            second_interface(host);
            host.file("/proc/sys/net/ipv4/conf/all/rp_filter", "1\n");
        },
    ),
    broken(
        "whitelist",
        Fail,
        &["HCCL_WHITELIST_FILE"],
        "unset HCCL_WHITELIST_DISABLE",
        |host| {
            host.set("HCCL_WHITELIST_DISABLE", "0");
        },
    ),
    broken(
        "whitelist",
        Fail,
        &["no address of this host"],
        "/host_ip",
        |host| {
            host.file(
                "/etc/peers.json",
                r#"{"host_ip":["10.0.0.9"],"device_ip":[]}"#,
            )
            .set("HCCL_WHITELIST_DISABLE", "0")
            .set("HCCL_WHITELIST_FILE", "/etc/peers.json");
        },
    ),
];

fn second_interface(host: &mut Host) {
    let trie = "Local:\n     |-- 10.0.0.5\n        /32 host LOCAL\n     |-- 10.0.1.5\n        /32 host LOCAL\n";
    host.file("/proc/net/fib_trie", trie)
        .file("/sys/class/net/eth1/mtu", "1500\n")
        .file("/sys/class/net/eth1/operstate", "up\n");
}

/// That process listens on a port.
fn listener(host: &mut Host, port: u16) {
    process(host);
    let line = format!("   0: 00000000:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 4242 1\n");
    host.file("/proc/net/tcp", &line)
        .link("/proc/4711/fd/3", "socket:[4242]");
}
