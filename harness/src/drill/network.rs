//! A network of its own for the ranks of a drill: a namespace a rank, each on a bridge in one more.
//!
//! Nothing of the machine's own network is touched. What is made is removed when the drill ends.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::TcpListener;
use std::ops::Range;
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;

use crate::fail::Failure;

/// Where a port is looked for, and how many are tried.
const PORTS: Range<u16> = 14_000..32_000;
const PORTS_TRIED: usize = 64;

/// What a drill on such a network lacks here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lacking(pub String);

/// A network of namespaces.
#[derive(Debug)]
pub struct Network {
    prefix: String,
    ranks: u32,
    /// Namespaces that were made, for their removal.
    made: Mutex<Vec<String>>,
}

impl Network {
    /// Makes a network for this many ranks.
    ///
    /// # Errors
    /// Where this machine does not let us.
    pub fn make(mark: &str, ranks: u32) -> Result<Self, Lacking> {
        let network = Self {
            prefix: format!("drill{mark}"),
            ranks,
            made: Mutex::default(),
        };
        network.build()?;
        Ok(network)
    }

    fn build(&self) -> Result<(), Lacking> {
        let hub = self.hub();
        self.namespace(&hub)?;
        ip(&["-n", &hub, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &hub, "link", "set", "br0", "up"])?;
        for rank in 0..self.ranks {
            let (own, port) = (self.namespace_of(rank), port_of(rank));
            self.namespace(&own)?;
            ip(&[
                "link", "add", &port, "netns", &hub, "type", "veth", "peer", "name", "eth0",
                "netns", &own,
            ])?;
            ip(&["-n", &hub, "link", "set", &port, "master", "br0", "up"])?;
            let address = format!("{}/24", address_of(rank));
            ip(&["-n", &own, "address", "add", &address, "dev", "eth0"])?;
            ip(&["-n", &own, "link", "set", "eth0", "up"])?;
            ip(&["-n", &own, "link", "set", "lo", "up"])?;
        }
        Ok(())
    }

    fn namespace(&self, name: &str) -> Result<(), Lacking> {
        ip(&["netns", "add", name])?;
        if let Ok(mut made) = self.made.lock() {
            made.push(name.to_owned());
        }
        Ok(())
    }

    fn hub(&self) -> String {
        format!("{}-hub", self.prefix)
    }

    /// The namespace of a rank.
    #[must_use]
    pub fn namespace_of(&self, rank: u32) -> String {
        format!("{}-r{rank}", self.prefix)
    }

    /// Takes the ports of these ranks off the bridge: nothing reaches them and they reach nobody, and
    /// neither side is told.
    ///
    /// # Errors
    /// As the system says.
    pub fn cut(&self, ranks: &[u32]) -> Result<(), Lacking> {
        ranks.iter().try_for_each(|rank| {
            ip(&[
                "-n",
                &self.hub(),
                "link",
                "set",
                &port_of(*rank),
                "nomaster",
            ])
        })
    }

    /// Splits the network: these ranks reach each other, and none of the rest.
    ///
    /// # Errors
    /// As the system says.
    pub fn split(&self, ranks: &[u32]) -> Result<(), Lacking> {
        let hub = self.hub();
        ip(&["-n", &hub, "link", "add", "br1", "type", "bridge"])?;
        ip(&["-n", &hub, "link", "set", "br1", "up"])?;
        ranks
            .iter()
            .try_for_each(|rank| ip(&["-n", &hub, "link", "set", &port_of(*rank), "master", "br1"]))
    }

    /// What the others send to this rank goes to nobody; what it sends arrives.
    ///
    /// # Errors
    /// As the system says.
    pub fn deafen(&self, rank: u32) -> Result<(), Lacking> {
        let address = address_of(rank);
        (0..self.ranks)
            .filter(|other| *other != rank)
            .try_for_each(|other| {
                ip(&[
                    "-n",
                    &self.namespace_of(other),
                    "neighbour",
                    "replace",
                    &address,
                    "lladdr",
                    "02:00:00:00:00:fe",
                    "nud",
                    "permanent",
                    "dev",
                    "eth0",
                ])
            })
    }

    /// Takes a rank's interface down.
    ///
    /// # Errors
    /// As the system says.
    pub fn take_down(&self, rank: u32) -> Result<(), Lacking> {
        ip(&[
            "-n",
            &self.namespace_of(rank),
            "link",
            "set",
            "eth0",
            "down",
        ])
    }

    /// Lets frames of up to this many bytes through to a rank, and loses longer ones.
    ///
    /// # Errors
    /// As the system says.
    pub fn narrow(&self, rank: u32, bytes: u32) -> Result<(), Lacking> {
        let bytes = bytes.to_string();
        ip(&[
            "-n",
            &self.hub(),
            "link",
            "set",
            &port_of(rank),
            "mtu",
            &bytes,
        ])
    }

    /// Limits what goes to a rank, in Mbit/s.
    ///
    /// # Errors
    /// As the system says.
    pub fn throttle(&self, rank: u32, mbit: u32) -> Result<(), Lacking> {
        let rate = format!("{mbit}mbit");
        run(
            "tc",
            &[
                "-n",
                &self.hub(),
                "qdisc",
                "add",
                "dev",
                &port_of(rank),
                "root",
                "tbf",
                "rate",
                &rate,
                "burst",
                "32kbit",
                "latency",
                "400ms",
            ],
        )
    }

    /// What is left of it after its removal.
    #[must_use]
    pub fn remove(&self) -> Vec<String> {
        let made = self
            .made
            .lock()
            .map(|mut made| std::mem::take(&mut *made))
            .unwrap_or_default();
        made.into_iter()
            .filter_map(|name| {
                let failed = ip(&["netns", "delete", &name]).err()?;
                Some(format!("namespace {name}: {}", failed.0))
            })
            .collect()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Told where somebody asked for it; here there is nobody left to be told.
        let _ = self.remove();
    }
}

/// The address of a rank.
#[must_use]
pub fn address_of(rank: u32) -> String {
    format!("10.199.0.{}", rank + 1)
}

fn port_of(rank: u32) -> String {
    format!("p{rank}")
}

fn ip(words: &[&str]) -> Result<(), Lacking> {
    run("ip", words)
}

/// Runs a tool of the system.
///
/// # Errors
/// Its own words where it fails, or why it cannot be started.
pub fn run(tool: &str, words: &[&str]) -> Result<(), Lacking> {
    output(tool, words).map(drop)
}

fn output(tool: &str, words: &[&str]) -> Result<Output, Lacking> {
    let output = Command::new(tool)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Lacking(format!("{tool} cannot be run: {error}")))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next().unwrap_or("it does not say why");
    Err(Lacking(format!("{tool} {}: {said}", words.join(" "))))
}

/// A port of the loopback that is free now. It is below those that the kernel gives out by itself, so that nobody else gets it
/// before the ranks do.
pub(super) fn free_port() -> Result<u16, Failure> {
    let random = RandomState::new().build_hasher().finish();
    let [low, high, ..] = random.to_le_bytes();
    let start = usize::from(u16::from_le_bytes([low, high])) % PORTS.len();
    let mut ports = PORTS.cycle().skip(start).take(PORTS_TRIED);
    let port = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
    port.ok_or_else(|| Failure::resource("no port of the loopback is free".to_owned()))
}
