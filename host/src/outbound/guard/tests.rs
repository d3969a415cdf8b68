use super::*;

fn socket(text: &str) -> SocketAddr {
    let ip = text.parse::<IpAddr>().unwrap_or_else(|_| panic!("{text}"));
    SocketAddr::new(ip, 443)
}

fn guard(allow: &[&str], own: &[&str]) -> Guard {
    let allow: Vec<String> = allow.iter().map(|&network| network.to_owned()).collect();
    let own: Vec<SocketAddr> = own.iter().map(|listener| listener.parse().unwrap()).collect();
    Guard::new(&allow, &own).unwrap()
}

#[test]
fn both_ends_of_every_network_that_is_not_public_are_denied() {
    let guard = guard(&[], &[]);
    for network in DENIED_NETWORKS {
        let network: IpNet = network.parse().unwrap();
        for ip in [network.network(), network.broadcast()] {
            let denied = guard.check(SocketAddr::new(ip, 443));
            assert!(matches!(denied, Err(Denied::Network { .. })), "{ip} of {network}: {denied:?}");
        }
    }
}

#[test]
fn their_public_neighbours_are_not() {
    let guard = guard(&[], &[]);
    for public in [
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "203.0.112.255",
        "223.255.255.255",
        "8.8.8.8",
        "2001:4860:4860::8888",
        "2606:4700::1111",
        "2003::1",
        "fbff::1",
    ] {
        assert_eq!(guard.check(socket(public)), Ok(()), "{public}");
    }
}

#[test]
fn an_ipv4_address_inside_an_ipv6_one_is_judged_as_what_it_is() {
    let strict = guard(&[], &[]);
    for hidden in
        ["::ffff:127.0.0.1", "::ffff:10.1.2.3", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1", "2002:7f00:1::"]
    {
        assert!(strict.check(socket(hidden)).is_err(), "{hidden}");
    }
    assert_eq!(strict.check(socket("::ffff:8.8.8.8")), Ok(()));
    assert_eq!(guard(&["10.0.0.0/8"], &[]).check(socket("::ffff:10.1.2.3")), Ok(()));
}

#[test]
fn what_is_not_reserved_any_more_and_what_only_looks_public_is_denied_too() {
    let strict = guard(&[], &[]);
    for hidden in ["fec0::1", "2001:2::1", "2001:10::1", "2001:1f:ffff::1", "168.63.129.16", "::ffff:168.63.129.16"] {
        assert!(strict.check(socket(hidden)).is_err(), "{hidden}");
    }
    for public in ["2001:2:1::1", "2001:4860:4860::8888", "168.63.129.15"] {
        assert_eq!(strict.check(socket(public)), Ok(()), "{public}");
    }
}

#[test]
fn the_operator_allows_by_network_and_nothing_else() {
    let guard = guard(&["10.1.0.0/16", "fd00::/8"], &[]);
    assert_eq!(guard.check(socket("10.1.2.3")), Ok(()));
    assert_eq!(guard.check(socket("fd12::1")), Ok(()));
    for still_denied in ["10.2.0.1", "127.0.0.1", "169.254.169.254", "fc00::1"] {
        assert!(guard.check(socket(still_denied)).is_err(), "{still_denied}");
    }
    assert!(Guard::new(&["10.1.2.3".to_owned()], &[]).is_err(), "an address is no network");
}

#[test]
fn the_hosts_own_listeners_are_denied_also_in_allowed_networks() {
    let guard = guard(&["0.0.0.0/0", "::/0"], &["127.0.0.1:443"]);
    for own in ["127.0.0.1", "::ffff:127.0.0.1", "0.0.0.0"] {
        assert!(matches!(guard.check(socket(own)), Err(Denied::OwnListener(_))), "{own}");
    }
    assert_eq!(guard.check(socket("127.0.0.2")), Ok(()), "another address");
    assert_eq!(guard.check("127.0.0.1:444".parse().unwrap()), Ok(()), "another port");
}

#[test]
fn a_listener_on_every_address_denies_every_address_of_this_machine() {
    for everywhere in ["0.0.0.0:443", "[::]:443"] {
        let guard = guard(&["0.0.0.0/0", "::/0"], &[everywhere]);
        for own in ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::"] {
            assert!(matches!(guard.check(socket(own)), Err(Denied::OwnListener(_))), "{own} at {everywhere}");
        }
        assert_eq!(guard.check(socket("198.51.100.7")), Ok(()), "not this machine's");
    }
}
