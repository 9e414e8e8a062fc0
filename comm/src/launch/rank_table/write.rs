//! Makes a rank table from servers, devices and addresses.

use serde_json::{Map, Value, json};

use super::audit::Version;

/// A server to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSketch {
    /// Its id: an address or a name.
    pub id: String,
    /// Its address, where that is not the id.
    pub host_ip: Option<String>,
    /// Addresses of its devices, in their order; empty where none are known.
    pub device_ips: Vec<String>,
}

/// What a table is to say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sketch {
    /// Its form; [`Version::Legacy`] is not written any more.
    pub version: Version,
    /// The servers, rank 0's first.
    pub servers: Vec<ServerSketch>,
    /// Physical ids of the devices of every server, in the order of ranks.
    pub devices: Vec<u32>,
    /// Servers of a super pod (1.2); all in one where it is not said.
    pub servers_a_pod: Option<usize>,
}

/// Why a table cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SketchError {
    /// Addresses and devices do not match.
    #[error("server {server} has {addresses} device addresses for {devices} devices")]
    Addresses {
        /// The server.
        server: String,
        /// Addresses that were given.
        addresses: usize,
        /// Devices that were given.
        devices: usize,
    },
    /// The form is one that is read only.
    #[error("tables of the form {0} are read and not written; allowed: 1.0, 1.2, 2.0")]
    Form(Version),
}

impl Sketch {
    /// The text of the table, ended by a newline.
    ///
    /// # Errors
    /// If addresses and devices do not match, or the form is not written any more.
    pub fn draw(&self) -> Result<String, SketchError> {
        for server in &self.servers {
            let addresses = server.device_ips.len();
            if addresses != 0 && addresses != self.devices.len() {
                return Err(SketchError::Addresses {
                    server: server.id.clone(),
                    addresses,
                    devices: self.devices.len(),
                });
            }
        }
        let table = match self.version {
            Version::Legacy => return Err(SketchError::Form(self.version)),
            Version::V1_0 | Version::V1_2 => self.by_servers(),
            Version::V2_0 => self.by_ranks(),
        };
        // `#` writes numbers, texts and lists that were just made: nothing there can fail.
        Ok(format!("{table:#}\n"))
    }

    fn by_servers(&self) -> Value {
        let pods = self.version == Version::V1_2;
        let mut rank = 0_u32;
        let mut list = Vec::new();
        for server in &self.servers {
            let mut devices = Vec::new();
            for (place, device) in self.devices.iter().enumerate() {
                let mut item = Map::new();
                item.insert("device_id".to_owned(), json!(device.to_string()));
                if let Some(address) = server.device_ips.get(place) {
                    item.insert("device_ip".to_owned(), json!(address));
                }
                if pods {
                    item.insert("super_device_id".to_owned(), json!(rank.to_string()));
                }
                item.insert("rank_id".to_owned(), json!(rank.to_string()));
                devices.push(Value::Object(item));
                rank += 1;
            }
            let mut item = Map::new();
            item.insert("server_id".to_owned(), json!(server.id));
            if let Some(host) = &server.host_ip {
                item.insert("host_ip".to_owned(), json!(host));
            }
            item.insert("device".to_owned(), Value::Array(devices));
            list.push(Value::Object(item));
        }
        let mut table = json!({
            "status": "completed",
            "version": self.version.to_string(),
            "server_count": self.servers.len().to_string(),
            "server_list": list,
        });
        if pods {
            table["super_pod_list"] = self.pods();
        }
        table
    }

    fn pods(&self) -> Value {
        let size = self.servers_a_pod.unwrap_or(self.servers.len()).max(1);
        let pod = |(place, servers): (usize, &[ServerSketch])| {
            let servers: Vec<Value> = servers
                .iter()
                .map(|server| json!({ "server_id": server.id }))
                .collect();
            json!({ "super_pod_id": place.to_string(), "server_list": servers })
        };
        self.servers.chunks(size).enumerate().map(pod).collect()
    }

    fn by_ranks(&self) -> Value {
        let mut list = Vec::new();
        for server in &self.servers {
            for (place, device) in self.devices.iter().enumerate() {
                let address = server.device_ips.get(place).map(|address| {
                    let kind = if address.contains(':') {
                        "IPV6"
                    } else {
                        "IPV4"
                    };
                    json!({ "addr_type": kind, "addr": address, "ports": [] })
                });
                let addresses: Vec<Value> = address.into_iter().collect();
                list.push(json!({
                    "rank_id": list.len(),
                    "local_id": place,
                    "device_id": device,
                    "level_list": [{
                        "net_layer": 0,
                        "net_instance_id": server.id,
                        "net_type": "TOPO_FILE_DESC",
                        "net_attr": "",
                        "rank_addr_list": addresses,
                    }],
                }));
            }
        }
        json!({
            "status": "completed",
            "version": "2.0",
            "rank_count": list.len(),
            "rank_list": list,
        })
    }
}
