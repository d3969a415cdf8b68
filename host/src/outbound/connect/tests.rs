use tokio::net::TcpListener;

use super::*;

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

#[test]
fn what_is_wrong_with_a_certificate_is_said_in_words() {
    use rustls::{CertificateError, OtherError};

    #[derive(Debug, thiserror::Error)]
    #[error("CaUsedAsEndEntity")]
    struct CaUsedAsEndEntity;

    let words = |error: rustls::Error| ConnectError::Tls(io::Error::other(error).into()).to_string();
    for (wrong, said) in [
        (CertificateError::UnknownIssuer, "its issuer is not trusted"),
        (CertificateError::Expired, "it has expired"),
        (CertificateError::Other(OtherError(Arc::new(CaUsedAsEndEntity))), "it is an authority's, and not a server's"),
    ] {
        let text = words(rustls::Error::InvalidCertificate(wrong));
        assert!(
            text.starts_with(&format!("no TLS connection: the server's certificate is not taken: {said}")),
            "{text}"
        );
    }
    let other = words(rustls::Error::DecryptError);
    assert!(other.starts_with("no TLS connection: ") && !other.contains("certificate"), "{other}");
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
