//! Where a coordinator is: a name or address, and a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Where a coordinator is: `127.0.0.1:46004`, `[::1]:46004`, `node-7:46004`, each also with
/// `tcp://` before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    host: String,
    port: u16,
}

/// A text that is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{given:?} is no endpoint: {why}; an endpoint is HOST:PORT, such as 10.0.0.1:46004, [fe80::1]:46004 or node-7:46004"
)]
pub struct EndpointError {
    /// The text.
    pub given: String,
    /// What is wrong with it.
    pub why: &'static str,
}

/// Longest host name that DNS knows.
const HOST_BYTES_MAX: usize = 253;

impl Endpoint {
    /// The name or address, without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; never zero.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address, if the host is one and needs no resolving.
    #[must_use]
    pub fn literal(&self) -> Option<SocketAddr> {
        let address: IpAddr = self.host.parse().ok()?;
        Some(SocketAddr::new(address, self.port))
    }
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port(),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(given: &str) -> Result<Self, EndpointError> {
        let wrong = |why| EndpointError {
            given: given.chars().take(HOST_BYTES_MAX).collect(),
            why,
        };
        let text = given.strip_prefix("tcp://").unwrap_or(given);
        let (host, port) = text
            .rsplit_once(':')
            .ok_or_else(|| wrong("it has no port"))?;
        let port: u16 = port
            .parse()
            .map_err(|_| wrong("its port is not a number from 1 to 65535"))?;
        if port == 0 {
            return Err(wrong("port 0 is no place to connect to"));
        }
        let host = match host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(inner) => {
                let _: Ipv6Addr = inner
                    .parse()
                    .map_err(|_| wrong("what stands in brackets is no IPv6 address"))?;
                inner
            }
            None if host.contains(':') => return Err(wrong("an IPv6 address needs brackets")),
            None => host,
        };
        if host.is_empty() {
            return Err(wrong("it has no host"));
        }
        if host.len() > HOST_BYTES_MAX {
            return Err(wrong("its host name is longer than 253 bytes"));
        }
        if host
            .chars()
            .any(|char| char.is_whitespace() || char.is_control() || char == '/')
        {
            return Err(wrong(
                "its host name holds a space, a slash or a control character",
            ));
        }
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }
}

/// The address of this host towards another one, by the routing table.
pub(crate) fn route_to(target: SocketAddr) -> Option<IpAddr> {
    let any: SocketAddr = if target.is_ipv6() {
        (Ipv6Addr::UNSPECIFIED, 0).into()
    } else {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    };
    // Connecting a datagram socket sends nothing; it only asks the routing table.
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// Addresses that a routing trie, as `/proc/net/fib_trie` shows it, marks as local to its host; in order.
#[must_use]
pub fn local_v4(trie: &str) -> Vec<Ipv4Addr> {
    let mut found: Vec<Ipv4Addr> = Vec::new();
    let mut last: Option<Ipv4Addr> = None;
    for line in trie.lines() {
        let line = line.trim();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse().ok();
        } else if line == "/32 host LOCAL" {
            found.extend(last.take());
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_they_are_written() {
        for text in ["127.0.0.1:46004", "[::1]:46004", "node-7:46004", "a.b.c:1"] {
            let endpoint: Endpoint = text.parse().expect(text);
            assert_eq!(endpoint.to_string(), text);
            assert_eq!(format!("tcp://{text}").parse(), Ok(endpoint));
        }
        let address: SocketAddr = "[::1]:7".parse().unwrap();
        assert_eq!(Endpoint::from(address).literal(), Some(address));
        assert_eq!("node:7".parse::<Endpoint>().unwrap().literal(), None);
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_the_reason() {
        for (text, why) in [
            ("", "no port"),
            ("node", "no port"),
            (":7", "no host"),
            ("node:0", "port 0"),
            ("node:70000", "not a number"),
            ("node:x", "not a number"),
            ("::1:7", "needs brackets"),
            ("[node]:7", "no IPv6 address"),
            ("a b:7", "space"),
            ("http://a:7", "needs brackets"),
        ] {
            let error = text.parse::<Endpoint>().expect_err(text);
            assert!(error.why.contains(why), "{text:?}: {error}");
        }
        let error = format!("{}:7", "x".repeat(300)).parse::<Endpoint>();
        assert!(error.is_err());
    }

    #[test]
    fn local_addresses_are_found_in_the_trie() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.0\n        /24 link UNICAST\n     \
                    |-- 10.0.0.5\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n";
        assert_eq!(local_v4(trie), [Ipv4Addr::new(10, 0, 0, 5)]);
    }
}
