use super::*;
use crate::model::destination_lane::Ordering;
use crate::store::testing::{Fixture, namespace};
use crate::store::{DestinationChange, DestinationChanged, DestinationWish};

const WHSEC: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

struct Desk {
    fixture: Fixture,
    book: DestinationBook,
}

impl Desk {
    /// A runtime with the tenants `acme` and `umbrella`, whose configuration has the destination `fixed`.
    async fn open() -> Self {
        let fixture = Fixture::new().await;
        let folder = fixture.directory.path().join("secrets");
        std::fs::create_dir_all(folder.join("acme")).unwrap();
        std::fs::write(folder.join("acme/half"), WHSEC).unwrap();
        let read: ReadDestination = Arc::new(|name, document| {
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
            advise: Arc::new(|count| (count > 3).then(|| format!("{count} are many"))),
            secrets: Secrets::open(&folder, fixture.env.clone()).unwrap(),
            store: fixture.store.clone(),
        };
        Self { book: DestinationBook::open(parts).await.unwrap(), fixture }
    }

    async fn change(&self, name: &str, wish: DestinationWish) {
        let change = DestinationChange { name: name.parse().unwrap(), wish, expected: None, now: self.fixture.now() };
        let changed = self.fixture.store.change_destination(change).await.unwrap();
        assert!(matches!(changed, DestinationChanged::Done(_)), "{changed:?}");
        self.book.look(None).await.unwrap();
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
