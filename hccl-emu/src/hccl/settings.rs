//! The variables of HCCL, read once at the first call. Pure: text in, settings out.
//!
//! - `SETTINGS-1`: a value out of range is an error that names variable, value and range; no
//!   default takes its place.

use std::net::IpAddr;
use std::time::Duration;

use muster_comm::config::{EMU_CONNECT_TIMEOUT_MS, EMU_EXEC_TIMEOUT_MS, Environment};

use crate::options::Product;

/// Seconds that ranks may take to find each other where nothing is said.
const CONNECT_TIMEOUT_S: u64 = 120;
/// Seconds that an operator waits for the other ranks where nothing is said.
const EXEC_TIMEOUT_S: u64 = 1836;
/// Timeouts of the older products are cut to a multiple of this.
const EXEC_STEP_S: u64 = 68;
/// First host port where nothing is said.
const BASE_PORT: u16 = 60_000;
/// Host ports from the first one on.
pub(crate) const PORTS: u16 = 32;
/// Buffer of a communicator in MB where nothing is said.
const BUFFER_MB: u32 = 200;

/// Which host ports a root may listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ports {
    /// Whatever the system gives.
    Any,
    /// These, in order.
    Listed(Vec<u16>),
}

/// Which interfaces `HCCL_SOCKET_IFNAME` allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interfaces {
    text: String,
    negated: bool,
    exact: bool,
    names: Vec<String>,
}

impl Interfaces {
    fn parse(text: &str) -> Option<Self> {
        let (negated, rest) = match text.strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (exact, rest) = match rest.strip_prefix('=') {
            Some(rest) => (true, rest),
            None => (false, rest),
        };
        let names: Vec<String> = rest.split(',').map(|name| name.trim().to_owned()).collect();
        let legal = |name: &String| !name.is_empty() && !name.contains(['^', '=', ' ']);
        names.iter().all(legal).then(|| Self {
            text: text.to_owned(),
            negated,
            exact,
            names,
        })
    }

    /// Whether an interface of this name may be used.
    pub(crate) fn allows(&self, interface: &str) -> bool {
        let matches = |name: &String| {
            if self.exact {
                interface == name
            } else {
                interface.starts_with(name.as_str())
            }
        };
        self.names.iter().any(matches) != self.negated
    }

    /// As it was written.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }
}

/// All settings that the emulator has a use for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) connect_timeout: Duration,
    /// `None` waits for ever.
    pub(crate) exec_timeout: Option<Duration>,
    pub(crate) buffer_mb: u32,
    /// 0 off, 1 on, 2 strict; `None` where the variable is not set.
    pub(crate) deterministic: Option<i32>,
    pub(crate) if_ip: Option<IpAddr>,
    pub(crate) interfaces: Option<Interfaces>,
    pub(crate) wants_ipv6: bool,
    pub(crate) ports: Ports,
}

/// A variable that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadVariable {
    pub(crate) name: String,
    pub(crate) got: String,
    pub(crate) allowed: String,
}

impl std::fmt::Display for BadVariable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, got, allowed } = self;
        write!(
            f,
            "environment variable {name} is {got:?}; allowed: {allowed}"
        )
    }
}

type Read<T> = Result<T, BadVariable>;

impl Settings {
    /// What the variables say on this product.
    pub(crate) fn read(environment: &Environment, product: Product) -> Read<Self> {
        let reader = Reader { environment };
        reader.check_others()?;
        let connect = reader.number("HCCL_CONNECT_TIMEOUT", 120, 7200)?;
        let connect_timeout = reader
            .milliseconds(&EMU_CONNECT_TIMEOUT_MS)?
            .unwrap_or_else(|| Duration::from_secs(connect.unwrap_or(CONNECT_TIMEOUT_S)));
        let exec_timeout = match reader.milliseconds(&EMU_EXEC_TIMEOUT_MS)? {
            Some(timeout) => Some(timeout),
            None => reader.exec_timeout(product)?,
        };
        let buffer = reader.number("HCCL_BUFFSIZE", 1, u64::from(u32::MAX))?;
        Ok(Self {
            connect_timeout,
            exec_timeout,
            buffer_mb: buffer.map_or(BUFFER_MB, |mb| u32::try_from(mb).unwrap_or(BUFFER_MB)),
            deterministic: reader.deterministic(product)?,
            if_ip: reader.parsed("HCCL_IF_IP", "an address of this host", |text| {
                text.parse().ok()
            })?,
            interfaces: reader.parsed(
                "HCCL_SOCKET_IFNAME",
                "names of interfaces separated by commas, with ^, = or ^= in front",
                Interfaces::parse,
            )?,
            wants_ipv6: reader.choice("HCCL_SOCKET_FAMILY", &["AF_INET", "AF_INET6"])? == Some(1),
            ports: reader.ports()?,
        })
    }
}

/// Seconds of an execution timeout as the product takes them; `None` for never.
pub(crate) fn exec_seconds(seconds: u64, product: Product) -> Option<Duration> {
    let seconds = match product {
        Product::Atlas910 | Product::Atlas310P => seconds / EXEC_STEP_S * EXEC_STEP_S,
        Product::A2 | Product::A3 | Product::Atlas950 => seconds,
    };
    (seconds > 0).then(|| Duration::from_secs(seconds))
}

struct Reader<'a> {
    environment: &'a Environment,
}

impl Reader<'_> {
    fn text(&self, name: &str) -> Read<Option<&str>> {
        self.environment.text(name).map_err(|_| BadVariable {
            name: name.to_owned(),
            got: "no UTF-8".to_owned(),
            allowed: "text".to_owned(),
        })
    }

    fn parsed<T>(
        &self,
        name: &str,
        allowed: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Read<Option<T>> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match parse(text) {
            Some(value) => Ok(Some(value)),
            None => Err(BadVariable {
                name: name.to_owned(),
                got: text.to_owned(),
                allowed: allowed.to_owned(),
            }),
        }
    }

    fn number(&self, name: &str, least: u64, most: u64) -> Read<Option<u64>> {
        self.parsed(name, &format!("[{least}, {most}]"), |text| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let number = text.parse().ok().filter(|_| digits)?;
            (least..=most).contains(&number).then_some(number)
        })
    }

    fn choice(&self, name: &str, choices: &[&str]) -> Read<Option<usize>> {
        self.parsed(name, &choices.join(", "), |text| {
            choices
                .iter()
                .position(|choice| choice.eq_ignore_ascii_case(text))
        })
    }

    /// One of the emulator's own shorter timeouts.
    fn milliseconds(&self, row: &muster_comm::config::Row<u32>) -> Read<Option<Duration>> {
        let read = self.environment.read(row).map_err(|_| {
            let variable = row.variable();
            BadVariable {
                name: variable.name.to_owned(),
                got: self
                    .text(variable.name)
                    .ok()
                    .flatten()
                    .unwrap_or_default()
                    .to_owned(),
                allowed: variable.allowed.to_owned(),
            }
        })?;
        Ok(read.map(|ms| Duration::from_millis(u64::from(ms))))
    }

    fn exec_timeout(&self, product: Product) -> Read<Option<Duration>> {
        let (least, most) = match product {
            Product::Atlas910 | Product::Atlas310P => (1, 17_340),
            Product::A2 | Product::A3 | Product::Atlas950 => (0, 2_147_483_647),
        };
        let seconds = self.number("HCCL_EXEC_TIMEOUT", least, most)?;
        Ok(exec_seconds(seconds.unwrap_or(EXEC_TIMEOUT_S), product))
    }

    fn deterministic(&self, product: Product) -> Read<Option<i32>> {
        let words: &[&str] = match product {
            Product::A2 => &["false", "true", "strict"],
            _ => &["false", "true"],
        };
        let chosen = self.choice("HCCL_DETERMINISTIC", words)?;
        Ok(chosen.map(|chosen| i32::try_from(chosen).unwrap_or(0)))
    }

    fn ports(&self) -> Read<Ports> {
        let listed = self.parsed("HCCL_HOST_SOCKET_PORT_RANGE", PORT_FORMS, port_range)?;
        let base = self.number("HCCL_IF_BASE_PORT", 1024, 65_520)?;
        if let Some(listed) = listed {
            return Ok(listed);
        }
        let base = base.map_or(BASE_PORT, |base| u16::try_from(base).unwrap_or(BASE_PORT));
        let last = base.saturating_add(PORTS - 1);
        Ok(Ports::Listed((base..=last).collect()))
    }

    /// Variables that change nothing here and are refused all the same where they are wrong.
    fn check_others(&self) -> Read<()> {
        for (name, least, most) in [
            ("HCCL_RDMA_SL", 0, 7),
            ("HCCL_RDMA_TIMEOUT", 0, 31),
            ("HCCL_RDMA_RETRY_CNT", 1, 7),
            ("HCCL_RDMA_QPS_PER_CONNECTION", 1, 32),
            ("HCCL_MULTI_QP_THRESHOLD", 1, 8192),
            ("HCCL_ENTRY_LOG_ENABLE", 0, 1),
            ("HCCL_DIAGNOSE_ENABLE", 0, 1),
        ] {
            self.number(name, least, most)?;
        }
        self.parsed("HCCL_RDMA_TC", "[0, 255], a multiple of 4", |text| {
            let number: u32 = text.parse().ok()?;
            (number <= 255 && number.is_multiple_of(4)).then_some(())
        })?;
        self.parsed("HCCL_NPU_SOCKET_PORT_RANGE", PORT_FORMS, port_range)?;
        self.choice("HCCL_INTER_HCCS_DISABLE", &["FALSE", "TRUE"])?;
        let disabled = self.choice("HCCL_WHITELIST_DISABLE", &["0", "1"])?;
        if disabled == Some(0) && self.text("HCCL_WHITELIST_FILE")?.is_none() {
            return Err(BadVariable {
                name: "HCCL_WHITELIST_FILE".to_owned(),
                got: String::new(),
                allowed: "a file, where HCCL_WHITELIST_DISABLE is 0".to_owned(),
            });
        }
        let pcie = self.choice("HCCL_INTRA_PCIE_ENABLE", &["0", "1"])?;
        let roce = self.choice("HCCL_INTRA_ROCE_ENABLE", &["0", "1"])?;
        match (pcie, roce) {
            (Some(1), Some(1)) | (Some(0), None) | (None, Some(0)) => Err(BadVariable {
                name: "HCCL_INTRA_PCIE_ENABLE with HCCL_INTRA_ROCE_ENABLE".to_owned(),
                got: format!("{} and {}", bit(pcie), bit(roce)),
                allowed: "not both 1, and none of them 0 alone".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

fn bit(value: Option<usize>) -> String {
    value.map_or_else(|| "unset".to_owned(), |value| value.to_string())
}

const PORT_FORMS: &str = "auto, or ports and ranges such as 60000-60050,60100, each in [1, 65535]";

fn port_range(text: &str) -> Option<Ports> {
    if text == "auto" {
        return Some(Ports::Any);
    }
    let mut ports = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        if first == 0 || last < first {
            return None;
        }
        ports.extend(first..=last);
    }
    Some(Ports::Listed(ports))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)], product: Product) -> Read<Settings> {
        Settings::read(&Environment::from_pairs(pairs.iter().copied()), product)
    }

    #[test]
    fn nothing_set_means_the_vendors_defaults() {
        let settings = read(&[], Product::A2).unwrap();
        assert_eq!(settings.connect_timeout, Duration::from_secs(120));
        assert_eq!(settings.exec_timeout, Some(Duration::from_secs(1836)));
        assert_eq!(settings.buffer_mb, 200);
        assert_eq!(settings.deterministic, None);
        assert_eq!(settings.ports, Ports::Listed((60_000..=60_031).collect()));
    }

    #[test]
    fn values_are_taken_as_the_product_takes_them() {
        let zero = [("HCCL_EXEC_TIMEOUT", "0")];
        assert_eq!(read(&zero, Product::A3).unwrap().exec_timeout, None);
        assert!(read(&zero, Product::Atlas910).is_err());
        let odd = [("HCCL_EXEC_TIMEOUT", "200")];
        let cut = read(&odd, Product::Atlas310P).unwrap().exec_timeout;
        assert_eq!(cut, Some(Duration::from_secs(136)));
        let strict = [("HCCL_DETERMINISTIC", "strict")];
        assert_eq!(read(&strict, Product::A2).unwrap().deterministic, Some(2));
        assert!(read(&strict, Product::A3).is_err());
        let both = [
            ("HCCL_IF_BASE_PORT", "50000"),
            ("HCCL_HOST_SOCKET_PORT_RANGE", "50100-50101,50200"),
        ];
        let ports = read(&both, Product::A2).unwrap().ports;
        assert_eq!(ports, Ports::Listed(vec![50_100, 50_101, 50_200]));
        let short = [
            ("MUSTER_EMU_CONNECT_TIMEOUT_MS", "300"),
            ("MUSTER_EMU_EXEC_TIMEOUT_MS", "200"),
        ];
        let short = read(&short, Product::A2).unwrap();
        assert_eq!(short.connect_timeout, Duration::from_millis(300));
        assert_eq!(short.exec_timeout, Some(Duration::from_millis(200)));
    }

    #[test]
    fn a_value_out_of_range_is_named_with_the_range() {
        for (name, value) in [
            ("HCCL_CONNECT_TIMEOUT", "119"),
            ("HCCL_CONNECT_TIMEOUT", "+200"),
            ("HCCL_EXEC_TIMEOUT", "-1"),
            ("HCCL_BUFFSIZE", "0"),
            ("HCCL_IF_BASE_PORT", "65521"),
            ("HCCL_IF_IP", "localhost"),
            ("HCCL_SOCKET_IFNAME", "eth0,,eth1"),
            ("HCCL_SOCKET_FAMILY", "IPv4"),
            ("HCCL_HOST_SOCKET_PORT_RANGE", "60050-60000"),
            ("HCCL_RDMA_TC", "130"),
            ("HCCL_WHITELIST_DISABLE", "0"),
            ("HCCL_INTRA_PCIE_ENABLE", "0"),
            ("HCCL_DETERMINISTIC", "yes"),
        ] {
            let error = read(&[(name, value)], Product::A2).unwrap_err().to_string();
            assert!(error.contains("allowed"), "{name}: {error}");
            assert!(error.contains("HCCL_"), "{name}: {error}");
        }
    }

    #[test]
    fn interface_names_are_prefixes_exact_or_negated() {
        let allows = |text: &str, name: &str| Interfaces::parse(text).unwrap().allows(name);
        assert!(allows("eth", "eth0") && !allows("eth", "lo"));
        assert!(!allows("^eth", "eth0") && allows("^eth", "lo"));
        assert!(allows("=eth0,eth1", "eth1") && !allows("=eth0", "eth01"));
        assert!(!allows("^=eth0", "eth0") && allows("^=eth0", "eth01"));
    }
}
