use std::sync::atomic::{self, AtomicU32};

use super::*;
use crate::store::testing::{Fixture, namespace};
use crate::store::{DestinationChange, DestinationChanged, DestinationWish};

const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

struct Desk {
    fixture: Fixture,
    book: DestinationBook,
    /// How often reading a document panics from now on.
    panics: Arc<AtomicU32>,
}

impl Desk {
    /// A runtime with the tenants `acme` and `umbrella`, whose configuration has the destination `fixed`.
    async fn open() -> Self {
        let fixture = Fixture::new().await;
        let folder = fixture.directory.path().join("secrets");
        std::fs::create_dir_all(folder.join("acme")).unwrap();
        std::fs::write(folder.join("acme/half"), WHSEC).unwrap();
        let panics = Arc::new(AtomicU32::new(0));
        let left = Arc::clone(&panics);
        let read: ReadDestination = Arc::new(move |name, document| {
            let one_less = |left: u32| left.checked_sub(1);
            let panics = left.fetch_update(atomic::Ordering::SeqCst, atomic::Ordering::SeqCst, one_less);
            assert!(panics.is_err(), "the test has it panic");
            let document = serde_json::from_str(document).map_err(|error| vec![error.to_string()])?;
            crate::config::destination(
                name.as_str(),
                &document,
                crate::config::InFlightMax { messages: 100, bytes: 64 << 20 },
            )
        });
        let fixed = read(&"fixed".parse().unwrap(), r#"{"url":"https://fixed.example/"}"#).unwrap();
        let parts = DestinationParts {
            configured: [fixed].into_iter().collect(),
            namespaces: vec![namespace(), "umbrella".parse().unwrap()],
            read,
            ordering: Arc::new(|document| crate::config::ordering(&serde_json::from_str(document).ok()?)),
            advise: Arc::new(|count| (count > 3).then(|| format!("{count} are many"))),
            secrets: Secrets::open(&folder, fixture.env.clone()).unwrap(),
            store: fixture.store.clone(),
        };
        Self { book: DestinationBook::open(parts).await.unwrap(), fixture, panics }
    }

    async fn change(&self, name: &str, wish: DestinationWish) {
        self.write(name, wish).await;
        self.book.look(None).await.unwrap();
    }

    /// Has the store have a change, which nobody looks at yet.
    async fn write(&self, name: &str, wish: DestinationWish) {
        let change = DestinationChange { name: name.parse().unwrap(), wish, expected: None, now: self.fixture.now() };
        let changed = self.fixture.store.change_destination(change).await.unwrap();
        assert!(matches!(changed, DestinationChanged::Done(_)), "{changed:?}");
    }

    async fn set(&self, name: &str, document: &str) {
        self.change(name, DestinationWish::Set(document.to_owned())).await;
    }

    fn names(&self) -> Vec<String> {
        self.book.subscribe().borrow().values().map(|destination| destination.name.to_string()).collect()
    }
}

// LAN-5
#[tokio::test]
async fn the_configuration_wins_by_name_and_what_cannot_be_used_waits_and_is_told_of() {
    let desk = Desk::open().await;
    let mut changes = desk.book.subscribe();
    desk.set("crm", r#"{"url":"https://crm.example/","ordering":"exact"}"#).await;
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    desk.set("fixed", r#"{"url":"https://other.example/"}"#).await;
    desk.set("greedy", r#"{"url":"https://greedy.example/","in_flight_messages":60}"#).await;
    desk.set("strange", r#"{"url":"https://strange.example/","of_a_later_version":1}"#).await;
    assert!(!changes.has_changed().unwrap(), "nothing of that is called here");
    assert_eq!(desk.names(), ["crm", "fixed"]);
    let fixed = desk.book.subscribe().borrow().get(&"fixed".parse().unwrap()).unwrap().url.clone();
    assert_eq!(fixed, "https://fixed.example/");
    let named =
        vec![("github".parse().unwrap(), "crm".parse().unwrap()), ("github".parse().unwrap(), "none".parse().unwrap())];
    let notes = desk.book.notes(named).await.unwrap();
    assert_eq!(notes.len(), 4, "{notes:?}");
    assert!(notes[0].contains("`fixed` is in this host's configuration and was set as well"), "{notes:?}");
    assert!(notes[1].contains("`greedy` cannot be used here") && notes[1].contains("half of `publish.in_flight_max`"));
    assert!(notes[2].contains("`strange`") && notes[2].contains("not a known key"), "{notes:?}");
    assert!(notes[3].contains("pack `github` emits to `none`"), "{notes:?}");

    // Removed, and remembered for its order.
    desk.change("crm", DestinationWish::Remove).await;
    assert_eq!(desk.names(), ["fixed"]);
    assert_eq!(desk.book.subscribe().borrow().ordering_of(&"crm".parse().unwrap()), Ordering::Exact);
    desk.change("crm", DestinationWish::Forget).await;
    assert_eq!(desk.book.subscribe().borrow().ordering_of(&"crm".parse().unwrap()), Ordering::None);
}

// LAN-5
#[tokio::test]
async fn a_secret_is_to_be_here_for_somebody_and_whoever_lacks_it_is_named() {
    let desk = Desk::open().await;
    let check = |document: &str| desk.book.check(&"crm".parse().unwrap(), document);
    let (_, notes) = check(r#"{"url":"https://a.example/","secret":"half"}"#).unwrap();
    assert!(notes.len() == 1 && notes[0].contains("`half` for namespace `umbrella`"), "{notes:?}");
    let problems = check(r#"{"url":"https://a.example/","secret":"none"}"#).unwrap_err();
    assert!(problems.len() == 1 && problems[0].contains("there is no secret `none`"), "{problems:?}");
    assert!(check("[]").is_err() && check(r#"{"url":"gopher://a/"}"#).is_err());

    // Set on a host that has it: this one says that it does not.
    desk.set("crm", r#"{"url":"https://a.example/","secret":"none"}"#).await;
    desk.set("erp", r#"{"url":"https://a.example/","secret":"half"}"#).await;
    assert_eq!(desk.names(), ["crm", "erp", "fixed"]);
    let notes = desk.book.notes(Vec::new()).await.unwrap();
    assert!(notes.len() == 1 && notes[0].contains("`crm`: there is no secret `none`"), "{notes:?}");
    let (_, notes) = check(r#"{"url":"https://b.example/"}"#).unwrap();
    assert_eq!(notes, Vec::<String>::new(), "it is no more than there are");
    let (_, notes) = desk.book.check(&"new".parse().unwrap(), r#"{"url":"https://b.example/"}"#).unwrap();
    assert_eq!(notes, ["4 are many"]);
}

// LAN-5, LAN-4
#[tokio::test]
async fn what_this_host_cannot_use_keeps_the_order_that_was_set_for_it() {
    let desk = Desk::open().await;
    let order = || desk.book.subscribe().borrow().ordering_of(&"line".parse().unwrap());
    desk.set("line", r#"{"url":"https://line.example/","ordering":"exact"}"#).await;
    assert_eq!(order(), Ordering::Exact);
    let mut changes = desk.book.subscribe();
    // A limit that fits another host's `publish.in_flight_max`, and not this one's.
    desk.set("line", r#"{"url":"https://line.example/","ordering":"exact","in_flight_messages":60}"#).await;
    assert_eq!((desk.names(), order()), (vec!["fixed".to_owned()], Ordering::Exact));
    assert!(changes.has_changed().unwrap(), "it is called no more");
    changes.mark_unchanged();
    let hashed = r#"{"url":"https://line.example/","ordering":"hashed","ordering_domains":3,"of_a_later_version":1}"#;
    desk.set("line", hashed).await;
    assert_eq!(order(), Ordering::Hashed { domains: 3 }, "what it says of it counts, whatever else it says");
    desk.set("line", r#"{"url":"https://line.example/","ordering":"of_a_later_version"}"#).await;
    assert_eq!(order(), Ordering::Hashed { domains: 3 }, "nobody here knows another one");
    desk.change("line", DestinationWish::Remove).await;
    assert_eq!(order(), Ordering::Hashed { domains: 3 });
}

// LAN-5
#[tokio::test]
async fn a_panic_of_what_follows_destinations_is_gone_on_from_and_readiness_says_when_it_is_given_up() {
    let desk = Desk::open().await;
    let (mut changes, stop) = (desk.book.subscribe(), CancellationToken::new());
    let document = r#"{"url":"https://crm.example/"}"#;
    desk.write("crm", DestinationWish::Set(document.to_owned())).await;
    desk.panics.store(env::PANICS_MAX - 1, atomic::Ordering::SeqCst);
    let following = desk.book.clone().keep_following(None, stop.clone(), Duration::ZERO);
    let following = env::spawn("follows destinations", following);
    changes.changed().await.unwrap();
    assert_eq!((desk.names(), desk.book.trouble()), (vec!["crm".to_owned(), "fixed".to_owned()], None));

    desk.panics.store(u32::MAX, atomic::Ordering::SeqCst);
    desk.write("erp", DestinationWish::Set(document.to_owned())).await;
    following.await.unwrap();
    assert_eq!(desk.names(), ["crm", "fixed"]);
    let trouble = desk.book.trouble().expect("whoever asks for readiness is told");
    assert!(trouble.contains("no change is followed") && trouble.contains("8 times in a row"), "{trouble}");
}
