//! Whose word is taken for a destination's certificate: the authorities that browsers trust (webpki), and the
//! operator's own.

use std::path::Path;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// TLS towards others. The authorities of `ca_file`, in PEM, are trusted beside the public ones; `key` is the setting
/// that names it.
pub(crate) fn client_config(key: &str, ca_file: Option<&Path>) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(file) = ca_file {
        add(&mut roots, file).map_err(|reason| format!("{key}: {} {reason}", file.display()))?;
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

/// Whether a file holds what [`client_config`] can trust; or what is wrong, in words that go on after its name.
pub(crate) fn check_authorities(file: &Path) -> Result<(), String> {
    add(&mut RootCertStore::empty(), file)
}

fn add(roots: &mut RootCertStore, file: &Path) -> Result<(), String> {
    if std::fs::metadata(file).is_ok_and(|metadata| !metadata.is_file()) {
        return Err("is not a regular file".to_owned());
    }
    let certificates =
        CertificateDer::pem_file_iter(file).map_err(|error| format!("cannot be read as a PEM file: {error}"))?;
    let before = roots.len();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| format!("cannot be read as a PEM file: {error}"))?;
        roots
            .add(certificate)
            .map_err(|error| format!("contains something that is not a certificate of an authority: {error}"))?;
    }
    if roots.len() == before { Err("holds no certificate".to_owned()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        client_config("publish.ca_file", Some(file.path()))
            .unwrap_err()
            .replace(&file.path().display().to_string(), "FILE")
    }

    #[test]
    fn a_file_that_names_no_authority_is_refused() {
        assert_eq!(refused(""), "publish.ca_file: FILE holds no certificate");
        assert_eq!(refused("not PEM"), "publish.ca_file: FILE holds no certificate");
        let garbage = refused("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
        assert!(
            garbage.starts_with("publish.ca_file: FILE contains something that is not a certificate of an authority"),
            "{garbage}"
        );
        let cut = refused("-----BEGIN CERTIFICATE-----\nAAAA\n");
        assert!(cut.starts_with("publish.ca_file: FILE cannot be read as a PEM file"), "{cut}");
        let missing = client_config("publish.ca_file", Some(Path::new("/nowhere/ca.pem"))).unwrap_err();
        assert!(missing.starts_with("publish.ca_file: /nowhere/ca.pem cannot be read"), "{missing}");
    }
}
