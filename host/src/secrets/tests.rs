use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

use tempfile::TempDir;

use super::*;
use crate::env::{ManualClock, SeededEntropy};
use crate::model::time::Timestamp;

struct Fixture {
    directory: TempDir,
    clock: Arc<ManualClock>,
    secrets: Secrets,
}

impl Fixture {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_millis(0)));
        let env = Env { clock: clock.clone(), entropy: Arc::new(SeededEntropy::new(1)) };
        let secrets = Secrets::open(directory.path(), env).unwrap();
        Self { directory, clock, secrets }
    }

    fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn get(&self, namespace: &str, name: &str) -> Result<Vec<Vec<u8>>, SecretError> {
        let secrets = self.secrets.get(&namespace.parse().unwrap(), &name.parse().unwrap())?;
        Ok(secrets.iter().map(|secret| secret.expose().to_vec()).collect())
    }

    fn of_pack(&self, namespace: &str, pack: &str, name: &str) -> Result<Vec<Vec<u8>>, SecretError> {
        let (namespace, pack, name) = (namespace.parse().unwrap(), pack.parse().unwrap(), name.parse().unwrap());
        let secrets = self.secrets.of_pack(&namespace, &pack, &name)?;
        Ok(secrets.iter().map(|secret| secret.expose().to_vec()).collect())
    }

    fn reason(&self, namespace: &str, name: &str) -> String {
        self.get(namespace, name).unwrap_err().to_string()
    }
}

// GST-4: a manifest says which secret goes where, so it can name its own pack's alone.
#[test]
fn a_pack_is_given_what_lies_in_its_own_folder_and_nothing_else() {
    let fixture = Fixture::new();
    fixture.write("token", "signs\n");
    fixture.write("acme/token", "signs too\n");
    fixture.write("crm.pack/token", "shared\n");
    fixture.write("acme/crm.pack/token", "own\n");
    fixture.write("crm/token", "a tenant's who has the pack's name\n");
    assert_eq!(fixture.of_pack("acme", "crm", "token").unwrap(), [b"own".to_vec()]);
    assert_eq!(fixture.of_pack("other", "crm", "token").unwrap(), [b"shared".to_vec()]);
    assert_eq!(
        fixture.of_pack("acme", "thief", "token").unwrap_err().to_string(),
        "there is no secret `token` for namespace `acme`: write it to acme/thief.pack/token or thief.pack/token in the \
         secrets directory"
    );
    assert_eq!(fixture.get("acme", "token").unwrap(), [b"signs too".to_vec()]);
}

#[test]
fn a_tenants_own_secret_comes_before_the_shared_one() {
    let fixture = Fixture::new();
    fixture.write("github", "shared\n");
    fixture.write("acme/github", "own\n");
    assert_eq!(fixture.get("acme", "github").unwrap(), [b"own".to_vec()]);
    assert_eq!(fixture.get("other", "github").unwrap(), [b"shared".to_vec()]);
}

#[test]
fn a_file_holds_one_secret_a_line_and_line_ends_do_not_belong_to_it() {
    let fixture = Fixture::new();
    fixture.write("github", b"new\r\n\n old with spaces \n\xff\xfe\n\r\n");
    let expected: [&[u8]; 3] = [b"new", b" old with spaces ", b"\xff\xfe"];
    assert_eq!(fixture.get("acme", "github").unwrap(), expected);
}

#[test]
fn a_shared_secret_may_have_the_name_of_a_namespace() {
    let fixture = Fixture::new();
    fixture.write("acme", "shared");
    assert_eq!(fixture.get("acme", "acme").unwrap(), [b"shared".to_vec()]);
    assert!(matches!(fixture.get("acme", "github"), Err(SecretError::Missing { .. })));
}

#[test]
fn a_change_is_seen_once_the_file_is_due_to_be_looked_at_again() {
    let fixture = Fixture::new();
    fixture.write("github", "old");
    assert_eq!(fixture.get("acme", "github").unwrap(), [b"old".to_vec()]);
    fixture.write("github", "new\nold");
    assert_eq!(fixture.get("acme", "github").unwrap(), [b"old".to_vec()]);
    fixture.clock.advance(RECHECK_AFTER);
    assert_eq!(fixture.get("acme", "github").unwrap(), [b"new".to_vec(), b"old".to_vec()]);
}

#[test]
fn removing_a_file_revokes_and_writing_it_heals() {
    let fixture = Fixture::new();
    fixture.write("github", "one");
    fixture.get("acme", "github").unwrap();
    fs::remove_file(fixture.directory.path().join("github")).unwrap();
    fixture.clock.advance(RECHECK_AFTER);
    assert!(matches!(fixture.get("acme", "github"), Err(SecretError::Missing { .. })));
    fixture.write("github", "two");
    fixture.clock.advance(RECHECK_AFTER);
    assert_eq!(fixture.get("acme", "github").unwrap(), [b"two".to_vec()]);
}

#[test]
fn a_file_that_cannot_serve_says_which_and_why() {
    let fixture = Fixture::new();
    fixture.write("empty", "\n\r\n\n");
    fixture.write("large", vec![b'x'; 64 * 1024 + 1]);
    fixture.write("many", "x\n".repeat(SECRETS_PER_FILE_MAX + 1));
    fs::create_dir(fixture.directory.path().join("folder")).unwrap();
    for (name, expected) in [
        ("empty", "secret `empty`: holds no secret: write one a line, the newest first"),
        ("large", "secret `large`: is larger than 65536 bytes"),
        ("many", "secret `many`: holds 9 secrets; the most is 8"),
        ("folder", "secret `folder`: is not a regular file"),
        (
            "absent",
            "there is no secret `absent` for namespace `acme`: write it to acme/absent or absent in the secrets directory",
        ),
    ] {
        assert_eq!(fixture.reason("acme", name), expected);
    }
}

#[test]
fn a_link_that_leads_out_of_the_directory_is_not_followed() {
    let fixture = Fixture::new();
    let outside = TempDir::new().unwrap();
    fs::write(outside.path().join("passwords"), "outside").unwrap();
    symlink(outside.path().join("passwords"), fixture.directory.path().join("github")).unwrap();
    let reason = fixture.reason("acme", "github");
    assert!(reason.starts_with("secret `github`: cannot be read"), "{reason}");
}

#[test]
fn a_link_inside_the_directory_is_followed() {
    let fixture = Fixture::new();
    fixture.write("versions/2/github", "linked");
    symlink("versions/2/github", fixture.directory.path().join("github")).unwrap();
    assert_eq!(fixture.get("acme", "github").unwrap(), [b"linked".to_vec()]);
}

#[test]
fn a_directory_that_does_not_exist_is_named() {
    let directory = TempDir::new().unwrap();
    let absent = directory.path().join("absent");
    let Err(error) = Secrets::open(&absent, Env::system()) else { panic!("opened what is not there") };
    let text = error.to_string();
    assert!(text.contains(absent.to_str().unwrap()) && text.contains("cannot be opened"), "{text}");
}

// OBS-3
#[test]
fn a_secret_prints_none_of_its_bytes() {
    assert_eq!(format!("{:?}", Secret::new(*b"hunter2")), "Secret(..)");
}
