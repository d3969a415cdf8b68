//! The guard against server-side request forgery: which addresses may be dialled.
//!
//! Invariants:
//! - It is asked about the address that is dialled next, never about a name or about the text of a URL. How an address
//!   was spelled, and what a name resolved to a moment ago, therefore make no difference.
//! - What it answers is fixed when the host starts. A pooled connection was checked when it was dialled and still leads
//!   to the same address, so asking again before reusing it would give the same answer.
//! - The host's own listeners are refused whatever the operator allows.
//!
//! It cannot know that a public address leads back here (a forwarded port, a proxy): that is the network's to prevent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use ipnet::IpNet;

/// Networks that are not public: this host, private and shared ones, link-local (cloud metadata lives there),
/// documentation, benchmarking, multicast, reserved, and the IPv6 forms that carry an IPv4 address (IANA's
/// special-purpose registries, <https://www.iana.org/assignments/iana-ipv6-special-registry/>); what is no longer
/// reserved and still routed in places; and the one public address under which a cloud has its machines' keeper
/// (<https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16>).
const DENIED_NETWORKS: [&str; 34] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "168.63.129.16/32",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/128",
    "::1/128",
    "::/96",
    "::ffff:0:0/96",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "2001::/32",
    "2001:2::/48",
    "2001:10::/28",
    "2001:db8::/32",
    "2002::/16",
    "3fff::/20",
    "5f00::/16",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];

/// Decides which addresses may be dialled.
#[derive(Debug)]
pub(crate) struct Guard {
    denied: Vec<IpNet>,
    allowed: Vec<IpNet>,
    own_listeners: Vec<SocketAddr>,
}

/// Why an address may not be dialled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denied {
    /// It is in a network that is not public and that the operator has not allowed.
    #[error(
        "the address {address} is in {network}, which is not a public network: allow it with `publish.allow_networks`"
    )]
    Network {
        /// What would have been dialled.
        address: IpAddr,
        /// The network that it is in.
        network: IpNet,
    },
    /// It leads to a listener of this host.
    #[error("the address {0} is a listener of this host")]
    OwnListener(SocketAddr),
}

impl Guard {
    /// A guard that also lets through `allow_networks` (in CIDR notation), but never to `own_listeners`.
    pub(crate) fn new(allow_networks: &[String], own_listeners: &[SocketAddr]) -> Result<Self, String> {
        let network =
            |text: &str| text.parse::<IpNet>().map_err(|_| format!("`{text}` is not a network in CIDR notation"));
        Ok(Self {
            denied: DENIED_NETWORKS.into_iter().map(network).collect::<Result<_, _>>()?,
            allowed: allow_networks.iter().map(|text| network(text)).collect::<Result<_, _>>()?,
            own_listeners: own_listeners.iter().copied().map(canonical).collect(),
        })
    }

    /// Whether `address` may be dialled. An IPv4 address inside an IPv6 one is judged as what it is.
    pub(crate) fn check(&self, address: SocketAddr) -> Result<(), Denied> {
        let address = canonical(address);
        if self.own_listeners.iter().any(|listener| reaches(address, *listener)) {
            return Err(Denied::OwnListener(address));
        }
        let ip = address.ip();
        if self.allowed.iter().any(|network| network.contains(&ip)) {
            return Ok(());
        }
        match self.denied.iter().find(|network| network.contains(&ip)) {
            Some(network) => Err(Denied::Network { address: ip, network: *network }),
            None => Ok(()),
        }
    }
}

/// The address with an IPv4-mapped IPv6 address unwrapped: what the operating system dials.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// Whether dialling `address` ends at `listener`. A listener that is bound to every address is reached by any address
/// of this machine; dialling the unspecified address reaches this machine.
fn reaches(address: SocketAddr, listener: SocketAddr) -> bool {
    if address.port() != listener.port() {
        return false;
    }
    let dialled = match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip @ (IpAddr::V4(_) | IpAddr::V6(_)) => ip,
    };
    dialled == listener.ip() || (listener.ip().is_unspecified() && belongs_to_this_machine(dialled))
}

/// Asks the operating system: only an address of its own can be bound. Asked only where the port is a listener's.
fn belongs_to_this_machine(ip: IpAddr) -> bool {
    ip.is_loopback() || UdpSocket::bind((ip, 0)).is_ok()
}

#[cfg(test)]
mod tests;
