//! Reads the variables of one contract and remembers which.

use super::contract::Contract;
use super::error::LaunchError;
use crate::config::{ConfigError, Environment, decimal, shown};
use crate::types::MAX_WORLD_SIZE;

/// What a rank, a size or a number of a node may be.
const NUMBER: &str = "a whole number from 0 to 16777216";

/// A view of the snapshot for one contract.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    environment: &'a Environment,
    pub(super) contract: Contract,
    /// The user chose this contract.
    pub(super) forced: bool,
    used: Vec<(String, String)>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(environment: &'a Environment, contract: Contract) -> Self {
        Self {
            environment,
            contract,
            forced: false,
            used: Vec::new(),
        }
    }

    pub(super) fn forced(environment: &'a Environment, contract: Contract) -> Self {
        Self {
            forced: true,
            ..Self::new(environment, contract)
        }
    }

    pub(super) fn environment(&self) -> &'a Environment {
        self.environment
    }

    /// The variables read so far that were set.
    pub(super) fn used(&self) -> Vec<(String, String)> {
        self.used.clone()
    }

    /// Whether a variable is set; it is not remembered.
    pub(super) fn has(&self, name: &str) -> bool {
        self.environment.names().any(|known| known == name)
    }

    /// Whether a variable with this beginning is set; none is remembered.
    pub(super) fn has_prefix(&self, prefix: &str) -> bool {
        self.environment
            .names()
            .any(|known| known.starts_with(prefix))
    }

    pub(super) fn text(&mut self, name: &str) -> Result<Option<&'a str>, LaunchError> {
        let value = self.environment.text(name)?;
        if let Some(value) = value
            && self.used.iter().all(|(known, _)| known != name)
        {
            self.used.push((name.to_owned(), shown(value)));
        }
        Ok(value)
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<u32>, LaunchError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match small(text) {
            Some(number) => Ok(Some(number)),
            None => Err(ConfigError::malformed(name, text, NUMBER).into()),
        }
    }

    /// A number of ranks, from 1.
    pub(super) fn world_size(&mut self, name: &str) -> Result<Option<u32>, LaunchError> {
        let size = self.number(name)?;
        if size == Some(0) {
            let allowed = "a whole number from 1 to 16777216";
            return Err(ConfigError::malformed(name, "0", allowed).into());
        }
        Ok(size)
    }

    /// A number that goes by several names, which must not contradict each other.
    pub(super) fn number_of(&mut self, names: &[&str]) -> Result<Option<u32>, LaunchError> {
        let mut found: Option<(&str, u32)> = None;
        for name in names {
            let Some(number) = self.number(name)? else {
                continue;
            };
            match found {
                None => found = Some((name, number)),
                Some((_, first)) if first == number => {}
                Some((other, first)) => {
                    return Err(
                        self.contradiction(format!("{other} is {first} where {name} is {number}"))
                    );
                }
            }
        }
        Ok(found.map(|(_, number)| number))
    }

    /// The first of several names that is set.
    pub(super) fn first_text(&mut self, names: &[&str]) -> Result<Option<&'a str>, LaunchError> {
        for name in names {
            if let Some(text) = self.text(name)? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    pub(super) fn port(&mut self, name: &str) -> Result<Option<u16>, LaunchError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match decimal(text).and_then(|port| u16::try_from(port).ok()) {
            Some(port) => Ok(Some(port)),
            None => Err(ConfigError::malformed(name, text, "a port from 0 to 65535").into()),
        }
    }

    /// The name or address of a host. Brackets around an IPv6 address are taken off.
    pub(super) fn host(&mut self, name: &str) -> Result<Option<String>, LaunchError> {
        let Some(text) = self.text(name)? else {
            return Ok(None);
        };
        match host(text) {
            Some(host) => Ok(Some(host)),
            None => Err(ConfigError::malformed(name, text, "a host name or address").into()),
        }
    }

    pub(super) fn contradiction(&self, what: String) -> LaunchError {
        LaunchError::Contradiction {
            contract: self.contract,
            what,
            variables: self.used(),
        }
    }

    pub(super) fn unsupported(&self, what: String) -> LaunchError {
        LaunchError::Unsupported {
            contract: self.contract,
            what,
            variables: self.used(),
        }
    }
}

/// A number as ranks, sizes and indices are written.
pub(super) fn small(text: &str) -> Option<u32> {
    decimal(text)
        .and_then(|number| u32::try_from(number).ok())
        .filter(|number| *number <= MAX_WORLD_SIZE)
}

/// A host name, an IPv4 address, or an IPv6 address with or without brackets.
pub(super) fn host(text: &str) -> Option<String> {
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(text);
    let legal = crate::config::is_host(bare) || bare.parse::<std::net::Ipv6Addr>().is_ok();
    legal.then(|| bare.to_owned())
}
