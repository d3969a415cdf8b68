//! The secrets that packs, destinations and readers name, and whether the operator holds them. Nothing stops without
//! one: what is asked for it is refused or waits. So a start says what is missing, and the doctor does.

use std::sync::Arc;

use crate::config::Config;
use crate::guest::PackFile;
use crate::intake::{ActiveGeneration, RouteTable};
use crate::model::destination::Destination;
use crate::model::names::Namespace;
use crate::model::pack::{GenerationNumber, Manifest, Reader};
use crate::publish;
use crate::secrets::Secrets;

/// A secret that somebody names, in every namespace in which it is.
#[derive(Debug)]
pub(super) struct Need {
    /// Who names it.
    pub(super) whose: String,
    /// The namespaces.
    pub(super) namespaces: usize,
    /// Those in which it cannot be used, and why. Empty if all is well.
    pub(super) lacking: Vec<(Namespace, String)>,
}

/// Every secret that is named: by the open routes, by the readers of these packs, by the destinations.
pub(super) fn look(config: &Config, routes: &RouteTable, packs: &[Manifest], secrets: &Secrets) -> Vec<Need> {
    let mut needs: Vec<Need> = Vec::new();
    for secret in routes.secrets() {
        let part = if secret.is_of_handshake() { "the handshake of " } else { "" };
        let whose = format!("{part}route `{}` of pack `{}`", secret.route, secret.pack);
        let lacking = if secret.signs_uri() && config.intake.public_url.is_none() {
            Err("its provider signs the address that it delivers to: set `intake.public_url`".to_owned())
        } else {
            secret.check(secrets)
        };
        let lacking = lacking.err().map(|reason| (secret.namespace, reason));
        match needs.last_mut() {
            // They come in the order of routes.
            Some(need) if need.whose == whose => {
                need.namespaces += 1;
                need.lacking.extend(lacking);
            }
            Some(_) | None => needs.push(Need { whose, namespaces: 1, lacking: lacking.into_iter().collect() }),
        }
    }
    for (pack, reader) in packs.iter().flat_map(|pack| pack.readers.iter().map(move |reader| (pack, reader))) {
        if !reader.secret_headers.is_empty() {
            let whose = format!("reader `{}` of pack `{}`", reader.name, pack.name);
            needs.push(need(config, whose, |namespace| check_reader(pack, reader, namespace, secrets)));
        }
    }
    needs.extend(config.destinations.values().filter_map(|destination| of_destination(config, destination, secrets)));
    needs
}

/// The secret that a destination names, if it names one.
pub(super) fn of_destination(config: &Config, destination: &Destination, secrets: &Secrets) -> Option<Need> {
    destination.secret.as_ref()?;
    let whose = format!("destination `{}`", destination.name);
    Some(need(config, whose, |namespace| publish::check_secret(destination, namespace, secrets)))
}

/// Says of each secret that cannot be used who waits for it.
pub(super) fn warn(needs: &[Need]) {
    for Need { whose, lacking, .. } in needs.iter().filter(|need| !need.lacking.is_empty()) {
        let namespaces: Vec<&str> = lacking.iter().map(|(namespace, _)| namespace.as_str()).collect();
        let (namespaces, reason) = (namespaces.join(", "), &lacking[0].1);
        tracing::warn!(whose, namespaces, reason, "a secret cannot be used: what needs it is refused or waits");
    }
}

/// The routes of these packs, as they would be open in every namespace; or why they cannot be served together.
pub(super) fn routes(config: &Config, packs: &[PackFile]) -> Result<RouteTable, String> {
    let active: Vec<ActiveGeneration> = packs
        .iter()
        .map(|file| ActiveGeneration {
            pack: file.manifest.name.clone(),
            number: GenerationNumber(0),
            manifest: Arc::new(file.manifest.clone()),
        })
        .collect();
    let routes = RouteTable::empty();
    routes.replace(&config.namespaces, &active).map_err(|conflict| conflict.to_string())?;
    Ok(routes)
}

fn need(config: &Config, whose: String, check: impl Fn(&Namespace) -> Result<(), String>) -> Need {
    let lacking = |namespace: &Namespace| Some((namespace.clone(), check(namespace).err()?));
    Need { whose, namespaces: config.namespaces.len(), lacking: config.namespaces.iter().filter_map(lacking).collect() }
}

fn check_reader(pack: &Manifest, reader: &Reader, namespace: &Namespace, secrets: &Secrets) -> Result<(), String> {
    reader.secret_headers.iter().try_for_each(|header| {
        secrets.of_pack(namespace, &pack.name, &header.secret).map(drop).map_err(|error| error.to_string())
    })
}
