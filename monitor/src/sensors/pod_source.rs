//! The pods of this node: from the API server, or from a file.

use std::sync::Arc;

use crate::workloads::{Pod, PodSpecs, PodUid, PodsFile};

/// The most departed pods that are kept for their names.
const DEPARTED: usize = 64;

#[derive(Debug)]
pub struct PodSource {
    file: Option<PodsFile>,
    specs: Arc<PodSpecs>,
    /// The last pods that `specs` has lost, newest last.
    departed: Arc<PodSpecs>,
    pub(super) is_from_cluster: bool,
    /// The API server has listed the pods since the agent started.
    pub(super) is_listed: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum PodsRead {
    /// The pods of the file are in force now.
    Replaced,
    /// The API server's pods are in force, whatever the file contains.
    Ignored,
    /// The file cannot be used, for this reason. The pods known before stay in force.
    Failed(String),
}

impl PodSource {
    pub fn new(file: Option<PodsFile>) -> Self {
        Self { file, specs: Arc::default(), departed: Arc::default(), is_from_cluster: false, is_listed: false }
    }

    pub fn specs(&self) -> &Arc<PodSpecs> {
        &self.specs
    }

    /// Returns the last pods that the source has dropped: records still name them.
    pub const fn departed(&self) -> &Arc<PodSpecs> {
        &self.departed
    }

    fn replace(&mut self, specs: Arc<PodSpecs>) {
        if Arc::ptr_eq(&self.specs, &specs) {
            return;
        }
        let is_gone = |pod: &&Arc<Pod>| specs.find(&PodUid(pod.metadata.uid.clone())).is_none();
        let gone: Vec<&Arc<Pod>> = self.specs.pods().iter().filter(is_gone).collect();
        if !gone.is_empty() {
            let all: Vec<&Arc<Pod>> = self.departed.pods().iter().chain(gone).collect();
            self.departed = Arc::new(PodSpecs::new(all.into_iter().rev().take(DEPARTED).rev().cloned()));
        }
        self.specs = specs;
    }

    /// Returns whether the API server has listed the pods since the agent started.
    pub const fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Takes the pods that an earlier agent knew, until the API server or a file supersedes them.
    pub(super) fn remember(&mut self, specs: PodSpecs) {
        self.replace(Arc::new(specs));
    }

    /// Takes the API server's pods, which permanently supersede a file.
    pub(super) fn learn(&mut self, specs: Arc<PodSpecs>) {
        self.replace(specs);
        self.is_from_cluster = true;
    }

    /// Returns whether there are pods, or a file that may contain some.
    pub fn has_any(&self) -> bool {
        self.file.is_some() || !self.specs.pods().is_empty()
    }

    pub(super) fn take_file(&mut self) -> Option<PodsRead> {
        let read = self.file.as_ref()?.take_update()?;
        Some(self.take(read))
    }

    fn take(&mut self, read: Result<PodSpecs, String>) -> PodsRead {
        match read {
            _ if self.is_from_cluster => PodsRead::Ignored,
            Ok(specs) => {
                self.replace(Arc::new(specs));
                PodsRead::Replaced
            }
            Err(reason) => PodsRead::Failed(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::pod::Metadata;

    #[test]
    fn pods_of_the_api_server_supersede_a_file() {
        let mut pods = PodSource::new(None);
        assert!(!pods.has_any());
        let text = r#"{"kind": "List", "items": [{"metadata": {"name": "a", "uid": "u"}}]}"#;
        let specs = || PodSpecs::parse(text).unwrap();
        assert_eq!(pods.take(Err("EIO".to_owned())), PodsRead::Failed("EIO".to_owned()));
        assert_eq!(pods.take(Ok(specs())), PodsRead::Replaced);
        assert!(pods.has_any() && !pods.is_from_cluster);
        pods.remember(PodSpecs::parse(r#"{"kind": "List"}"#).unwrap());
        assert!(!pods.has_any() && !pods.is_from_cluster && !pods.is_listed);
        pods.learn(Arc::default());
        assert_eq!(pods.take(Ok(specs())), PodsRead::Ignored);
        assert!(!pods.has_any() && pods.is_from_cluster);
    }

    #[test]
    fn departed_pods_stay_known_up_to_a_limit() {
        let specs = |numbers: std::ops::Range<usize>| {
            let pod = |number| Pod {
                metadata: Metadata { uid: format!("u{number}"), ..Metadata::default() },
                ..Pod::default()
            };
            Arc::new(PodSpecs::new(numbers.map(pod)))
        };
        let mut pods = PodSource::new(None);
        for numbers in [0..100, 90..101, 90..101] {
            pods.learn(specs(numbers));
        }
        let is_known = |number: usize| pods.departed().find(&PodUid(format!("u{number}"))).is_some();
        assert_eq!([25, 26, 89, 90].map(is_known), [false, true, true, false]);
    }
}
