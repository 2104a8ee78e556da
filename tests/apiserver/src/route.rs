//! Parses paths and queries.

use std::borrow::Cow;

use crate::resource::{self, Resource};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// The objects of a resource.
    Objects(Target),
    /// A resource that is not served, in a group that is.
    NoSuchResource,
    /// A review (`selfsubjectaccessreviews` and others), which is not stored.
    Review(String),
    /// Any other path.
    Other(String),
}

/// The target of a request: a collection, an object, or a subresource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub resource: &'static Resource,
    /// The namespace; empty for all namespaces or a cluster-scoped object.
    pub namespace: String,
    /// The object's name; empty for a collection.
    pub name: String,
    /// The subresource (`status`, `eviction`, `token`); empty for the object itself.
    pub part: String,
}

impl Route {
    #[must_use]
    pub fn of(path: &str) -> Self {
        let pieces: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match pieces.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Self::Other(path.to_owned()),
        };
        if let [plural] = rest
            && plural.ends_with("reviews")
        {
            return Self::Review((*plural).to_owned());
        }
        let served = resource::RESOURCES.iter().any(|resource| resource.group == group && resource.version == version);
        if !served {
            return Self::Other(path.to_owned());
        }
        let find = |plural: &str| resource::find(group, version, plural);
        // `namespaces/NAME/status` is a part of a namespace, `namespaces/NAME/pods` are objects in it.
        let target = match rest {
            ["namespaces", namespace, plural, rest @ ..] if find(plural).is_some_and(|found| found.namespaced) => {
                find(plural).and_then(|resource| Target::build(resource, namespace, rest))
            }
            [plural, rest @ ..] => find(plural).and_then(|resource| Target::build(resource, "", rest)),
            [] => None,
        };
        target.map_or(Self::NoSuchResource, Self::Objects)
    }
}

impl Target {
    fn build(resource: &'static Resource, namespace: &str, rest: &[&str]) -> Option<Self> {
        let (name, part) = match rest {
            [] => ("", ""),
            [name] => (*name, ""),
            [name, part] => (*name, *part),
            _ => return None,
        };
        // An object in a namespace needs the namespace in its path. A list of all namespaces does not.
        if resource.namespaced && namespace.is_empty() && !name.is_empty() {
            return None;
        }
        Some(Self { resource, namespace: namespace.to_owned(), name: name.to_owned(), part: part.to_owned() })
    }

    /// Returns the RBAC verb of a request, or `None` if no such request is served.
    #[must_use]
    pub fn verb(&self, method: &str, query: &Query) -> Option<&'static str> {
        Some(match (method, self.name.is_empty()) {
            ("GET", true) if query.on("watch") => "watch",
            ("GET", true) => "list",
            ("GET", false) => "get",
            ("POST", true) => "create",
            ("POST", false) if !self.part.is_empty() => "create",
            ("PUT", false) => "update",
            ("PATCH", false) => "patch",
            ("DELETE", true) => "deletecollection",
            ("DELETE", false) => "delete",
            _ => return None,
        })
    }
}

/// The parameters of a request.
#[derive(Debug, Clone, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part of the URL after the question mark.
    #[must_use]
    pub fn of(query: Option<&str>) -> Self {
        let decoded = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(decoded.map(|(key, value)| (Cow::into_owned(key), Cow::into_owned(value))).collect())
    }

    /// Returns a parameter, unless it is empty.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, value)| name == key && !value.is_empty()).map(|(_, value)| value.as_str())
    }

    /// Returns whether a boolean parameter is true.
    #[must_use]
    pub fn on(&self, key: &str) -> bool {
        matches!(self.get(key), Some("true" | "1"))
    }

    /// Returns a numeric parameter.
    #[must_use]
    pub fn number(&self, key: &str) -> Option<u64> {
        self.get(key).and_then(|value| value.parse().ok())
    }
}
