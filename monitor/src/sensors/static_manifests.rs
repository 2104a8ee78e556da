//! The kubelet's static pods, by the manifests on the root disk. They are read before a decision asks for them: the disk may be slow just then.

use std::collections::HashSet;
use std::path::Path;

use crate::config::read_limited;
use crate::workloads::PodUid;

/// The kubelet's usual directory of static pods, below the root directory.
const DIRECTORY: &str = "etc/kubernetes/manifests";
const MOST_MANIFESTS: usize = 64;
const LARGEST_MANIFEST: u64 = 1 << 20;
/// A UID is no longer than this.
const LONGEST_UID: usize = 64;

#[derive(Debug)]
pub(super) struct StaticManifests {
    /// Every word of the manifests that may be a UID.
    words: HashSet<String>,
}

impl StaticManifests {
    /// Reads the manifests of this machine.
    pub(super) fn read(proc_root: &Path) -> Self {
        Self::in_directory(&proc_root.join("1/root").join(DIRECTORY))
    }

    fn in_directory(directory: &Path) -> Self {
        let manifests = std::fs::read_dir(directory).into_iter().flatten().flatten().take(MOST_MANIFESTS);
        let text = |path| std::fs::File::open(path).and_then(|file| read_limited(file, LARGEST_MANIFEST));
        let texts = manifests.filter_map(|entry| text(entry.path()).ok());
        let mut words = HashSet::new();
        for text in texts {
            let text = String::from_utf8_lossy(&text);
            let all = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-');
            words.extend(all.filter(|word| may_be_uid(word)).map(str::to_owned));
        }
        Self { words }
    }

    /// Returns whether a manifest names this UID. Without a UID in the manifest the kubelet takes a hash, which the cgroup shows.
    pub(super) fn has(&self, uid: &PodUid) -> bool {
        self.words.contains(&uid.0)
    }
}

fn may_be_uid(word: &str) -> bool {
    word.len() <= LONGEST_UID && word.bytes().any(|letter| letter.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_with_the_uid_makes_a_pod_static() {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("1/root").join(DIRECTORY);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("etcd.yaml"), "metadata:\n  name: etcd\n  uid: 1-2-3\n").unwrap();
        std::fs::write(directory.join("proxy.json"), r#"{"metadata":{"uid":"4-5"}}"#).unwrap();
        let manifests = StaticManifests::read(root.path());
        let has = |uid: &str| manifests.has(&PodUid(uid.to_owned()));
        assert!(has("1-2-3") && has("4-5") && !has("1-2-4"));
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(has("1-2-3"), "the decision reads no disk");
        assert!(StaticManifests::read(root.path()).words.is_empty());
    }
}
