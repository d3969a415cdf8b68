//! The surroundings of a host for an author who has only a pack: configuration, secrets and a receiver.

use std::collections::BTreeSet;
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use data_encoding::BASE64;

use super::keypair;
use crate::env::Env;
use crate::model::pack::Manifest;
use crate::model::verification::Verification;
use crate::secrets::folder_of_pack;

/// The namespace without a configuration.
pub(super) const NAMESPACE: &str = "default";

/// A reader: the name of its pack and its own.
pub(super) type ReaderName = (String, String);

/// The readers of a pack.
pub(super) fn readers(manifest: &Manifest) -> impl Iterator<Item = ReaderName> {
    manifest.readers.iter().map(|reader| (manifest.name.to_string(), reader.name.to_string()))
}

/// The configuration of a host whose destinations lead to `receiver` and whose readers lead to `provider`.
pub(super) fn configuration(
    destinations: &BTreeSet<String>,
    receiver: SocketAddr,
    readers: &BTreeSet<ReaderName>,
    provider: SocketAddr,
) -> String {
    let mut text = format!(
        "namespaces = [\"{NAMESPACE}\"]\n[intake]\npublic_url = \"https://dev.localhost\"\n\
         [publish]\nallow_networks = [\"127.0.0.0/8\"]\n"
    );
    for name in destinations {
        text.push_str(&format!("[destinations.{name}]\nurl = \"http://{receiver}/{name}\"\n"));
    }
    for (index, (pack, reader)) in readers.iter().enumerate() {
        let origin = format!("http://{provider}/{pack}/{reader}");
        text.push_str(&format!(
            "[readers.reader-{index}]\npack = \"{pack}\"\nreader = \"{reader}\"\norigin = \"{origin}\"\n"
        ));
    }
    text
}

/// Creates the missing secrets of the pack's routes and readers. Returns the created files.
pub(super) fn make_secrets(manifest: &Manifest, folder: &Path, env: &Env) -> io::Result<Vec<String>> {
    let of_pack = folder_of_pack(&manifest.name);
    let of_routes = manifest.routes.iter().flat_map(|route| {
        let own = route.verification.secret().map(|name| (name.to_string(), Some(&route.verification)));
        let token = route.handshake.as_ref().and_then(|one| one.secret()).map(|name| (name.to_string(), None));
        own.into_iter().chain(token)
    });
    let of_readers = manifest.readers.iter().flat_map(|reader| &reader.secret_headers);
    let of_readers: Vec<_> = of_readers.map(|header| (format!("{of_pack}/{}", header.secret), None)).collect();
    if !of_readers.is_empty() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder.join(&of_pack))?;
    }
    let mut made = Vec::new();
    for (name, verification) in of_routes.chain(of_readers) {
        if folder.join(NAMESPACE).join(&name).exists() {
            continue;
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(folder.join(&name));
        match file {
            Ok(mut file) => {
                writeln!(file, "{}", new_secret(verification, folder, &name, env)?)?;
                made.push(name);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(made)
}

/// A public key where the provider has a private one; `user:password` where that is asked for; otherwise in the form of
/// Standard Webhooks, which serves every other scheme as well.
fn new_secret(verification: Option<&Verification>, folder: &Path, name: &str, env: &Env) -> io::Result<String> {
    if let Some(algorithm) = verification.and_then(keypair::algorithm_of) {
        return keypair::make(algorithm, folder, name);
    }
    let mut key = [0; 24];
    env.entropy.fill(&mut key);
    let prefix = if matches!(verification, Some(Verification::Basic { .. })) { "dev:" } else { "whsec_" };
    Ok(format!("{prefix}{}", BASE64.encode(&key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::{Config, Sources};
    use crate::guest::parse_manifest;

    #[test]
    fn the_configuration_is_one_and_has_every_destination() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("forebay.toml");
        let destinations = ["ledger", "ware-house"].map(str::to_owned).into();
        let readers = ["contacts", "deal_s"].map(|reader| ("hub-spot".to_owned(), reader.to_owned())).into();
        let [receiver, provider] = ["127.0.0.1:9", "127.0.0.1:10"].map(|address| address.parse().unwrap());
        std::fs::write(&file, configuration(&destinations, receiver, &readers, provider)).unwrap();
        let config = Config::load(&Sources { file: Some(&file), ..Sources::default() }).unwrap();
        assert_eq!(config.namespaces[0].as_str(), NAMESPACE);
        let origins: Vec<String> = config.readers.iter().map(|reader| reader.origin.to_string()).collect();
        assert_eq!(origins, ["http://127.0.0.1:10/hub-spot/contacts", "http://127.0.0.1:10/hub-spot/deal_s"]);
    }

    #[test]
    fn secrets_are_made_once() {
        let text = "name = \"p\"\nversion = \"1\"\n[[routes]]\npath = \"a\"\nverify = \"github\"\nsecret = \"one\"\n\
                    [[routes]]\npath = \"b\"\nverify = \"stripe\"\nsecret = \"one\"\n\
                    [[readers]]\nname = \"r\"\nhosts = [\"a.example\"]\nmax_keys = 1\n\
                    secret_headers = [{ header = \"authorization\", secret = \"token\" }]\n";
        let manifest = parse_manifest(text).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let env = Env::system();
        assert_eq!(make_secrets(&manifest, folder.path(), &env).unwrap(), ["one", "p.pack/token"]);
        let secret = std::fs::read(folder.path().join("one")).unwrap();
        assert!(make_secrets(&manifest, folder.path(), &env).unwrap().is_empty());
        assert_eq!(std::fs::read(folder.path().join("one")).unwrap(), secret);
    }
}
