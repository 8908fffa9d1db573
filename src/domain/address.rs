//! Which addresses a request may be sent to that somebody else has named: those of the public internet, and none that
//! leads back into a building, a machine or a cloud's own services.
//!
//! Sources: IANA's special-purpose registries for IPv4 and IPv6 (RFC 6890 and what they list since), the multicast and
//! reserved blocks, and IPv6's global unicast, `2000::/3`. What the registries call globally reachable is refused too where
//! no web server lives there, or where another address is hidden in it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A block of addresses: its first, and how many leading bits it has in common.
type Block4 = (Ipv4Addr, u32, &'static str);
type Block6 = (Ipv6Addr, u32, &'static str);

const REFUSED_4: [Block4; 22] = [
    (Ipv4Addr::UNSPECIFIED, 8, "this network, RFC 791"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private, RFC 1918"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "shared, RFC 6598; also a cloud's metadata, 100.100.100.200"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback, RFC 1122"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's own services, in no registry"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local, RFC 3927; also every cloud's metadata"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private, RFC 1918"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "protocol assignments, RFC 6890"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "documentation, RFC 5737"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "AS112, RFC 7535"),
    (Ipv4Addr::new(192, 52, 193, 0), 24, "AMT, RFC 7450"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "6to4 relays, RFC 7526"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private, RFC 1918"),
    (Ipv4Addr::new(192, 175, 48, 0), 24, "AS112, RFC 7534"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "benchmarks, RFC 2544"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "documentation, RFC 5737"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "documentation, RFC 5737"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast, RFC 5771"),
    (Ipv4Addr::new(233, 252, 0, 0), 24, "documentation, RFC 6676"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved, RFC 1112"),
    (Ipv4Addr::BROADCAST, 32, "limited broadcast, RFC 8190"),
    (Ipv4Addr::new(192, 0, 0, 192), 32, "a cloud's metadata"),
];

/// Within `2000::/3`, outside of which nothing is allowed but [`NAT64`].
const REFUSED_6: [Block6; 5] = [
    // Teredo (2001::/32), benchmarks (2001:2::/48), ORCHID (2001:10::/28, 2001:20::/28), drone ids (2001:30::/28) and others.
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "protocol assignments, RFC 2928"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "documentation, RFC 3849"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "6to4, RFC 3056: any IPv4 address may be in it"),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, "AS112, RFC 7534"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "documentation, RFC 9637"),
];

/// Global unicast, RFC 4291: what IANA gives out.
const GLOBAL_UNICAST: Ipv6Addr = Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0);

/// RFC 6052: how a network without IPv4 reaches the IPv4 address in the last 32 bits.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// Whether an address is of the public internet.
#[must_use]
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_4(address),
        IpAddr::V6(address) => {
            if within_6(address, NAT64, 96) {
                let [.., a, b, c, d] = address.octets();
                return is_public_4(Ipv4Addr::new(a, b, c, d));
            }
            within_6(address, GLOBAL_UNICAST, 3)
                && !REFUSED_6.iter().any(|(block, bits, _)| within_6(address, *block, *bits))
        }
    }
}

fn is_public_4(address: Ipv4Addr) -> bool {
    !REFUSED_4.iter().any(|(block, bits, _)| (address.to_bits() ^ block.to_bits()).leading_zeros() >= *bits)
}

fn within_6(address: Ipv6Addr, block: Ipv6Addr, bits: u32) -> bool {
    (address.to_bits() ^ block.to_bits()).leading_zeros() >= bits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn public(text: &str) -> bool {
        is_public(text.parse().expect("an address"))
    }

    #[test]
    fn every_block_is_refused_from_its_first_address_to_its_last() {
        for (block, bits, why) in REFUSED_4 {
            let last = Ipv4Addr::from_bits(block.to_bits() | u32::MAX.checked_shr(bits).unwrap_or(0));
            assert!(!is_public(block.into()) && !is_public(last.into()), "{block}/{bits} {why}");
        }
        for (block, bits, why) in REFUSED_6 {
            let last = Ipv6Addr::from_bits(block.to_bits() | u128::MAX.checked_shr(bits).unwrap_or(0));
            assert!(!is_public(block.into()) && !is_public(last.into()), "{block}/{bits} {why}");
        }
    }

    #[test]
    fn what_lies_beside_them_is_not() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.0.3.0",
            "192.31.195.255",
            "192.31.197.0",
            "192.52.192.255",
            "192.52.194.0",
            "192.88.98.255",
            "192.88.100.0",
            "192.167.255.255",
            "192.169.0.0",
            "192.175.47.255",
            "192.175.49.0",
            "198.17.255.255",
            "198.20.0.0",
            "198.51.99.255",
            "198.51.101.0",
            "203.0.112.255",
            "203.0.114.0",
            "223.255.255.255",
            "2000::1",
            "2001:200::1",
            "2001:db7:ffff::1",
            "2001:db9::1",
            "2003::1",
            "2606:4700:4700::1111",
            "2620:4f:7fff::1",
            "2620:4f:8001::1",
            "3ffe:ffff::1",
            "3fff:1000::1",
        ] {
            assert!(public(address), "{address}");
        }
    }

    /// The registries' rows, and the spellings under which an address hides in another.
    #[test]
    fn nothing_special_is_public() {
        for address in [
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:1.1.1.1",
            "::127.0.0.1",
            "::7f00:1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::127.0.0.1",
            "64:ff9b::10.1.2.3",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::1",
            "64:ff9b:1:ffff::8.8.8.8",
            "100::1",
            "100:0:0:1::1",
            "2001::1",
            "2001:0:7f00:1::",
            "2001:1::1",
            "2001:2::1",
            "2001:3::1",
            "2001:4:112::1",
            "2001:10::1",
            "2001:20::1",
            "2001:30::1",
            "2001:1ff:ffff::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "2002:c0a8:101::1",
            "2620:4f:8000::1",
            "3fff::1",
            "3fff:fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd00:ec2::254",
            "fdff:ffff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "feff::1",
            "ff00::1",
            "ff02::1",
            "ff0e::1",
            "0.0.0.0",
            "0.255.255.255",
            "10.255.255.255",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "169.254.169.254",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.0.8",
            "192.0.0.9",
            "192.0.0.170",
            "192.0.0.192",
            "192.168.1.1",
            "198.19.255.255",
            "224.0.0.1",
            "233.252.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
        ] {
            assert!(!public(address), "{address}");
        }
        assert!(public("64:ff9b::1.1.1.1"), "a public address behind NAT64 is one");
    }
}
