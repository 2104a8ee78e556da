//! Authentication, and authorization by RBAC: roles and bindings are objects like all others.

use std::collections::BTreeMap;

use http::header::AUTHORIZATION;
use http::{HeaderMap, Method};
use serde_json::Value;

use crate::answer::Failure;
use crate::object::text;
use crate::resource::{self, Resource};
use crate::route::Target;
use crate::store::{Key, Store};

/// The administrator's token.
pub const ADMIN_TOKEN: &str = "test-admin";
const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";

/// The user of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    /// The UID, or empty if the user has none.
    pub uid: String,
    pub groups: Vec<String>,
}

impl User {
    #[must_use]
    pub fn new(name: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().copied().chain([AUTHENTICATED]).map(str::to_owned).collect();
        Self { name: name.to_owned(), uid: String::new(), groups }
    }

    #[must_use]
    pub fn service_account(namespace: &str, name: &str, uid: &str) -> Self {
        let of_namespace = format!("system:serviceaccounts:{namespace}");
        let mut user = Self::new(
            &format!("system:serviceaccount:{namespace}:{name}"),
            &["system:serviceaccounts", of_namespace.as_str()],
        );
        uid.clone_into(&mut user.uid);
        user
    }

    fn anonymous() -> Self {
        Self {
            name: "system:anonymous".to_owned(),
            uid: String::new(),
            groups: vec!["system:unauthenticated".to_owned()],
        }
    }

    fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|own| own == group)
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Wish<'wish> {
    pub verb: &'wish str,
    pub group: &'wish str,
    pub plural: &'wish str,
    pub part: &'wish str,
    pub namespace: &'wish str,
    pub name: &'wish str,
}

impl Wish<'_> {
    fn full(&self) -> String {
        if self.part.is_empty() { self.plural.to_owned() } else { format!("{}/{}", self.plural, self.part) }
    }

    /// Returns the server's text for a refusal.
    #[must_use]
    pub fn refusal(&self, user: &User) -> String {
        let Self { verb, group, namespace, .. } = self;
        let scope = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {namespace:?}")
        };
        format!("User {:?} cannot {verb} resource {:?} in API group {group:?} {scope}", user.name, self.full())
    }
}

/// The valid tokens.
#[derive(Debug)]
pub struct Access {
    tokens: BTreeMap<String, User>,
}

impl Default for Access {
    fn default() -> Self {
        let admin = User::new("test-admin", &[MASTERS]);
        Self { tokens: BTreeMap::from([(ADMIN_TOKEN.to_owned(), admin)]) }
    }
}

impl Access {
    /// Adds a token.
    pub fn add_token(&mut self, token: &str, user: User) {
        self.tokens.insert(token.to_owned(), user);
    }

    /// Returns the user of a token.
    #[must_use]
    pub fn user_of(&self, token: &str) -> Option<&User> {
        self.tokens.get(token)
    }

    /// Returns the user of a request; without a token it is anonymous, and an invalid token is refused.
    pub fn authenticate(&self, headers: &HeaderMap) -> Result<User, Failure> {
        let Some(header) = headers.get(AUTHORIZATION) else { return Ok(User::anonymous()) };
        let token = header.to_str().ok().and_then(|header| header.strip_prefix("Bearer "));
        token.and_then(|token| self.user_of(token.trim())).cloned().ok_or_else(Failure::unauthorized)
    }

    /// Refuses requests for objects without permission.
    pub fn authorize(&self, store: &Store, user: &User, verb: &str, target: &Target) -> Result<(), Failure> {
        let Target { resource, namespace, name, part } = target;
        let wish = Wish { verb, group: resource.group, plural: resource.plural, part, namespace, name };
        if allows(store, user, &wish) {
            return Ok(());
        }
        Err(Failure::forbidden(resource, name, &wish.refusal(user)))
    }

    /// Refuses requests for other paths without permission.
    pub fn authorize_path(&self, store: &Store, user: &User, method: &Method, path: &str) -> Result<(), Failure> {
        let public = ["/healthz", "/livez", "/readyz", "/version"].iter().any(|prefix| path.starts_with(prefix));
        let discovery = ["/api", "/apis", "/openapi"].iter().any(|prefix| path.starts_with(prefix));
        if public || user.is_in(MASTERS) || (discovery && user.is_in(AUTHENTICATED)) {
            return Ok(());
        }
        let verb = method.as_str().to_lowercase();
        let granted = rules(store, user, "").iter().any(|rule| {
            covers(&rule["verbs"], &verb)
                && rule["nonResourceURLs"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .any(|url| url.strip_suffix('*').map_or(url == path, |prefix| path.starts_with(prefix)))
        });
        if granted {
            return Ok(());
        }
        Err(Failure::forbidden_path(format!("User {:?} cannot {verb} path {path:?}", user.name)))
    }
}

/// Returns whether RBAC grants the request.
#[must_use]
pub fn allows(store: &Store, user: &User, wish: &Wish<'_>) -> bool {
    // Every user may review its own permissions.
    if user.is_in(MASTERS) || (wish.plural.starts_with("selfsubject") && user.is_in(AUTHENTICATED)) {
        return true;
    }
    rules(store, user, wish.namespace).iter().any(|rule| {
        let names = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
        let any_part = format!("*/{}", wish.part);
        covers(&rule["verbs"], wish.verb)
            && covers(&rule["apiGroups"], wish.group)
            && (covers(&rule["resources"], &wish.full())
                || (!wish.part.is_empty() && covers(&rule["resources"], &any_part)))
            && names.is_none_or(|names| names.iter().any(|name| name == wish.name))
    })
}

fn covers(list: &Value, wanted: &str) -> bool {
    list.as_array().into_iter().flatten().any(|item| item == "*" || item == wanted)
}

/// Returns all rules for a user in a namespace.
fn rules(store: &Store, user: &User, namespace: &str) -> Vec<Value> {
    let mut rules = Vec::new();
    let mut collect = |bindings: &str, within: &str| {
        let Some(bindings) = resource::named(bindings) else { return };
        for (key, binding) in store.list(bindings, within) {
            let subjects = binding["subjects"].as_array().into_iter().flatten();
            if subjects.into_iter().any(|subject| is_meant(subject, user)) {
                rules.extend(role(store, &binding["roleRef"], &key.namespace));
            }
        }
    };
    collect("clusterrolebindings", "");
    if !namespace.is_empty() {
        collect("rolebindings", namespace);
    }
    rules
}

fn role(store: &Store, reference: &Value, namespace: &str) -> Vec<Value> {
    let found: Option<&Resource> = match text(reference, "/kind") {
        "ClusterRole" => resource::named("clusterroles"),
        "Role" => resource::named("roles"),
        _ => None,
    };
    let Some(kind) = found else { return Vec::new() };
    let within = if kind.namespaced { namespace } else { "" };
    let role = store.get(&Key::new(kind, within, text(reference, "/name")));
    role.and_then(|role| role["rules"].as_array().cloned()).unwrap_or_default()
}

fn is_meant(subject: &Value, user: &User) -> bool {
    let name = text(subject, "/name");
    match text(subject, "/kind") {
        "User" => user.name == name,
        "Group" => user.is_in(name),
        "ServiceAccount" => user.name == format!("system:serviceaccount:{}:{name}", text(subject, "/namespace")),
        _ => false,
    }
}
