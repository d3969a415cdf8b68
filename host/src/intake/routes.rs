//! The ways in that are open: which pack and generation admits at which address.
//!
//! Invariants:
//! - The table is replaced as a whole; a request sees one table from its lookup to its answer.
//! - One address belongs to one pack, whatever namespaces there are.
//! - An address has one spelling: nothing is decoded, trimmed, merged or redirected.

use std::collections::HashMap;
use std::sync::{Arc, RwLock};

use super::verify;
use crate::model::handshake::Handshake;
use crate::model::names::{Namespace, PackName, SecretName};
use crate::model::pack::{GenerationNumber, Manifest, Route};
use crate::model::verification::Verification;
use crate::secrets::Secrets;

/// What every address begins with.
const PREFIX: &str = "/in/";

/// The ways in that are open, replaced as a whole; clones share them.
#[derive(Clone)]
pub struct RouteTable {
    open: Arc<RwLock<Arc<Open>>>,
}

/// By `{namespace}/{route}`: neither name can contain a slash, so the text is unambiguous.
type Open = HashMap<String, Arc<OpenRoute>>;

/// A generation that admits.
#[derive(Clone)]
pub struct ActiveGeneration {
    /// The pack.
    pub pack: PackName,
    /// Its number.
    pub number: GenerationNumber,
    /// Its routes' rules.
    pub manifest: Arc<Manifest>,
}

/// One way in.
#[derive(Debug)]
pub(super) struct OpenRoute {
    pub(super) namespace: Namespace,
    pub(super) pack: PackName,
    pub(super) generation: GenerationNumber,
    pub(super) route: Arc<Route>,
}

/// A secret that a route verifies with.
#[derive(Debug, Clone)]
pub struct RouteSecret {
    /// Whose deliveries.
    pub namespace: Namespace,
    /// Whose route.
    pub pack: PackName,
    /// The route's path.
    pub route: String,
    name: SecretName,
    /// What it verifies; nothing if it is the token of a handshake.
    verification: Option<Verification>,
}

impl RouteSecret {
    /// Those of one way in: of its verification, and of its handshake.
    fn of(open: &OpenRoute) -> impl Iterator<Item = Self> {
        let one = |name: &SecretName, verification: Option<&Verification>| Self {
            namespace: open.namespace.clone(),
            pack: open.pack.clone(),
            route: open.route.path.to_string(),
            name: name.clone(),
            verification: verification.cloned(),
        };
        let verification = &open.route.verification;
        let verifies = verification.secret().map(|name| one(name, Some(verification)));
        let token = open.route.handshake.as_ref().and_then(Handshake::secret).map(|name| one(name, None));
        verifies.into_iter().chain(token)
    }

    /// Whether a handshake takes it, and no verification.
    pub fn is_of_handshake(&self) -> bool {
        self.verification.is_none()
    }

    /// Whether what it verifies covers the address that requests are sent to.
    pub fn signs_uri(&self) -> bool {
        self.verification.as_ref().is_some_and(Verification::signs_uri)
    }

    /// Whether the operator holds it, in a form that verifies; if not, why.
    pub fn check(&self, secrets: &Secrets) -> Result<(), String> {
        let (namespace, name) = (&self.namespace, &self.name);
        let held = secrets.get(namespace, name).map_err(|error| error.to_string())?;
        let Some(verification) = &self.verification else { return Ok(()) };
        verify::can_verify(verification, &held).map_err(|expected| {
            format!("secret `{name}` for namespace `{namespace}` is no key: this scheme's are {expected}")
        })
    }
}

/// Two packs want the same route.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("packs `{first}` and `{second}` both declare the route `{path}`: rename one, or serve only one of them")]
pub struct RouteConflict {
    /// One pack.
    pub first: PackName,
    /// The other.
    pub second: PackName,
    /// The path that both declare.
    pub path: String,
}

impl RouteTable {
    /// A table with no routes.
    pub fn empty() -> Self {
        Self { open: Arc::default() }
    }

    /// Opens the routes of these generations in each of these namespaces, and closes all others. A conflict changes
    /// nothing.
    pub fn replace(&self, namespaces: &[Namespace], active: &[ActiveGeneration]) -> Result<(), RouteConflict> {
        let mut owners: HashMap<&str, &PackName> = HashMap::new();
        let mut open = Open::new();
        for generation in active {
            for route in &generation.manifest.routes {
                let path = route.path.as_str();
                if let Some(first) = owners.insert(path, &generation.pack) {
                    let (first, second) = (first.clone(), generation.pack.clone());
                    return Err(RouteConflict { first, second, path: path.to_owned() });
                }
                let route = Arc::new(route.clone());
                open.extend(namespaces.iter().map(|namespace| opened(namespace, generation, &route)));
            }
        }
        *self.open.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Arc::new(open);
        Ok(())
    }

    /// What the open routes verify with, and their handshakes' tokens, in the order of packs, routes and namespaces.
    pub fn secrets(&self) -> Vec<RouteSecret> {
        let open = Arc::clone(&self.open.read().unwrap_or_else(|poisoned| poisoned.into_inner()));
        let mut secrets: Vec<RouteSecret> = open.values().flat_map(|route| RouteSecret::of(route)).collect();
        secrets.sort_by(|one, other| {
            (&one.pack, &one.route, &one.namespace).cmp(&(&other.pack, &other.route, &other.namespace))
        });
        secrets
    }

    /// The way in at this path of a request, if it is open.
    pub(super) fn find(&self, path: &str) -> Option<Arc<OpenRoute>> {
        let key = path.strip_prefix(PREFIX)?;
        self.open.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(key).cloned()
    }
}

fn opened(namespace: &Namespace, generation: &ActiveGeneration, route: &Arc<Route>) -> (String, Arc<OpenRoute>) {
    let key = format!("{namespace}/{}", route.path);
    let open = OpenRoute {
        namespace: namespace.clone(),
        pack: generation.pack.clone(),
        generation: generation.number,
        route: route.clone(),
    };
    (key, Arc::new(open))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intake::tests::fixture::{manifest, plain_route};

    fn active(pack: &str, number: u32, paths: &[&str]) -> ActiveGeneration {
        let routes = paths.iter().map(|path| plain_route(path)).collect();
        ActiveGeneration {
            pack: pack.parse().unwrap(),
            number: GenerationNumber(number),
            manifest: Arc::new(manifest(pack, routes)),
        }
    }

    fn namespaces(names: &[&str]) -> Vec<Namespace> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn a_route_is_open_in_each_namespace_under_its_generation() {
        let table = RouteTable::empty();
        table.replace(&namespaces(&["acme", "beta"]), &[active("github", 7, &["github", "ping"])]).unwrap();
        for namespace in ["acme", "beta"] {
            let open = table.find(&format!("/in/{namespace}/ping")).unwrap();
            assert_eq!((open.namespace.as_str(), open.generation.0), (namespace, 7));
        }
        assert!(table.find("/in/other/ping").is_none());
    }

    // ADM-4
    #[test]
    fn an_address_has_one_spelling() {
        let table = RouteTable::empty();
        table.replace(&namespaces(&["acme"]), &[active("github", 1, &["github"])]).unwrap();
        assert!(table.find("/in/acme/github").is_some());
        for wrong in [
            "",
            "/",
            "/in",
            "/in/",
            "/in/acme",
            "/in/acme/",
            "/in/acme/github/",
            "//in/acme/github",
            "/in//acme/github",
            "/in/acme//github",
            "/in/acme/github/x",
            "/in/acme%2Fgithub",
            "/in/acme/GitHub",
            "/in/acme/./github",
            "in/acme/github",
            "*",
            "/in/acme/git%68ub",
        ] {
            assert!(table.find(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn replacing_closes_what_is_not_named_and_clones_see_it() {
        let table = RouteTable::empty();
        let seen_elsewhere = table.clone();
        table.replace(&namespaces(&["acme"]), &[active("github", 1, &["old", "kept"])]).unwrap();
        table.replace(&namespaces(&["acme"]), &[active("github", 2, &["kept", "new"])]).unwrap();
        assert!(seen_elsewhere.find("/in/acme/old").is_none());
        assert_eq!(seen_elsewhere.find("/in/acme/kept").unwrap().generation, GenerationNumber(2));
        assert!(seen_elsewhere.find("/in/acme/new").is_some());
    }

    #[test]
    fn two_packs_with_one_route_are_named_and_nothing_changes() {
        let table = RouteTable::empty();
        table.replace(&namespaces(&["acme"]), &[active("github", 1, &["hooks"])]).unwrap();
        let conflict = table
            .replace(&namespaces(&[]), &[active("github", 1, &["hooks"]), active("stripe", 1, &["other", "hooks"])])
            .unwrap_err();
        let expected =
            "packs `github` and `stripe` both declare the route `hooks`: rename one, or serve only one of them";
        assert_eq!(conflict.to_string(), expected);
        assert!(table.find("/in/acme/hooks").is_some() && table.find("/in/acme/other").is_none());
    }
}
