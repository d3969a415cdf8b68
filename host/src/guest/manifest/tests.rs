use expect_test::{Expect, expect};

use super::*;
use crate::model::handshake::Handshake;
use crate::model::queue::{QueueClass, QueueClasses};
use crate::model::verification::{
    Algorithm, KeyForm, SignatureEncoding, SignatureForm, SignatureHash, SignatureScheme, SignedPart,
};

const SMALLEST: &str = r#"
name = "acme"
version = "1.0.0"
[[routes]]
path = "acme"
verify = "plain"
"#;

const HEAD: &str = "name = \"acme\"\nversion = \"1\"\n";

fn refused(text: &str, expected: Expect) {
    expected.assert_eq(&parse_manifest(text).unwrap_err().to_string());
}

fn refused_route(route: &str, expected: Expect) {
    refused(&format!("{HEAD}[[routes]]\npath = \"a\"\n{route}\n"), expected);
}

fn accepted_route(route: &str) -> Route {
    let manifest = parse_manifest(&format!("{HEAD}[[routes]]\npath = \"a\"\n{route}\n")).unwrap();
    manifest.routes.into_iter().next().unwrap()
}

#[test]
fn what_a_manifest_does_not_say_has_a_default() {
    let manifest = parse_manifest(SMALLEST).unwrap();
    assert_eq!(manifest.limits, GuestLimits::DEFAULT);
    assert!(manifest.imports.is_empty() && manifest.destinations.is_empty() && manifest.settings.is_empty());
    let route = &manifest.routes[0];
    assert_eq!(route.verification, Verification::Plain);
    assert_eq!((&route.delivery_key, &route.source_key), (&None, &None));
    assert_eq!((route.ordering, &route.answer), (Ordering::None, &Answer::Receipt));
    assert_eq!(route.queue_class, QueueClassRule::Fixed(QueueClass::Default));
}

#[test]
fn every_key_is_read() {
    let text = r#"
        name = "acme"
        version = "1.2.3"
        imports = ["log", "config", "clock", "random"]
        destinations = ["crm", "mail"]
        build = { kind = "rust", path = "guest" }
        limits = { fuel = 5, memory_mib = 2, deadline_ms = 30, output_kib = 4, messages = 1, log_kib = 0, concurrency = 3 }
        settings = { greeting = "hello" }
        [[routes]]
        path = "hooks"
        verify = "github"
        secret = "webhook"
        ordering = "source"
        source_key = { pointer = "/repository/full_name" }
        failed_head = { retrying = "skip", dead = "block" }
        queue_class = { header = "X-GitHub-Event", values = { push = "interactive", status = "bulk" } }
        keep_headers = ["X-GitHub-Event"]
        answer = { status = 204 }
    "#;
    let authored = read(text).unwrap();
    assert_eq!(authored.build, BuildRule::Rust { path: "guest".into() });
    let manifest = authored.manifest;
    assert_eq!(manifest.imports, ImportName::ALL);
    let limits = GuestLimits {
        fuel: 5,
        memory_bytes: 2 * MIB,
        deadline: Duration::from_millis(30),
        output_bytes: 4 * KIB,
        messages: 1,
        log_bytes: 0,
        concurrency: 3,
    };
    assert_eq!(manifest.limits, limits);
    assert_eq!(manifest.settings["greeting"], "hello");
    let route = &manifest.routes[0];
    assert_eq!(route.delivery_key, Some(KeyRule::Header(HeaderName::from_static("x-github-delivery"))));
    assert_eq!(route.source_key, Some(KeyRule::Pointer("/repository/full_name".to_owned())));
    assert_eq!(route.failed_head, FailedHeadPolicy { retrying: HeadPolicy::Skip, dead: HeadPolicy::Block });
    let queue_class = QueueClassRule::ByValue {
        place: KeyRule::Header(HeaderName::from_static("x-github-event")),
        classes: [("push".to_owned(), QueueClass::Interactive), ("status".to_owned(), QueueClass::Bulk)].into(),
        otherwise: QueueClass::Default,
    };
    assert_eq!(route.queue_class, queue_class);
    assert_eq!(manifest.queue_classes(), QueueClasses::ALL);
    assert_eq!(route.keep_headers, [HeaderName::from_static("x-github-event")]);
    assert_eq!(route.answer, Answer::Empty(StatusCode::NO_CONTENT));
}

// ADM-6, CLM-3
#[test]
fn a_route_can_keep_delivery_order_and_take_many_events() {
    let route = accepted_route(
        r#"verify = "plain"
        ordering = "delivery"
        event_list = { pointer = "" }
        failed_head = { retrying = "skip" }"#,
    );
    assert_eq!((route.ordering, &route.source_key), (Ordering::Delivery, &None));
    assert_eq!(route.failed_head.retrying, HeadPolicy::Skip);
    assert_eq!(route.event_list, Some(EventList { pointer: String::new(), events_max: EVENTS_DEFAULT }));
    let route = accepted_route(
        r#"verify = "plain"
        ordering = "delivery"
        source_key = { pointer = "/repo" }
        event_list = { pointer = "/events", max = 7 }"#,
    );
    assert_eq!(route.source_key, Some(KeyRule::Pointer("/repo".to_owned())));
    assert_eq!(route.event_list, Some(EventList { pointer: "/events".to_owned(), events_max: 7 }));
}

#[test]
fn a_scheme_can_be_written_out() {
    let route = accepted_route(
        r#"secret = "s"
        verify.scheme = "hmac"
        verify.hash = "sha512"
        verify.header = "X-Sig"
        verify.encoding = "base64"
        verify.form = { field = "v1" }
        verify.signed = ["timestamp", { literal = "." }, { header = "x-id" }, "body"]
        verify.timestamp = { field = "t", window_seconds = 60 }"#,
    );
    let Verification::Signature { scheme, secret } = route.verification else { panic!("{:?}", route.verification) };
    assert_eq!(secret.as_str(), "s");
    let expected = SignatureScheme {
        algorithm: Algorithm::Hmac { hash: SignatureHash::Sha512, key: KeyForm::Raw },
        header: HeaderName::from_static("x-sig"),
        form: SignatureForm::Fields("v1".to_owned()),
        encoding: SignatureEncoding::Base64,
        signed: vec![
            SignedPart::Timestamp,
            SignedPart::Literal(".".to_owned()),
            SignedPart::Header(HeaderName::from_static("x-id")),
            SignedPart::Body,
        ],
        timestamp: Some(crate::model::verification::TimestampRule {
            place: crate::model::verification::TimestampPlace::Field("t".to_owned()),
            unit: crate::model::verification::TimestampUnit::Seconds,
            window: Duration::from_secs(60),
        }),
    };
    assert_eq!(scheme, expected);
}

#[test]
fn unknown_keys_are_errors_with_the_nearest_known_one() {
    refused(
        &SMALLEST.replace("verify", "verfy"),
        expect!["pack.toml line 6: unknown key `verfy` in `routes`: did you mean `verify`?"],
    );
    refused(
        &format!("colour = 1\n{SMALLEST}"),
        expect![
            "pack.toml line 1: unknown key `colour`: it is one of `name`, `version`, `build`, `imports`, `limits`, `routes`, `readers`, `destinations`, `settings`"
        ],
    );
    refused(
        &format!("{HEAD}[limits]\nmemory_mb = 3\n"),
        expect!["pack.toml line 4: unknown key `memory_mb` in `limits`: did you mean `memory_mib`?"],
    );
}

#[test]
fn what_is_missing_comes_with_an_example() {
    refused("", expect!["pack.toml line 1: `name` is missing: add for example `name = \"github\"`"]);
    refused(
        HEAD,
        expect![
            "pack.toml line 1: `routes` is missing: add for example `routes = [{ path = \"hooks\", verify = \"plain\" }]`"
        ],
    );
    refused_route("", expect!["pack.toml line 3: `verify` is missing: add for example `verify = \"github\"`"]);
    refused_route(
        "verify = \"github\"",
        expect![
            "pack.toml line 3: the route's `verify` needs a secret: add for example `secret = \"webhook\"`, the name of a file in the secrets directory"
        ],
    );
    refused_route(
        "verify = \"plain\"\nordering = \"source\"",
        expect![
            "pack.toml line 3: `source_key` is missing: add for example `source_key = { pointer = \"/repository/full_name\" }`"
        ],
    );
}

#[test]
fn what_would_be_ignored_is_an_error() {
    refused_route(
        "verify = \"plain\"\nsource_key = { header = \"x-id\" }",
        expect![
            "pack.toml line 6: `routes.source_key` has no effect without order: add `ordering = \"source\"`, or leave it out"
        ],
    );
    refused_route(
        "verify = \"plain\"\nsecret = \"s\"",
        expect![
            "pack.toml line 6: `routes.secret` has no use where `verify` is `plain`: leave it out, or choose a scheme"
        ],
    );
    refused(
        &SMALLEST.replace("[[routes]]", "settings = { a = \"b\" }\n[[routes]]"),
        expect!["pack.toml line 1: `settings` cannot be read without the import: add `imports = [\"config\"]`"],
    );
    refused_route(
        "verify = { scheme = \"shared-token\", header = \"x-token\", hash = \"sha256\" }\nsecret = \"s\"",
        expect![
            "pack.toml line 5: `routes.verify.hash` does not belong to a shared token, which has `scheme` and `header` only"
        ],
    );
}

#[test]
fn values_out_of_bounds_say_what_the_bounds_are() {
    refused(
        &SMALLEST.replace("[[routes]]", "limits = { memory_mib = 4096 }\n[[routes]]"),
        expect!["pack.toml line 4: `limits.memory_mib` is 4096: it must be from 1 to 1024 MiB"],
    );
    refused(
        &SMALLEST.replace("[[routes]]", "limits = { fuel = \"lots\" }\n[[routes]]"),
        expect!["pack.toml line 4: `limits.fuel` must be a whole number, not a string"],
    );
    refused_route(
        "verify = \"plain\"\nanswer = { status = 500 }",
        expect!["pack.toml line 6: `routes.answer.status` is 500: it must be from 200 to 299"],
    );
    refused(
        &SMALLEST.replace("1.0.0", "1/0"),
        expect!["pack.toml line 3: `version` must be 1 to 64 letters, digits, `.`, `-`, `+` and `_`"],
    );
}

#[test]
fn names_and_words_are_checked() {
    refused(
        &SMALLEST.replace("\"acme\"\nversion", "\"Acme\"\nversion"),
        expect![
            "pack.toml line 2: `name` is wrong: `Acme` cannot be a pack name: use 1 to 63 of a-z, 0-9, `-` and `_`, beginning with a letter or digit"
        ],
    );
    refused(
        &SMALLEST.replace("[[routes]]", "imports = [\"confg\"]\n[[routes]]"),
        expect!["pack.toml line 4: `imports` cannot be `confg`: did you mean `config`?"],
    );
    refused(
        &SMALLEST.replace("[[routes]]", "imports = [\"wasi:http\"]\n[[routes]]"),
        expect!["pack.toml line 4: `imports` cannot be `wasi:http`: it is one of `log`, `config`, `clock`, `random`"],
    );
    refused_route(
        "verify = \"githup\"",
        expect!["pack.toml line 5: `routes.verify` cannot be `githup`: did you mean `github`?"],
    );
    refused_route(
        "verify = \"plain\"\ndelivery_key = { pointer = \"id\" }",
        expect![
            "pack.toml line 6: `routes.delivery_key.pointer` must be a JSON pointer such as `/data/id`, with `~0` for `~` and `~1` for `/` in a name"
        ],
    );
    refused(
        &format!("{SMALLEST}[[routes]]\npath = \"acme\"\nverify = \"plain\"\n"),
        expect!["pack.toml line 7: the route `acme` is declared twice: rename or remove one"],
    );
    refused("name = ", expect![[r#"pack.toml line 1: string values must be quoted, expected literal string"#]]);
}

#[test]
fn a_secret_is_never_kept_with_an_event() {
    refused_route(
        "secret = \"s\"\nverify = { scheme = \"shared-token\", header = \"x-token\" }\nkeep_headers = [\"X-Token\"]",
        expect![
            "pack.toml line 7: `routes.keep_headers` cannot contain `x-token`: it carries a secret, and kept headers are stored"
        ],
    );
}

#[test]
fn a_scheme_that_proves_nothing_is_refused() {
    let hmac = |rest: &str| {
        format!("secret = \"s\"\nverify = {{ scheme = \"hmac\", header = \"x\", encoding = \"hex\", {rest} }}")
    };
    refused_route(
        &hmac("signed = [{ literal = \"a\" }]"),
        expect!["pack.toml line 6: `signed` must contain \"body\": a signature that leaves it out proves nothing"],
    );
    refused_route(
        &hmac("timestamp = { header = \"x-time\" }"),
        expect!["pack.toml line 6: `timestamp` is not in `signed`: a time that is not signed proves nothing"],
    );
    refused_route(
        &hmac("signed = [\"timestamp\", \"body\"]"),
        expect![
            "pack.toml line 6: `signed` contains \"timestamp\": say where it is, `timestamp = { header = \"..\" }`"
        ],
    );
}

#[test]
fn a_queue_class_is_a_word_or_goes_by_a_value() {
    let route = accepted_route("verify = \"plain\"\nqueue_class = \"bulk\"");
    assert_eq!(route.queue_class, QueueClassRule::Fixed(QueueClass::Bulk));
    let route = accepted_route(
        "verify = \"plain\"\nqueue_class = { pointer = \"/kind\", values = { a = \"default\" }, otherwise = \"bulk\" }",
    );
    let QueueClassRule::ByValue { place, otherwise, .. } = route.queue_class else { panic!("{:?}", route.queue_class) };
    assert_eq!((place, otherwise), (KeyRule::Pointer("/kind".to_owned()), QueueClass::Bulk));
    refused_route(
        "verify = \"plain\"\nqueue_class = \"bulky\"",
        expect!["pack.toml line 6: `routes.queue_class` cannot be `bulky`: did you mean `bulk`?"],
    );
    refused_route(
        "verify = \"plain\"\nqueue_class = { values = { a = \"bulk\" } }",
        expect![[r#"pack.toml line 6: a key has one place: `{ header = "x-id" }` or `{ pointer = "/id" }`"#]],
    );
    refused_route(
        "verify = \"plain\"\nqueue_class = { header = \"x-kind\" }",
        expect![[r#"pack.toml line 6: `values` is missing: add for example `values = { import = "bulk" }`"#]],
    );
    refused_route(
        "verify = \"plain\"\nqueue_class = { header = \"x-kind\", values = { a = \"urgent\" } }",
        expect![
            "pack.toml line 6: `routes.queue_class.values.a` cannot be `urgent`: it is one of `interactive`, `default`, `bulk`"
        ],
    );
}

// COA-3
#[test]
fn a_route_can_have_its_events_be_the_projection_of_their_source() {
    let verified = "verify = \"plain\"\ncoalescing = \"source_projection\"";
    let route = accepted_route(&format!(
        "{verified}\nsource_key = {{ pointer = \"/id\" }}\nfailed_head = {{ dead = \"block\" }}"
    ));
    assert_eq!((route.coalescing, route.ordering), (Coalescing::SourceProjection, Ordering::None));
    assert_eq!(route.source_key, Some(KeyRule::Pointer("/id".to_owned())));
    assert_eq!(route.failed_head, FailedHeadPolicy { retrying: HeadPolicy::Block, dead: HeadPolicy::Block });
    for (more, expected) in [
        (
            "",
            "pack.toml line 3: `source_key` is missing: add for example `source_key = { pointer = \"/repository/full_name\" }`",
        ),
        (
            "ordering = \"source\"\nsource_key = { pointer = \"/id\" }",
            "pack.toml line 6: `routes.coalescing` keeps an order of its own: leave `ordering` out, or make it \"none\"",
        ),
        (
            "source_key = { pointer = \"/id\" }\nfailed_head = { retrying = \"skip\" }",
            "pack.toml line 8: `routes.failed_head.retrying` cannot be `skip` here: of a projection one at a time is active, \
             until it ends",
        ),
    ] {
        let text = format!("{HEAD}[[routes]]\npath = \"a\"\n{verified}\n{more}\n");
        assert_eq!(parse_manifest(&text).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_reader_is_read_whole_and_has_defaults() {
    let text = format!(
        "{SMALLEST}[[readers]]\nname = \"contacts\"\nhosts = [\"api.example.com\", \"eu.example.com:8443\"]\nmax_keys = 100\n\
         timeout_ms = 500\nresponse_kib = 64\ndecoded_statuses = [404]\n\
         secret_headers = [{{ header = \"Authorization\", prefix = \"Bearer \", secret = \"token\" }}]\n\
         [[readers]]\nname = \"deals\"\nhosts = [\"api.example.com\"]\nmax_keys = 1\n"
    );
    let manifest = parse_manifest(&text).unwrap();
    let contacts = manifest.reader("contacts").unwrap();
    assert_eq!(
        contacts.hosts.iter().map(|host| host.as_str()).collect::<Vec<_>>(),
        ["api.example.com", "eu.example.com:8443"]
    );
    assert_eq!((contacts.keys_max, contacts.response_bytes_max), (100, 64 * 1_024));
    assert_eq!((contacts.timeout, &contacts.decoded_statuses[..]), (Some(Duration::from_millis(500)), &[404][..]));
    let secret = &contacts.secret_headers[0];
    assert_eq!(
        (secret.name.as_str(), secret.prefix.as_str(), secret.secret.as_str()),
        ("authorization", "Bearer ", "token")
    );
    let deals = manifest.reader("deals").unwrap();
    assert_eq!((deals.timeout, deals.response_bytes_max), (None, 1_024 * 1_024));
    assert!(deals.secret_headers.is_empty() && manifest.reader("strangers").is_none());
}

// GST-4
#[test]
fn a_reader_that_could_call_anywhere_or_nowhere_is_refused() {
    let reader = |rest: &str| format!("{SMALLEST}[[readers]]\nname = \"contacts\"\n{rest}");
    let hosts = "hosts = [\"a.example\"]\n";
    refused(
        &reader(""),
        expect![[r#"pack.toml line 7: `hosts` is missing: add for example `hosts = ["api.example.com"]`"#]],
    );
    refused(
        &reader("hosts = []\nmax_keys = 1\n"),
        expect!["pack.toml line 9: `readers.hosts` is empty: a reader needs a host that it may call"],
    );
    for host in ["https://a.example", "user@a.example", "A.example", "a.example/v1", ""] {
        let error = parse_manifest(&reader(&format!("hosts = [\"{host}\"]\nmax_keys = 1\n"))).unwrap_err().to_string();
        assert!(error.starts_with("pack.toml line 9: `readers.hosts` must hold host names like"), "{error}");
    }
    refused(&reader(hosts), expect!["pack.toml line 7: `max_keys` is missing: add for example `max_keys = 100`"]);
    refused(
        &reader(&format!("{hosts}max_key = 100\n")),
        expect!["pack.toml line 10: unknown key `max_key` in `readers`: did you mean `max_keys`?"],
    );
    refused(
        &reader(&format!("{hosts}max_keys = 0\n")),
        expect!["pack.toml line 10: `readers.max_keys` is 0: it must be from 1 to 1000"],
    );
    refused(
        &reader(&format!("{hosts}max_keys = 1\ndecoded_statuses = [302]\n")),
        expect!["pack.toml line 11: `readers.decoded_statuses` is 302: it must be from 400 to 499"],
    );
    let twice = reader(&format!("{hosts}max_keys = 1\n[[readers]]\nname = \"contacts\"\n"));
    refused(&twice, expect!["pack.toml line 11: the reader `contacts` is declared twice: rename or remove one"]);
    let header = "secret_headers = [{ header = \"x-key\", secret = \"a b\" }]\n";
    let error = parse_manifest(&reader(&format!("{hosts}max_keys = 1\n{header}"))).unwrap_err().to_string();
    assert!(error.contains("line 11") && error.contains("cannot be a secret name"), "{error}");
}

#[test]
fn a_key_may_be_made_of_several_values() {
    let rule = |rule: &str| format!("{SMALLEST}delivery_key = {rule}\n");
    let manifest = parse_manifest(&rule("{ pointers = [\"/id\", \"/at\"] }")).unwrap();
    let expected = KeyRule::Pointers(vec!["/id".to_owned(), "/at".to_owned()]);
    assert_eq!(manifest.routes[0].delivery_key, Some(expected));
    for wrong in [
        "{ pointers = [\"/id\"] }",
        "{ pointers = [\"id\", \"/at\"] }",
        "{ pointer = \"/id\", pointers = [\"/a\", \"/b\"] }",
    ] {
        assert!(parse_manifest(&rule(wrong)).is_err(), "{wrong}");
    }
}

#[test]
fn a_preset_brings_what_its_provider_wants_and_a_route_may_say_otherwise() {
    let route = accepted_route;
    let sendgrid = route("verify = \"sendgrid\"\nsecret = \"s\"");
    assert_eq!(sendgrid.event_list, Some(EventList { pointer: String::new(), events_max: 1_000 }));
    let zoom = route("verify = \"zoom\"\nsecret = \"s\"");
    assert_eq!((zoom.handshake, zoom.delivery_key), (Some(Handshake::Zoom), Some(KeyRule::Body)));
    assert_eq!(zoom.answer, Answer::Empty(StatusCode::OK));
    let meta = route(
        "verify = \"meta\"\nsecret = \"s\"\nhandshake = { scheme = \"meta\", secret = \"t\" }\nanswer = \"receipt\"",
    );
    assert_eq!(meta.handshake, Some(Handshake::Meta { secret: "t".parse().unwrap() }));
    assert_eq!(meta.answer, Answer::Receipt);
    let graph = route("verify = \"plain\"\nhandshake = \"microsoft-graph\"\ndelivery_key = \"body\"");
    assert_eq!((graph.handshake, graph.delivery_key), (Some(Handshake::MicrosoftGraph), Some(KeyRule::Body)));
    let basic = route("verify = \"basic\"\nsecret = \"s\"");
    assert_eq!(basic.verification, Verification::Basic { secret: "s".parse().unwrap() });
    let key = route("verify = { scheme = \"ed25519\", header = \"x-s\", encoding = \"hex\" }\nsecret = \"s\"");
    let Verification::Signature { scheme, .. } = key.verification else { panic!("{:?}", key.verification) };
    assert_eq!((scheme.algorithm, scheme.signed), (Algorithm::Ed25519, vec![SignedPart::Body]));
}

#[test]
fn handshakes_and_signatures_that_cannot_be_are_refused_with_what_to_write() {
    for (route, expected) in [
        ("verify = \"plain\"\nhandshake = \"zoom\"", "answers with the route's secret"),
        ("verify = \"plain\"\nhandshake = \"meta\"", "takes a token of its own"),
        ("verify = \"plain\"\nhandshake = { scheme = \"dropbox\", secret = \"s\" }", "takes no secret"),
        ("verify = \"plain\"\nhandshake = \"dropbx\"", "dropbox"),
        ("verify = \"plain\"\ndelivery_key = \"boddy\"", "body"),
        (
            "verify = { scheme = \"ed25519\", header = \"s\", encoding = \"hex\", hash = \"sha1\" }\nsecret = \"s\"",
            "public ones",
        ),
        (
            "verify = { scheme = \"hmac\", header = \"s\", encoding = \"hex\", signed = [\"form\"] }\nsecret = \"s\"",
            "must contain \"uri\"",
        ),
        (
            "verify = { scheme = \"hmac\", header = \"s\", encoding = \"hex\", timestamp = { header = \"t\" } }\nsecret = \"s\"",
            "a time that is not signed",
        ),
    ] {
        let text = format!("{HEAD}[[routes]]\npath = \"a\"\n{route}\n");
        let error = parse_manifest(&text).unwrap_err().to_string();
        assert!(error.contains(expected), "{route}: {error}");
    }
}
