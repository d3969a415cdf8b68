use tokio::net::TcpListener;

use super::*;

#[test]
fn a_host_is_an_address_in_its_usual_spelling_or_a_name() {
    let host = |url: &str| Host::of(&url.parse().unwrap());
    assert_eq!(host("http://192.0.2.1:80/"), Ok(Host::Address("192.0.2.1".parse().unwrap())));
    assert_eq!(host("http://[2001:db8::1]/"), Ok(Host::Address("2001:db8::1".parse().unwrap())));
    for name in ["hooks.example.com", "hooks.example.com.", "a_b.example", "xn--bcher-kva.example", "1.2.3.4.example"] {
        assert_eq!(host(&format!("https://{name}/x")), Ok(Host::Name(name.to_owned())));
    }
    assert_eq!(host("https://HOOKS.Example/"), Ok(Host::Name("hooks.example".to_owned())));
}

#[test]
fn odd_spellings_of_addresses_are_no_hosts() {
    for odd in [
        "2130706433",
        "0x7f000001",
        "0X7F000001",
        "0177.0.0.1",
        "127.1",
        "127.0.0.1.",
        "127.0.0.0x1",
        "1.2.3.4.5",
        "0x",
        "a..b",
        ".",
        "[::1",
        "[127.0.0.1]",
    ] {
        let url = format!("http://{odd}/");
        if let Ok(url) = url.parse::<Uri>() {
            assert!(Host::of(&url).is_err(), "{odd}");
        }
    }
    for unparsable in ["http://１２７.0.0.1/", "http://[fe80::1%25eth0]/"] {
        let refused = unparsable.parse::<Uri>().map_err(|_| ()).and_then(|url| Host::of(&url).map_err(|_| ()));
        assert!(refused.is_err(), "{unparsable}");
    }
    let long = format!("http://{}.example/", "a".repeat(LABEL_LENGTH_MAX + 1));
    assert!(Host::of(&long.parse().unwrap()).is_err());
}

#[tokio::test]
async fn a_name_that_resolves_to_one_denied_address_is_refused_whole_and_each_time_anew() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let allowed = listener.local_addr().unwrap();
    let denied = SocketAddr::new("127.0.0.2".parse().unwrap(), allowed.port());
    let guard = Guard::new(&["127.0.0.1/32".to_owned()], &[]).unwrap();

    // What a resolver says that rebinds the name between two attempts.
    let first = dial(&guard, vec![allowed]).await.unwrap();
    assert_eq!(first.peer_addr().unwrap(), allowed);
    assert!(matches!(dial(&guard, vec![denied]).await, Err(ConnectError::Denied(_))));
    for mixed in [vec![allowed, denied], vec![denied, allowed]] {
        assert!(matches!(dial(&guard, mixed).await, Err(ConnectError::Denied(_))));
    }

    let (_, peer) = listener.accept().await.unwrap();
    assert_eq!(peer, first.local_addr().unwrap(), "only the first came through");
}

#[tokio::test]
async fn addresses_are_tried_in_turn() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let open = listener.local_addr().unwrap();
    let guard = Guard::new(&["127.0.0.0/8".to_owned()], &[]).unwrap();
    assert_eq!(dial(&guard, vec![closed, open]).await.unwrap().peer_addr().unwrap(), open);
    assert!(matches!(dial(&guard, vec![closed]).await, Err(ConnectError::Dial(_))));
    assert!(matches!(dial(&guard, vec![]).await, Err(ConnectError::NoAddress)));
}

#[tokio::test]
async fn only_names_of_destinations_are_looked_up() {
    let guard = Guard::new(&[], &[]).unwrap();
    let configured: Uri = "http://localhost/".parse().unwrap();
    let dialer = Dialer::new(guard, std::iter::once(&configured)).unwrap();
    let stranger = dialer.clone().connect("http://stranger.example/".parse().unwrap()).await;
    assert!(matches!(stranger, Err(ConnectError::Host(_))));
    assert!(matches!(dialer.connect(configured).await, Err(ConnectError::Denied(_))), "localhost is not public");
}

#[tokio::test]
async fn a_name_that_is_one_too_many_at_once_is_tried_again_another_time() {
    let dialer = Dialer::for_any(Guard::new(&[], &[]).unwrap());
    // Whoever looks a name up holds what its lookups are counted by.
    let under_way: Vec<_> =
        (0..NAMES_MAX).map(|number| dialer.names.lookups_of(&format!("name-{number}")).unwrap()).collect();
    let url: Uri = "http://localhost/".parse().unwrap();
    let refused = dialer.clone().connect(url.clone()).await.unwrap_err();
    assert!(matches!(refused, ConnectError::TooManyNames), "{refused}");
    drop(under_way);
    assert!(matches!(dialer.connect(url).await, Err(ConnectError::Denied(_))), "localhost is not public");
}
