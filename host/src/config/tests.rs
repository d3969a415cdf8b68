use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use expect_test::{Expect, expect, expect_file};
use serde::Deserialize;

use super::check::defaults;
use super::keys::{KEYS, Kind, NAME_PART};
use super::*;

fn load(file: &str, environment: &[(&str, &str)]) -> Result<Config, ConfigError> {
    load_with_flags(file, environment, Vec::new())
}

fn load_with_flags(file: &str, environment: &[(&str, &str)], flags: Vec<FlagSetting>) -> Result<Config, ConfigError> {
    let mut written = tempfile::NamedTempFile::new().unwrap();
    written.write_all(file.as_bytes()).unwrap();
    let environment = environment.iter().map(|(name, value)| (name.into(), value.into())).collect();
    Config::load(&Sources { file: Some(written.path()), environment, flags }).map_err(|mut error| {
        for problem in &mut error.problems {
            *problem = problem.replace(&written.path().display().to_string(), "forebay.toml");
        }
        error
    })
}

fn check_refused(file: &str, environment: &[(&str, &str)], expected: Expect) {
    expected.assert_eq(&load(file, environment).unwrap_err().to_string());
}

#[test]
fn nothing_is_needed() {
    let config = load("", &[]).unwrap();
    assert_eq!(config.intake, IntakeConfig::default());
    assert_eq!(config.namespaces, ["default".parse().unwrap()]);
    assert!(config.destinations.is_empty());
}

#[test]
fn an_address_that_could_not_be_called_is_refused_with_its_line() {
    let file = "[destinations.a]\nurl = 'http://127.1:19900/'\n[destinations.b]\nurl = 'http://127.0.0.9:99999/ok'\n\
                [destinations.c]\nurl = 'http://c.example:0/'\n[readers.d]\npack = 'd'\norigin = 'http://256.1.1.1'\n\
                [checkpoints]\nbucket = 'b'\nendpoint = 'https://s3.example:70000'\naccess_key_id = 'i'\n\
                secret_access_key = 's'\n";
    check_refused(
        file,
        &[],
        expect![[r#"
        the configuration cannot be used:
          forebay.toml line 12: `checkpoints.endpoint` has no port from 1 to 65535 behind its host's `:`, like https://s3.example.com:9000
          forebay.toml line 2: `destinations.a.url` has the host `127.1`, which is neither an IP address in its usual spelling nor a DNS name
          forebay.toml line 4: `destinations.b.url` has no port from 1 to 65535 behind its host's `:`
          forebay.toml line 6: `destinations.c.url` has no port from 1 to 65535 behind its host's `:`
          forebay.toml line 9: `readers.d.origin` has the host `256.1.1.1`, which is neither an IP address in its usual spelling nor a DNS name"#]],
    );
}

#[test]
fn a_number_that_no_key_can_have_is_named() {
    let file = "[inbound]\nworkers_per_pack = 18446744073709551616\n\n[destinations.a]\nurl = 'http://a/'\n\
                weight = 0xffffffffffffffffff\n";
    check_refused(
        file,
        &[],
        expect![[r#"
        the configuration cannot be used:
          forebay.toml line 6: `destinations.a.weight` is a number beyond those from -9223372036854775808 to 9223372036854775807
          forebay.toml line 2: `inbound.workers_per_pack` is a number beyond those from -9223372036854775808 to 9223372036854775807"#]],
    );
}

// FLG-1
#[test]
fn the_environment_overrides_the_file_and_a_flag_overrides_both() {
    let file = "[inbound]\nworkers_per_pack = 4\n[flow]\ndeadline_ms = 5000\n[intake]\nlisten = '127.0.0.1:1'\n";
    let environment = [
        ("FOREBAY_INBOUND_WORKERS_PER_PACK", "8"),
        ("FOREBAY_INBOUND_MAX_PROCESSING_ROWS", "24"),
        ("FOREBAY_INBOUND_QUEUE_PROFILE", "default-heavy"),
        ("FOREBAY_INBOUND_STAGE_TIMING", "true"),
        ("FOREBAY_INTAKE_LISTEN", "127.0.0.1:2"),
        ("FOREBAY_NAMESPACES", "acme, globex"),
        ("FOREBAY_LOG", "forebay=trace"),
        ("FOREBAY_SHUTDOWN_TIMEOUT_SECONDS", ""),
        ("PATH", "/bin"),
    ];
    let flag = FlagSetting { flag: "--intake", key: "intake.listen", value: "127.0.0.1:3".to_owned() };
    let config = load_with_flags(file, &environment, vec![flag]).unwrap();
    assert_eq!(config.inbound.workers_per_pack, 8);
    assert_eq!(config.inbound.max_processing_rows, Some(24));
    assert_eq!(config.inbound.queue_profile, QueueProfile::DefaultHeavy);
    assert!(config.inbound.stage_timing);
    assert_eq!(config.flow.deadline, Duration::from_secs(5));
    assert_eq!(config.intake.listen.port(), 3);
    assert_eq!(config.namespaces, ["acme".parse().unwrap(), "globex".parse().unwrap()]);
    assert_eq!(config.shutdown, ShutdownConfig::default());
}

#[test]
fn a_destination_is_read_whole() {
    let file = "[destinations.crm]\nurl = 'https://crm.example/hooks?a=b'\nsecret = 'crm-signing'\nuncertain = 'hold'\n\
                deadline_ms = 2000\nin_flight_mib = 2\nattempts_max = 3\nweight = 4\n";
    let config = load(file, &[]).unwrap();
    let destination = config.destinations.get(&"crm".parse().unwrap()).unwrap();
    assert_eq!(destination.url, "https://crm.example/hooks?a=b");
    assert_eq!(destination.secret.as_ref().unwrap().as_str(), "crm-signing");
    assert_eq!(destination.uncertain, crate::model::message::UncertainPolicy::Hold);
    assert_eq!(destination.deadline, Duration::from_secs(2));
    assert_eq!(destination.limits.bytes, 2 * 1_024 * 1_024);
    assert_eq!(destination.retry.failures_max, 3);
    assert_eq!(destination.weight, 4);
}

// FLG-1
#[test]
fn unknown_keys_name_their_line_and_the_nearest_known_key() {
    check_refused(
        "[inbound]\nworkers_per_pack = 4\n\nworker_per_pack = 8\n[flows]\ndeadline_ms = 1\n[destinations.crm]\nurl = \
         'http://a'\ndeadline = 5\n[zebra]\n",
        &[
            ("FOREBAY_INBOUND_WORKER_PER_PACK", "8"),
            ("FOREBAY_DESTINATIONS_CRM_URL", "x"),
            ("FOREBAY_DATABASE_URL", "y"),
            ("FOREBAY_FOO", "z"),
        ],
        expect![[r#"
            the configuration cannot be used:
              forebay.toml line 4: `inbound.worker_per_pack` is not a known key; did you mean `inbound.workers_per_pack`?
              forebay.toml line 5: `flows` is not a known key; did you mean `flow`?
              forebay.toml line 9: `destinations.crm.deadline` is not a known key; did you mean `destinations.crm.deadline_ms`?
              forebay.toml line 10: `zebra` is not a known key
              environment variable FOREBAY_INBOUND_WORKER_PER_PACK is not known; did you mean `FOREBAY_INBOUND_WORKERS_PER_PACK`?
              environment variable FOREBAY_DESTINATIONS_CRM_URL is not known: destinations are set in the configuration file
              environment variable FOREBAY_FOO is not known"#]],
    );
}

#[test]
fn wrong_values_name_their_place_and_what_is_expected() {
    check_refused(
        "namespaces = 'default'\n[inbound]\nworkers_per_pack = -1\nstage_timing = 1\n[log]\nformat = 'xml'\n[intake]\nlisten \
         = 'localhost'\n[admin]\ntoken = 12345\n",
        &[("FOREBAY_FLOW_DEADLINE_MS", "10s"), ("FOREBAY_STORE_SHARDS", "-1")],
        expect![[r#"
            the configuration cannot be used:
              forebay.toml line 1: `namespaces` must be a list of texts
              forebay.toml line 3: `inbound.workers_per_pack` must be a whole number from 0 to 1024
              forebay.toml line 4: `inbound.stage_timing` must be true or false
              forebay.toml line 6: `log.format` must be one of text, json
              forebay.toml line 8: `intake.listen` must be an address and a port, like 127.0.0.1:8080 or [::1]:8080
              forebay.toml line 10: `admin.token` must be a text that is not empty
              environment variable FOREBAY_FLOW_DEADLINE_MS: `flow.deadline_ms` must be a whole number from 10 to 600000
              environment variable FOREBAY_STORE_SHARDS: `store.shards` must be a whole number from 1 to 64"#]],
    );
}

#[test]
fn a_file_that_is_no_toml_names_the_line() {
    check_refused(
        "[inbound]\nworkers_per_pack = = 4\n",
        &[],
        expect![[r#"
        the configuration cannot be used:
          forebay.toml line 2: extra `=`, expected nothing"#]],
    );
}

#[test]
fn keys_that_bound_one_another_are_checked() {
    check_refused(
        "namespaces = ['a', 'A', 'a']\n[intake]\nlisten = '127.0.0.1:9'\nbytes_max_mib = 10\n[store]\nqueue_max_mib = \
         20\n[admin]\nlisten = '127.0.0.1:9'\n[inbound]\nlease_seconds = 12\nretry_initial_ms = 2\nretry_max_ms = 1\n\
         [publish]\nallow_networks = ['10.0.0.0/8', '10.0.0.1', '10.0.0.0/33', '::1/128']\n",
        &[],
        expect![[r#"
            the configuration cannot be used:
              `intake.body_max_mib` must not be more than `intake.bytes_max_mib`
              `intake.body_max_mib` must not be more than `store.queue_max_mib`
              forebay.toml line 8: `admin.listen` must differ from `intake.listen`
              forebay.toml line 10: `inbound.lease_seconds` must be at least 15: `flow.deadline_ms` and 5 s more
              forebay.toml line 11: `inbound.retry_initial_ms` must not be more than `inbound.retry_max_ms`
              forebay.toml line 14: `publish.allow_networks` contains `10.0.0.1`, which is no network in CIDR notation, like 10.20.0.0/16 or fd00::/8
              forebay.toml line 14: `publish.allow_networks` contains `10.0.0.0/33`, which is no network in CIDR notation, like 10.20.0.0/16 or fd00::/8
              forebay.toml line 1: `namespaces` is wrong: `A` cannot be a namespace name: use 1 to 63 of a-z, 0-9, `-` and `_`, beginning with a letter or digit
              forebay.toml line 1: `namespaces` names `a` twice"#]],
    );
}

// RET-1, RET-2
#[test]
fn what_has_ended_is_kept_long_enough_to_know_a_delivery_by_it() {
    check_refused(
        "[retention]\nevents_days = 6\nmessages_days = 0\nfailed_days = 3\n",
        &[],
        expect![[r#"
            the configuration cannot be used:
              forebay.toml line 2: `retention.events_days` must be a whole number from 7 to 36525
              forebay.toml line 3: `retention.messages_days` must be a whole number from 1 to 36525
              forebay.toml line 4: `retention.failed_days` must be 0, which keeps what failed, or at least 7: a failed event is recognized when it is delivered again"#]],
    );
    let kept = load("[retention]\nevents_days = 7\nmessages_days = 1\nfailed_days = 7\n", &[]).unwrap().retention;
    assert_eq!((kept.events_days, kept.messages_days, kept.failed_days), (7, 1, 7));
    assert_eq!(load("", &[]).unwrap().retention, RetentionConfig::default());
}

#[test]
fn a_destination_must_be_an_address_that_can_be_called() {
    check_refused(
        "[destinations.none]\n[destinations.ftp]\nurl = 'ftp://a/'\n[destinations.path]\nurl = '/hooks'\n\
         [destinations.user]\nurl = 'https://me:hunter2@a/'\n[destinations.fragment]\nurl = 'https://a/#b'\n\
         [destinations.Big]\nurl = 'https://a/'\n[destinations.secret]\nurl = 'https://a/'\nsecret = \
         'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw'\n[destinations.retry]\nurl = 'https://a/'\nretry_initial_ms = \
         5\nretry_max_ms = 4\n",
        &[],
        expect![[r#"
            the configuration cannot be used:
              `destinations.Big` is no destination: `Big` cannot be a destination name: use 1 to 63 of a-z, 0-9, `-` and `_`, beginning with a letter or digit
              forebay.toml line 9: `destinations.fragment.url` must not contain a fragment
              forebay.toml line 3: `destinations.ftp.url` must begin with http:// or https://
              `destinations.none.url` is missing: a destination needs an address
              forebay.toml line 5: `destinations.path.url` must begin with http:// or https://
              forebay.toml line 17: `destinations.retry.retry_initial_ms` must not be more than `retry_max_ms`
              forebay.toml line 14: `destinations.secret.secret` must be the name of a secret, 1 to 63 of a-z, 0-9, `-` and `_`, not the secret itself
              forebay.toml line 7: `destinations.user.url` must not contain a user or a password: sign with `secret` instead"#]],
    );
}

// LAN-3
#[test]
fn what_may_be_retried_is_what_would_end_a_message() {
    let of =
        |statuses: &str| load(&format!("[destinations.crm]\nurl = 'http://a/'\nretry_statuses = {statuses}\n"), &[]);
    let config = of("['401', '404', '302']").unwrap();
    assert_eq!(config.destinations.get(&"crm".parse().unwrap()).unwrap().retry_statuses, [401, 404, 302]);
    for wrong in ["410", "200", "500", "soon", "-1"] {
        let refused = of(&format!("['404', '{wrong}']")).unwrap_err().to_string();
        assert!(refused.contains(&format!("`destinations.crm.retry_statuses` names `{wrong}`")), "{refused}");
    }
}

// LAN-2
#[test]
fn a_destination_that_could_take_the_places_of_all_others_is_refused() {
    let file = "[publish]\nin_flight_max = 100\n[timeline]\nclaimed_max = 60\n[destinations.greedy]\nurl = 'http://a/'\n\
                in_flight_messages = 31\n[destinations.default]\nurl = 'http://a/'\n[destinations.half]\nurl = 'http://a/'\n\
                in_flight_messages = 30\n";
    check_refused(
        file,
        &[],
        expect![[r#"
            the configuration cannot be used:
              `destinations.default.in_flight_messages` is 32, and must not be more than half of `publish.in_flight_max` and of `timeline.claimed_max`: set it to 30 or less, or both of these to 64 or more
              forebay.toml line 7: `destinations.greedy.in_flight_messages` is 31, and must not be more than half of `publish.in_flight_max` and of `timeline.claimed_max`: set it to 30 or less, or both of these to 62 or more"#]],
    );
    let narrow = [("FOREBAY_TIMELINE_CLAIMED_MAX", "1024"), ("FOREBAY_PUBLISH_IN_FLIGHT_MAX", "63")];
    assert!(load(file, &narrow).is_err(), "the narrower of the two decides");
    let wide = [("FOREBAY_TIMELINE_CLAIMED_MAX", "64"), ("FOREBAY_PUBLISH_IN_FLIGHT_MAX", "64")];
    assert_eq!(load(file, &wide).unwrap().destinations.len(), 3);
    let file = "[publish]\nin_flight_mib = 30\n[destinations.greedy]\nurl = 'http://a/'\nin_flight_mib = 16\n\
                [destinations.half]\nurl = 'http://a/'\nin_flight_mib = 15\n";
    check_refused(
        file,
        &[],
        expect![[r#"
            the configuration cannot be used:
              forebay.toml line 5: `destinations.greedy.in_flight_mib` is 16, and must not be more than half of `publish.in_flight_mib`: set that to 32 or more, or this to less"#]],
    );
}

#[test]
fn an_admin_listener_that_others_reach_needs_a_token() {
    let open = "[admin]\nlisten = '0.0.0.0:8081'\n";
    check_refused(
        open,
        &[],
        expect![[r#"
        the configuration cannot be used:
          forebay.toml line 2: `admin.listen` is not a loopback address: set `admin.token` or `admin.token_file` too, or listen on 127.0.0.1"#]],
    );
    check_refused(
        open,
        &[("FOREBAY_ADMIN_TOKEN", "short")],
        expect![[r#"
        the configuration cannot be used:
          environment variable FOREBAY_ADMIN_TOKEN: `admin.token` must be at least 16 visible ASCII characters"#]],
    );
    let both = "[admin]\ntoken = 'a-token-of-20-letters'\ntoken_file = '/run/token'\n";
    check_refused(
        both,
        &[],
        expect![[r#"
        the configuration cannot be used:
          forebay.toml line 3: `admin.token_file` must not be set together with `admin.token`"#]],
    );
    let config = load(open, &[("FOREBAY_ADMIN_TOKEN", "a-token-of-20-letters")]).unwrap();
    assert!(matches!(config.admin.token, Some(TokenSource::Given(_))));
}

#[test]
fn a_bucket_for_checkpoints_is_told_of_whole_and_instead_of_a_folder() {
    check_refused(
        "[checkpoints]\nfolder = '/mnt/checkpoints'\nendpoint = 'https://s3.example.com'\n",
        &[],
        expect![[r#"
        the configuration cannot be used:
          forebay.toml line 3: `checkpoints.endpoint` is for a bucket: set `checkpoints.bucket` too"#]],
    );
    check_refused(
        "[checkpoints]\nfolder = '/mnt/checkpoints'\nbucket = 'ours'\nendpoint = 's3.example.com'\n",
        &[("FOREBAY_CHECKPOINTS_ACCESS_KEY_ID", "who")],
        expect![[r#"
        the configuration cannot be used:
          forebay.toml line 2: `checkpoints.folder` must not be set together with `checkpoints.bucket`
          forebay.toml line 4: `checkpoints.endpoint` must begin with http:// or https://, like https://s3.example.com:9000
          `checkpoints.secret_access_key` is needed for a bucket"#]],
    );
    let keys = [("FOREBAY_CHECKPOINTS_ACCESS_KEY_ID", "who"), ("FOREBAY_CHECKPOINTS_SECRET_ACCESS_KEY", "letters")];
    let config = load("[checkpoints]\nbucket = 'ours'\nevery_seconds = 0\n", &keys).unwrap();
    assert!(matches!(&config.checkpoints.place, CheckpointsPlace::Bucket(bucket) if bucket.region == "us-east-1"));
    assert_eq!(config.checkpoints.every, None);
}

// OBS-3
#[test]
fn a_configuration_shows_no_secret() {
    let config = load("[admin]\ntoken = 'a-token-of-20-letters'\n", &[]).unwrap();
    assert!(!format!("{config:?}").contains("letters"));
    let keys = [("FOREBAY_CHECKPOINTS_ACCESS_KEY_ID", "who"), ("FOREBAY_CHECKPOINTS_SECRET_ACCESS_KEY", "letters")];
    let config = load("[checkpoints]\nbucket = 'ours'\n", &keys).unwrap();
    assert!(!format!("{config:?}").contains("letters"));
}

#[test]
fn a_file_that_is_missing_is_named() {
    let sources = Sources { file: Some(Path::new("/nowhere/forebay.toml")), ..Sources::default() };
    expect![[r#"
        the configuration cannot be used:
          /nowhere/forebay.toml cannot be read: No such file or directory (os error 2)"#]]
    .assert_eq(&Config::load(&sources).unwrap_err().to_string());
}

/// Every key with a value of its kind, as one TOML table. `pick` chooses between a number's bounds.
fn every_key(pick: fn(u32, u32) -> u32) -> toml::Table {
    let mut table = toml::Table::new();
    for key in KEYS {
        let value = match key.kind {
            Kind::Number { min, max } => toml::Value::Integer(pick(min, max).into()),
            Kind::Switch => toml::Value::Boolean(true),
            Kind::Text => "text".into(),
            Kind::Address => "127.0.0.1:1".into(),
            Kind::Word(words) => words[0].into(),
            Kind::List => vec!["a"].into(),
        };
        let mut inner = &mut table;
        let mut parts = key.path.split('.').peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                inner.insert(part.to_owned(), value.clone());
            } else {
                let next = inner.entry(part).or_insert_with(|| toml::Table::new().into());
                inner = next.as_table_mut().unwrap();
            }
        }
    }
    table
}

#[test]
fn the_table_of_keys_and_the_structs_agree() {
    for pick in [u32::min, u32::max] {
        let table = every_key(pick);
        let document = check::Document::deserialize(toml::Value::Table(table.clone())).unwrap();
        assert_eq!(toml::Table::try_from(document).unwrap(), table, "every key has a field that holds its bounds");
    }
    let known: BTreeSet<&str> = KEYS.iter().map(|key| key.path).collect();
    assert_eq!(known.len(), KEYS.len(), "no key stands twice");
    for (section, keys) in defaults() {
        let toml::Value::Table(keys) = keys else { continue };
        let (section, keys) = match keys.get(NAME_PART) {
            Some(named) => (format!("{section}.{NAME_PART}"), named.as_table().unwrap().clone()),
            None => (section, keys),
        };
        for (key, value) in keys {
            let path = format!("{section}.{key}");
            let known = KEYS.iter().find(|known| known.path == path).unwrap_or_else(|| panic!("{path} has no entry"));
            assert_eq!(known.kind.accept(&value), Ok(()), "the default of {path} is of its kind");
        }
    }
}

// FLG-1
#[test]
fn the_reference_is_what_the_code_says() {
    expect_file!["../../../docs/configuration.md"].assert_eq(&reference());
}

#[test]
fn addresses_that_are_no_destinations_are_checked() {
    check_refused(
        "[intake]\npublic_url = 'hooks.example.com'\n[readers.a]\nreader = 'contacts'\norigin = 'https://user@a.example'\n\
         [readers.b]\npack = 'Bad'\norigin = 'https://a.example/?x=1'\n[readers.c]\npack = 'hubspot'\nhost = 'a'\n",
        &[],
        expect![[r#"
            the configuration cannot be used:
              forebay.toml line 11: `readers.c.host` is not a known key; did you mean `readers.c.pack`?
              forebay.toml line 2: `intake.public_url` must begin with http:// or https://
              `readers.a.pack` is missing: say whose readers are meant
              forebay.toml line 5: `readers.a.origin` must not contain a user or a password
              forebay.toml line 7: `readers.b.pack` is wrong: `Bad` cannot be a pack name: use 1 to 63 of a-z, 0-9, `-` and `_`, beginning with a letter or digit
              forebay.toml line 8: `readers.b.origin` must not contain a query
              `readers.c.origin` is missing: say where is called, like `https://proxy.example.com`"#]],
    );
    let text = "[intake]\npublic_url = 'https://hooks.example.com/'\n[readers.eu]\npack = 'hubspot'\norigin = 'https://eu.example/v1'\n";
    let config = load(text, &[]).unwrap();
    assert_eq!(config.intake.public_url.as_deref(), Some("https://hooks.example.com"));
    assert_eq!((config.readers[0].pack.as_str(), config.readers[0].reader.is_none()), ("hubspot", true));
    assert_eq!(config.readers[0].origin.to_string(), "https://eu.example/v1");
}

// DRR-1
#[test]
fn tenants_have_the_weights_that_they_are_given_and_nobody_else_has_one() {
    let weighed = |weights: &str| {
        load(&format!("namespaces = ['acme', 'globex']\n[timeline]\nnamespace_weights = {weights}\n"), &[])
    };
    let config = weighed("['acme=4', 'globex = 1000']").unwrap();
    let expected = [("acme".parse().unwrap(), 4), ("globex".parse().unwrap(), 1_000)];
    assert_eq!(config.namespace_weights, expected.into());
    for (wrong, reason) in [
        ("['umbrella=2']", "weighs `umbrella`, which `namespaces` does not name"),
        ("['acme=2', 'acme=3']", "weighs `acme` twice"),
        ("['acme=0']", "has `acme=0`, and must have `namespace=weight` with a weight from 1 to 1000"),
        ("['acme=1001']", "has `acme=1001`"),
        ("['acme']", "has `acme`"),
        ("['=4']", "has `=4`"),
    ] {
        let refusal = weighed(wrong).unwrap_err().to_string();
        assert!(refusal.contains(reason), "{wrong}: {refusal}");
    }
}

#[test]
fn a_packs_flow_is_no_destination_to_configure() {
    let refusal = load("[destinations.'flow:github']\nurl = 'http://a/'\n", &[]).unwrap_err().to_string();
    assert!(refusal.contains("destinations.flow:github"), "{refusal}");
}

// LAN-5
#[test]
fn a_destination_that_is_set_while_hosts_run_is_under_the_rules_of_the_file() {
    let read = |name: &str, document: serde_json::Value| {
        destination(name, document.as_object().unwrap(), InFlightMax { messages: 100, bytes: 64 << 20 })
            .map_err(|problems| problems.join("\n"))
    };
    let file = "[publish]\nin_flight_max = 100\n[destinations.crm]\nurl = 'https://crm.example/hooks?a=b'\nsecret = 'crm'\n\
                ordering = 'hashed'\nordering_domains = 4\nweight = 3\nretry_statuses = ['404']\nattempts_max = 2\n";
    let document = serde_json::json!({
        "url": "https://crm.example/hooks?a=b", "secret": "crm", "ordering": "hashed", "ordering_domains": 4, "weight": 3,
        "retry_statuses": ["404"], "attempts_max": 2,
    });
    let config = load(file, &[]).unwrap();
    assert_eq!(read("crm", document).unwrap(), *config.destinations.get(&"crm".parse().unwrap()).unwrap());
    let wrong = serde_json::json!({
        "url": "https://me:hunter2@a/", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "weight": 0, "deadline": 5,
        "retry_statuses": [404], "uncertain": "maybe", "in_flight_messages": 51, "attempts_max": 1.5, "ordering": null,
        "a.b": {"c": [[]]}, "retry_initial_ms": 18_446_744_073_709_551_615_u64,
    });
    expect![[r#"
        `destinations.crm.a.b` is not a known key; did you mean `destinations.crm.url`?
        `destinations.crm.attempts_max` must be a whole number from 1 to 1000
        `destinations.crm.deadline` is not a known key; did you mean `destinations.crm.deadline_ms`?
        `destinations.crm.ordering` must be a number, a text or a list of texts
        `destinations.crm.retry_initial_ms` must be a number, a text or a list of texts
        `destinations.crm.retry_statuses` must be a list of texts
        `destinations.crm.uncertain` must be one of retry, hold, end
        `destinations.crm.weight` must be a whole number from 1 to 1000
        `destinations.crm.url` must not contain a user or a password: sign with `secret` instead
        `destinations.crm.secret` must be the name of a secret, 1 to 63 of a-z, 0-9, `-` and `_`, not the secret itself
        `destinations.crm.in_flight_messages` is 51, and must not be more than half of `publish.in_flight_max` and of `timeline.claimed_max`: set it to 50 or less, or both of these to 102 or more"#]].assert_eq(&read("crm", wrong).unwrap_err());
    for name in ["", "a.b", "Big", "flow:github", "a/b", &"x".repeat(64)] {
        let problem = read(name, serde_json::json!({"url": "https://a/"})).unwrap_err();
        assert!(problem.contains("cannot be a destination name"), "{name}: {problem}");
    }
    assert!(read("crm", serde_json::json!({})).unwrap_err().contains("`destinations.crm.url` is missing"));
}
