//! Key pairs, for routes whose providers sign with a private key: here `forebay dev` stands in for the provider. The
//! host is given the public key as the route's secret.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use data_encoding::BASE64;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};

use crate::model::verification::{Algorithm, Verification};

/// The folder of the private keys, beside that of the secrets.
const FOLDER: &str = "signing-keys";

/// What signs a route's requests, if that is a private key.
pub(super) fn algorithm_of(verification: &Verification) -> Option<Algorithm> {
    match verification {
        Verification::Signature { scheme, .. } => match scheme.algorithm {
            Algorithm::Hmac { .. } => None,
            Algorithm::EcdsaP256 | Algorithm::Ed25519 => Some(scheme.algorithm),
        },
        Verification::Plain | Verification::SharedToken { .. } | Verification::Basic { .. } => None,
    }
}

/// Makes a key pair, keeps the private key, and returns the public one as a secret's text.
pub(super) fn make(algorithm: Algorithm, secrets: &Path, name: &str) -> io::Result<String> {
    let random = SystemRandom::new();
    let unmade = |_| io::Error::other("no key pair can be made: the system gives no random numbers");
    let private = match algorithm {
        Algorithm::Ed25519 => Ed25519KeyPair::generate_pkcs8(&random).map_err(unmade)?,
        Algorithm::EcdsaP256 | Algorithm::Hmac { .. } => {
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).map_err(unmade)?
        }
    };
    let file = file(secrets, name);
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&file)?.write_all(private.as_ref())?;
    let public = match algorithm {
        Algorithm::Ed25519 => {
            Ed25519KeyPair::from_pkcs8(private.as_ref()).map(|pair| BASE64.encode(pair.public_key().as_ref()))
        }
        Algorithm::EcdsaP256 | Algorithm::Hmac { .. } => {
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, private.as_ref(), &random)
                .map(|pair| BASE64.encode(pair.public_key().as_ref()))
        }
    };
    public.map_err(io::Error::other)
}

/// Signs with the private key of this name.
pub(super) fn sign(algorithm: Algorithm, secrets: &Path, name: &str, message: &[u8]) -> anyhow::Result<Vec<u8>> {
    let private = std::fs::read(file(secrets, name)).with_context(|| {
        format!("the secret `{name}` is a public key, and only its owner can sign: leave --secrets out, and forebay dev makes a pair")
    })?;
    let unusable = |error: ring::error::KeyRejected| anyhow!("the signing key `{name}` cannot be used: {error}");
    match algorithm {
        Algorithm::Ed25519 => {
            let pair = Ed25519KeyPair::from_pkcs8(&private).map_err(unusable)?;
            Ok(pair.sign(message).as_ref().to_vec())
        }
        Algorithm::EcdsaP256 => {
            let random = SystemRandom::new();
            let pair =
                EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &private, &random).map_err(unusable)?;
            let signature = pair.sign(&random, message).map_err(|_| anyhow!("the system gives no random numbers"))?;
            Ok(signature.as_ref().to_vec())
        }
        Algorithm::Hmac { .. } => bail!("a keyed hash has no key pair"),
    }
}

fn file(secrets: &Path, name: &str) -> PathBuf {
    secrets.with_file_name(FOLDER).join(name)
}
