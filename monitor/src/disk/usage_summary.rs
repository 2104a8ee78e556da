//! Disk usage in the format of the kubelet's Summary API, which ranking and the limits of local storage read.

use std::collections::BTreeMap;

use super::measured_usage::{Held, Part, Usage};
use crate::workloads::kubelet_summary::{ContainerStats, FsUsage, PodReference, PodStats, VolumeStats};

impl Usage {
    /// Returns the disk part of a pod's statistics. `name_of` maps the runtime's id of a container to its name. A container
    /// without a name is counted under its id. A lower bound is used as the value, because it exceeds a limit below it in any
    /// case.
    pub fn statistics(&self, uid: &str, name_of: impl Fn(&str) -> Option<String>) -> PodStats {
        let mut containers: BTreeMap<String, ContainerStats> = BTreeMap::new();
        let mut volumes = Vec::new();
        for measured in &self.parts {
            let held = measured.held;
            match &measured.part {
                Part::WritableLayer { container } => {
                    let name = name_of(container).unwrap_or_else(|| container.clone());
                    let rootfs = &mut containers.entry(name).or_default().rootfs;
                    *rootfs = Some(sum(*rootfs, held));
                }
                Part::Logs { container } => {
                    let logs = &mut containers.entry(container.clone()).or_default().logs;
                    *logs = Some(sum(*logs, held));
                }
                Part::Volume { name } | Part::MemoryVolume { name } => volumes.push(VolumeStats {
                    name: name.clone(),
                    used_bytes: Some(held.bytes.0),
                    inodes_used: Some(held.inodes),
                }),
                Part::PodFiles => {}
            }
        }
        let named = |(name, stats)| ContainerStats { name, ..stats };
        PodStats {
            pod_ref: PodReference { uid: uid.to_owned() },
            containers: containers.into_iter().map(named).collect(),
            volumes,
            ephemeral_storage: Some(sum(None, Held { bytes: self.bytes, inodes: self.inodes })),
            ..PodStats::default()
        }
    }
}

/// Sums the layers of a container. A restarted container has two until the first is garbage collected.
fn sum(known: Option<FsUsage>, held: Held) -> FsUsage {
    let known = known.unwrap_or_default();
    FsUsage {
        used_bytes: Some(known.used_bytes.unwrap_or(0).saturating_add(held.bytes.0)),
        inodes_used: Some(known.inodes_used.unwrap_or(0).saturating_add(held.inodes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Policy;
    use crate::disk::{PartUsage, Source};
    use crate::eviction::Layout;
    use crate::eviction::local_storage::evictions;
    use crate::eviction::usage::{ActivePod, usage};
    use crate::kernel::DeviceId;
    use crate::units::{Bytes, CgroupId, Monotonic, Signal};
    use crate::workloads::Pod;

    const MIB: u64 = 1 << 20;

    fn measured() -> Usage {
        let text = |text: &str| text.to_owned();
        let part = |part, mib: u64, inodes| PartUsage {
            part,
            device: DeviceId(1),
            held: Held { bytes: Bytes::from_mib(mib), inodes },
            ranked: Held { bytes: Bytes::from_mib(mib), inodes },
            at: Monotonic(0),
            source: Source::Walk,
            is_complete: true,
        };
        let parts = vec![
            part(Part::WritableLayer { container: text("1d") }, 30, 3),
            part(Part::WritableLayer { container: text("2d") }, 5, 1),
            part(Part::Logs { container: text("app") }, 10, 2),
            part(Part::Volume { name: text("cache") }, 200, 20),
            part(Part::MemoryVolume { name: text("shm") }, 1000, 5),
            part(Part::PodFiles, 1, 4),
        ];
        Usage::new(CgroupId(1), parts, Monotonic(0), true)
    }

    fn statistics() -> PodStats {
        measured().statistics("u", |id| (id == "1d").then(|| "app".to_owned()))
    }

    fn pod(spec: &str) -> Pod {
        let json = format!(r#"{{"metadata":{{"namespace":"n","name":"p","uid":"u"}},"spec":{spec}}}"#);
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn containers_have_their_known_names() {
        let stats = statistics();
        let bytes = |fs: Option<FsUsage>| fs.and_then(|fs| fs.used_bytes).map(|bytes| bytes / MIB);
        let shown: Vec<_> =
            stats.containers.iter().map(|it| (it.name.as_str(), bytes(it.rootfs), bytes(it.logs))).collect();
        assert_eq!(shown, [("2d", Some(5), None), ("app", Some(30), Some(10))]);
        assert_eq!(bytes(stats.ephemeral_storage), Some(246), "volumes in memory do not count");
        assert_eq!(stats.pod_ref.uid, "u");
    }

    #[test]
    fn the_ranking_counts_the_signals_filesystem() {
        let pod = pod(r#"{"volumes":[{"name":"cache","emptyDir":{}},{"name":"shm","emptyDir":{"medium":"Memory"}}]}"#);
        let used = |signal, layout| usage(signal, layout, &pod, &statistics()).bytes().0 / MIB;
        assert_eq!(used(Signal::NodeFsAvailable, Layout::Single), 245);
        assert_eq!(used(Signal::NodeFsAvailable, Layout::DedicatedImageFs), 210);
        assert_eq!(used(Signal::ImageFsAvailable, Layout::DedicatedImageFs), 35);
        let inodes = usage(Signal::NodeFsInodesFree, Layout::Single, &pod, &statistics());
        assert_eq!(inodes.units(), 26);
    }

    #[test]
    fn limits_of_local_storage_apply_to_it() {
        for (spec, message) in [
            (r#"{"volumes":[{"name":"cache","emptyDir":{"sizeLimit":"199Mi"}}]}"#, Some("EmptyDir volume \"cache\"")),
            (r#"{"volumes":[{"name":"cache","emptyDir":{"sizeLimit":"200Mi"}}]}"#, None),
            (r#"{"volumes":[{"name":"shm","emptyDir":{"medium":"Memory","sizeLimit":"1Gi"}}]}"#, None),
            (r#"{"volumes":[{"name":"shm","emptyDir":{"medium":"Memory","sizeLimit":"999Mi"}}]}"#, Some("\"shm\"")),
            (
                r#"{"containers":[{"name":"app","resources":{"limits":{"ephemeral-storage":"39Mi"}}}]}"#,
                Some("Pod ephemeral local storage usage"),
            ),
            (r#"{"containers":[{"name":"app","resources":{"limits":{"ephemeral-storage":"246Mi"}}}]}"#, None),
        ] {
            let (pod, stats) = (pod(spec), statistics());
            let active = [ActivePod { pod: &pod, stats: Some(&stats) }];
            let evicted = evictions(&Policy::default(), Layout::Single, &active);
            match message {
                Some(message) => assert!(evicted[0].message.contains(message), "{spec}: {}", evicted[0].message),
                None => assert!(evicted.is_empty(), "{spec}: {evicted:?}"),
            }
        }
    }
}
