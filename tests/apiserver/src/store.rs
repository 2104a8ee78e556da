//! The objects and their history, as etcd and the watch cache in the real server.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::answer::Failure;
use crate::resource::Resource;

/// Changes kept; a watch from an earlier version gets 410.
const HISTORY: usize = 8192;

/// The key of an object. Keys sort as lists do.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub plural: &'static str,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    pub name: String,
}

impl Key {
    #[must_use]
    pub fn new(resource: &Resource, namespace: &str, name: &str) -> Self {
        Self { plural: resource.plural, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

#[derive(Debug, Clone)]
pub struct Change {
    /// The resource version.
    pub revision: u64,
    pub key: Key,
    /// The object before the change.
    pub before: Option<Arc<Value>>,
    /// The object after the change; `None` if it was deleted.
    pub after: Option<Arc<Value>>,
    /// The deleted object for watches: its last state, with the version of the deletion.
    pub tombstone: Option<Arc<Value>>,
}

/// All objects and their history.
#[derive(Debug)]
pub struct Store {
    revision: u64,
    compacted: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Change>,
}

impl Default for Store {
    fn default() -> Self {
        Self { revision: 1, compacted: 0, objects: BTreeMap::new(), history: VecDeque::new() }
    }
}

impl Store {
    /// Returns the version of the newest write.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns the version up to which the history is forgotten.
    #[must_use]
    pub const fn compacted(&self) -> u64 {
        self.compacted
    }

    /// Forgets the history up to a version.
    pub fn compact(&mut self, revision: u64) {
        self.compacted = self.compacted.max(revision.min(self.revision));
        self.history.retain(|change| change.revision > revision);
    }

    #[must_use]
    pub fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.objects.get(key).cloned()
    }

    /// Lists the objects of a resource, of one namespace or of all.
    pub fn list<'store>(
        &'store self,
        resource: &Resource,
        namespace: &str,
    ) -> impl Iterator<Item = (&'store Key, &'store Arc<Value>)> + use<'store> {
        let start = Key::new(resource, namespace, "");
        let (plural, only) = (resource.plural, namespace.to_owned());
        self.objects
            .range(start..)
            .take_while(move |(key, _)| key.plural == plural && (only.is_empty() || key.namespace == only))
    }

    /// Writes an object; returns it with its new version.
    pub fn put(&mut self, key: Key, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let object = Arc::new(object);
        let before = self.objects.insert(key.clone(), Arc::clone(&object));
        let after = Some(Arc::clone(&object));
        self.remember(Change { revision: self.revision, key, before, after, tombstone: None });
        object
    }

    /// Deletes an object; `last` is its state for watches.
    pub fn remove(&mut self, key: &Key, mut last: Value) -> Arc<Value> {
        self.revision += 1;
        last["metadata"]["resourceVersion"] = json!(self.revision.to_string());
        let last = Arc::new(last);
        let before = self.objects.remove(key);
        let tombstone = Some(Arc::clone(&last));
        self.remember(Change { revision: self.revision, key: key.clone(), before, after: None, tombstone });
        last
    }

    fn remember(&mut self, change: Change) {
        if self.history.len() >= HISTORY
            && let Some(oldest) = self.history.pop_front()
        {
            self.compacted = oldest.revision;
        }
        self.history.push_back(change);
    }

    /// Returns the changes after a version; refused if that is forgotten.
    pub fn since(&self, revision: u64) -> Result<impl Iterator<Item = &Change>, Failure> {
        if revision < self.compacted {
            return Err(Failure::expired(format!("too old resource version: {revision} ({})", self.compacted)));
        }
        let first = self.history.partition_point(|change| change.revision <= revision);
        Ok(self.history.range(first..))
    }

    /// Returns the objects at an earlier version, with later changes undone.
    pub fn list_at(
        &self,
        resource: &Resource,
        namespace: &str,
        revision: u64,
    ) -> Result<BTreeMap<Key, Arc<Value>>, Failure> {
        let mut objects: BTreeMap<Key, Arc<Value>> =
            self.list(resource, namespace).map(|(key, object)| (key.clone(), Arc::clone(object))).collect();
        let since: Vec<&Change> = self.since(revision)?.collect();
        for change in since.into_iter().rev() {
            if change.key.plural != resource.plural || !(namespace.is_empty() || change.key.namespace == namespace) {
                continue;
            }
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), Arc::clone(before)),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }
}
