//! The kinds of value for listen addresses and for networks.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use serde_json::{Value as Json, json};

use super::{Kind, Node, Wrong, print};

/// A listen address, or none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listen {
    /// No listener.
    Off,
    /// This address.
    On(SocketAddr),
}

/// `IP:PORT` or `off`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListenAddress;

pub(crate) fn listen() -> ListenAddress {
    ListenAddress
}

impl Kind for ListenAddress {
    type Value = Listen;

    fn read(&self, node: &Node) -> Result<Listen, Wrong> {
        let help = r#"write an address and a port, such as "127.0.0.1:9464" or "[::1]:9464""#;
        let wrong = || Wrong::new("must be an IP address with a port, or `off`", help);
        match node.as_text().ok_or_else(wrong)? {
            "off" => Ok(Listen::Off),
            text => match text.strip_prefix("localhost:") {
                Some(port) => {
                    let port = port.parse().map_err(|_| wrong())?;
                    Ok(Listen::On((IpAddr::from(Ipv4Addr::LOCALHOST), port).into()))
                }
                None => Ok(Listen::On(text.parse().map_err(|_| wrong())?)),
            },
        }
    }

    fn show(&self, value: &Listen) -> String {
        print::text(&match value {
            Listen::Off => "off".to_owned(),
            Listen::On(address) => address.to_string(),
        })
    }

    fn describe(&self) -> String {
        "`\"IP:PORT\"` or `\"off\"`".into()
    }

    fn schema(&self) -> Json {
        json!({ "type": "string" })
    }
}

/// A network, or a single address.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NetworkAddress;

pub(crate) fn network() -> NetworkAddress {
    NetworkAddress
}

impl Kind for NetworkAddress {
    type Value = IpNet;

    fn read(&self, node: &Node) -> Result<IpNet, Wrong> {
        let help = r#"write an address with a prefix length, such as "10.0.0.0/8", or "192.0.2.7""#;
        let wrong = || Wrong::new("must be an IP address or a network", help);
        let text = node.as_text().ok_or_else(wrong)?;
        let single = || text.parse::<IpAddr>().map(IpNet::from);
        let network = text.parse().or_else(|_| single()).map_err(|_| wrong())?;
        match network.prefix_len() {
            0 => Err(Wrong::new("must not be every address", help)),
            _ => Ok(network),
        }
    }

    fn show(&self, value: &IpNet) -> String {
        print::text(&value.to_string())
    }

    fn describe(&self) -> String {
        "address or network".into()
    }

    fn schema(&self) -> Json {
        json!({ "type": "string" })
    }
}
