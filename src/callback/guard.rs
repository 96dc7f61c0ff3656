//! Limits which addresses may be called, depending on who named the host. It protects what only
//! delayd can reach from callers: its own network, a cloud's metadata, this machine.
//!
//! The client resolves names with the resolver here, which returns only allowed addresses, and
//! connects to those. So a name that resolves differently a moment later ("DNS rebinding") gains
//! nothing. A host that is an address needs no resolver. [`Reach::allows_literal`] checks it before
//! the call.
//!
//! Each [`Reach`] has connections of its own: a connection for an operator's service is never used
//! for a caller's URL.

use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::vec;

use hyper_util::client::legacy::connect::dns::Name;
use tower::Service;
use url::Url;

use crate::dns::Dns;

/// Which addresses a call may reach, depending on who named its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The operator named it: any address.
    Anywhere,
    /// A caller named it, and the operator allows private hosts: any address except link-local ones
    /// and a cloud's metadata.
    Private,
    /// A caller's name in the operator's template: the operator's network, but not this machine,
    /// its link or a cloud's metadata.
    Network,
    /// A caller named it: the public Internet.
    Public,
}

impl Reach {
    /// Whether the address may be called.
    pub(super) fn allows(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        match (self, address) {
            (Self::Anywhere, _) => true,
            _ if is_metadata(address) => false,
            (Self::Private, _) => true,
            (Self::Network, IpAddr::V4(address)) => is_beyond_link_v4(address),
            (Self::Network, IpAddr::V6(address)) => is_beyond_link_v6(address),
            (Self::Public, IpAddr::V4(address)) => is_public_v4(address),
            (Self::Public, IpAddr::V6(address)) => is_public_v6(address),
        }
    }

    /// Whether the URL's host may be called, if it is an address. Names are allowed here, because
    /// their addresses are checked when they are resolved.
    ///
    /// The URL parser understands every notation of an address: decimal, octal, in brackets.
    pub(super) fn allows_literal(self, url: &Url) -> bool {
        match url.host() {
            Some(url::Host::Ipv4(address)) => self.allows(address.into()),
            Some(url::Host::Ipv6(address)) => self.allows(address.into()),
            Some(url::Host::Domain(_)) => true,
            None => false,
        }
    }
}

/// Addresses where clouds give the machine's credentials to every local caller: link-local ones
/// (such as 169.254.169.254), and some of their own.
fn is_metadata(address: IpAddr) -> bool {
    const ALIBABA: Ipv4Addr = Ipv4Addr::new(100, 100, 100, 200);
    const AZURE: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
    match address {
        IpAddr::V4(address) => address.is_link_local() || address == ALIBABA || address == AZURE,
        IpAddr::V6(address) => match (address.segments(), v4_within(address)) {
            // Amazon's network, with the metadata at fd00:ec2::254.
            ([0xfd00, 0xec2, ..], _) => true,
            // The local NAT64 prefix: only its operator knows where it leads.
            ([0x64, 0xff9b, 1, ..], _) => true,
            (_, Some(within)) => is_metadata(within.into()),
            _ => address.is_unicast_link_local(),
        },
    }
}

/// The IPv4 address that an IPv6 address leads to: by NAT64, by 6to4, or in IPv4-compatible
/// notation.
fn v4_within(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [first, second, third, ..] = address.segments();
    let [.., a, b, c, d] = address.octets();
    match (first, second, third) {
        (0x64, 0xff9b, 0) | (0, 0, 0) => Some(Ipv4Addr::new(a, b, c, d)),
        (0x2002, ..) => {
            let ([a, b], [c, d]) = (second.to_be_bytes(), third.to_be_bytes());
            Some(Ipv4Addr::new(a, b, c, d))
        }
        _ => None,
    }
}

/// Not this machine, not link-local, and not multicast or broadcast.
fn is_beyond_link_v4(address: Ipv4Addr) -> bool {
    let [first, ..] = address.octets();
    !(first == 0 || address.is_loopback() || address.is_link_local() || first >= 224)
}

fn is_beyond_link_v6(address: Ipv6Addr) -> bool {
    match (address.segments(), v4_within(address)) {
        // ::, ::1 and IPv4-compatible addresses; the local NAT64 prefix.
        ([0, ..], _) => false,
        ([0x64, 0xff9b, third, ..], _) if third != 0 => false,
        (_, Some(within)) => is_beyond_link_v4(within),
        _ => !address.is_multicast() && !address.is_unicast_link_local(),
    }
}

/// Not in IANA's registry of special-purpose addresses, and not reserved.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let is_special = matches!(
        address.octets(),
        [0 | 10 | 127, ..]
            | [100, 64..=127, ..]
            | [169, 254, ..]
            | [172, 16..=31, ..]
            | [192, 0, 0 | 2, _]
            | [192, 88, 99, _]
            | [192, 168, ..]
            | [198, 18 | 19, ..]
            | [198, 51, 100, _]
            | [203, 0, 113, _]
            | [224..=255, ..]
    );
    !is_special
}

/// Only 2000::/3 is public in IPv6, without some parts.
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // Teredo and other special purposes; documentation; 6to4.
        [0x2001, 0..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x2002, ..] => false,
        [0x3fff, 0..=0xfff, ..] => false,
        [0x2000..=0x3fff, ..] => true,
        _ => false,
    }
}

/// Why there is no address to connect to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unresolved {
    #[error("no address of the host may be called")]
    Denied,
    #[error("the name is not resolved")]
    Unknown,
}

/// A resolver that returns only allowed addresses. It checks them each time, also those that an
/// earlier lookup found.
#[derive(Clone)]
pub(super) struct Guard {
    allows: fn(IpAddr) -> bool,
    dns: Dns,
}

impl Guard {
    /// Looks names up by `dns`.
    pub(super) fn new(reach: Reach, dns: Dns) -> Self {
        let allows = match reach {
            Reach::Anywhere => |_| true,
            Reach::Private => |address| Reach::Private.allows(address),
            Reach::Network => |address| Reach::Network.allows(address),
            Reach::Public => |address| Reach::Public.allows(address),
        };
        Self::allowing(allows, dns)
    }

    /// A guard with another rule.
    pub(super) fn allowing(allows: fn(IpAddr) -> bool, dns: Dns) -> Self {
        Self { allows, dns }
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").finish_non_exhaustive()
    }
}

impl Service<Name> for Guard {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = Unresolved;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Unresolved>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Unresolved>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let Self { allows, dns } = self.clone();
        Box::pin(async move {
            // The connector sets the port.
            let found = dns.look_up(name.as_str(), 0).await.map_err(|_| Unresolved::Unknown)?;
            let allowed: Vec<_> =
                found.into_iter().filter(|address| allows(address.ip())).collect();
            if allowed.is_empty() { Err(Unresolved::Denied) } else { Ok(allowed.into_iter()) }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_host_is_on_the_public_internet_and_a_named_one_beyond_the_link() {
        let check = |address: &str, network: bool, public: bool| {
            let address: IpAddr = address.parse().unwrap();
            assert!(Reach::Anywhere.allows(address));
            assert_eq!(Reach::Network.allows(address), network, "network {address}");
            assert_eq!(Reach::Public.allows(address), public, "public {address}");
        };
        check("93.184.216.34", true, true);
        check("1.1.1.1", true, true);
        check("172.15.255.255", true, true);
        check("172.32.0.0", true, true);
        check("100.63.255.255", true, true);
        check("100.128.0.0", true, true);
        check("223.255.255.255", true, true);
        check("2606:2800:220:1:248:1893:25c8:1946", true, true);
        check("2001:200::1", true, true);
        check("10.0.0.1", true, false);
        check("172.16.0.1", true, false);
        check("172.31.255.255", true, false);
        check("192.168.1.1", true, false);
        check("100.64.0.1", true, false);
        check("100.127.255.255", true, false);
        check("192.0.0.8", true, false);
        check("192.0.2.1", true, false);
        check("192.88.99.1", true, false);
        check("198.18.0.1", true, false);
        check("198.19.255.255", true, false);
        check("198.51.100.7", true, false);
        check("203.0.113.7", true, false);
        check("fd00::1", true, false);
        check("fc00::1", true, false);
        check("2001:db8::1", true, false);
        check("2001::1", true, false);
        check("3fff::1", true, false);
        check("100::1", true, false);
        check("64:ff9b:1::1", false, false);
        check("::ffff:10.0.0.1", true, false);
        check("64:ff9b::a00:1", true, false);
        check("64:ff9b::101:101", true, false);
        check("2002:a00:1::", true, false);
        check("0.0.0.0", false, false);
        check("0.1.2.3", false, false);
        check("127.0.0.1", false, false);
        check("127.255.255.254", false, false);
        check("169.254.169.254", false, false);
        check("224.0.0.1", false, false);
        check("240.0.0.1", false, false);
        check("255.255.255.255", false, false);
        check("::", false, false);
        check("::1", false, false);
        check("::7f00:1", false, false);
        check("::ffff:127.0.0.1", false, false);
        check("::ffff:169.254.169.254", false, false);
        check("64:ff9b::7f00:1", false, false);
        check("64:ff9b::a9fe:a9fe", false, false);
        check("2002:7f00:1::", false, false);
        check("2002:a9fe:a9fe::1", false, false);
        check("fe80::1", false, false);
        check("ff02::1", false, false);
    }

    #[test]
    fn a_clouds_metadata_is_reached_by_no_host_that_a_caller_names() {
        let check = |address: &str, private: bool| {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(Reach::Private.allows(address), private, "private {address}");
            assert!(Reach::Anywhere.allows(address), "an operator's own service may be there");
            if !private {
                assert!(!Reach::Network.allows(address), "network {address}");
                assert!(!Reach::Public.allows(address), "public {address}");
            }
        };
        for address in ["169.254.169.254", "169.254.170.2", "100.100.100.200", "168.63.129.16"] {
            let v4: Ipv4Addr = address.parse().unwrap();
            let [a, b, c, d] = v4.octets();
            let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
            check(address, false);
            check(&format!("::ffff:{address}"), false);
            check(&format!("::{address}"), false);
            check(&format!("64:ff9b::{address}"), false);
            check(&format!("64:ff9b:1::{address}"), false);
            check(&format!("2002:{high:x}:{low:x}::1"), false);
        }
        for address in ["fd00:ec2::254", "fd00:ec2::23", "fe80::1", "fe80::a9fe:a9fe"] {
            check(address, false);
        }
        for address in [
            "127.0.0.1",
            "10.0.0.1",
            "100.100.100.201",
            "168.63.129.17",
            "::1",
            "fd00:ec3::254",
            "64:ff9b::a00:1",
        ] {
            check(address, true);
        }
    }

    #[test]
    fn an_address_in_a_url_is_known_however_it_is_written() {
        let check = |url: &str, allowed: bool| {
            assert_eq!(Reach::Public.allows_literal(&Url::parse(url).unwrap()), allowed, "{url}");
        };
        check("http://127.0.0.1/", false);
        check("http://127.1/", false);
        check("http://2130706433/", false);
        check("http://0x7f000001/", false);
        check("http://0177.0.0.1/", false);
        check("http://127.0.0.1./", false);
        check("http://１２７.0.0.1/", false);
        check("http://[::1]/", false);
        check("http://[::ffff:127.0.0.1]/", false);
        check("http://[fe80::1]/", false);
        check("http://169.254.169.254/latest/meta-data/", false);
        check("http://1.1.1.1/", true);
        check("http://localhost/", true);
    }

    async fn resolved(mut guard: Guard) -> Result<Vec<IpAddr>, Unresolved> {
        let found = guard.call("any.example".parse().unwrap()).await?;
        Ok(found.map(|address| address.ip()).collect())
    }

    #[tokio::test]
    async fn of_a_names_addresses_only_the_allowed_are_handed_on() {
        let check = async |reach: fn(IpAddr) -> bool,
                           found: &[&str],
                           expected: Result<&[&str], Unresolved>| {
            let addresses = |texts: &[&str]| {
                texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>()
            };
            let known: Vec<_> =
                addresses(found).into_iter().map(|found| SocketAddr::new(found, 0)).collect();
            let guard = Guard::allowing(reach, Dns::asking(1, move |_| Ok(known.clone())));
            assert_eq!(resolved(guard).await, expected.map(addresses), "{found:?}");
        };
        let (public, network) =
            (|address| Reach::Public.allows(address), |address| Reach::Network.allows(address));
        let denied = Err(Unresolved::Denied);
        check(public, &["1.1.1.1", "127.0.0.1", "::1"], Ok(&["1.1.1.1"])).await;
        check(public, &["10.0.0.7", "::1"], denied).await;
        check(network, &["10.0.0.7", "127.0.0.1"], Ok(&["10.0.0.7"])).await;
        check(network, &["169.254.169.254"], denied).await;
        check(public, &[], Err(Unresolved::Unknown)).await;
    }
}
