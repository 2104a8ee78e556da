use super::*;
use crate::units::{Bytes, CgroupId};
use crate::workloads::{PodSpecs, PodUid};

const DISK: DeviceId = DeviceId(0x0080_0001);
const OTHER: DeviceId = DeviceId(0x0080_0002);

fn usage(logs: DeviceId) -> Usage {
    let part = |part, device, bytes, inodes| PartUsage {
        part,
        device,
        held: Held { bytes: Bytes(bytes), inodes },
        ranked: Held { bytes: Bytes(bytes), inodes },
        at: Monotonic(7),
        source: Source::Walk,
        is_complete: true,
    };
    let name = |name: &str| name.to_owned();
    let parts = vec![
        part(Part::WritableLayer { container: name("id") }, DISK, 1000, 4),
        part(Part::Logs { container: name("app") }, logs, 200, 3),
        part(Part::Volume { name: name("cache") }, DISK, 30, 2),
        part(Part::MemoryVolume { name: name("shm") }, DISK, 5000, 9),
        part(Part::PodFiles, DISK, 4, 1),
    ];
    Usage::new(CgroupId(1), parts, Monotonic(9), true)
}

const fn taken(bytes: u64, inodes: u64) -> Taken {
    Taken { bytes: Bytes(bytes), inodes }
}

#[test]
fn parts_are_summed_up_as_in_the_usage_table() {
    let expected = DiskUsage { layers: taken(1000, 4), logs: taken(200, 3), volumes: taken(34, 3), at: Monotonic(7) };
    assert_eq!(disk_usage(&usage(OTHER), Roles::default(), |part| part.held), expected);
    let roles = Roles { node: Some(DISK), container: Some(DISK) };
    assert_eq!(disk_usage(&usage(DISK), roles, |part| part.held), expected);
}

#[test]
fn parts_on_another_disk_do_not_count() {
    let (node, container) = (Some(DISK), Some(DISK));
    let logs_elsewhere = disk_usage(&usage(OTHER), Roles { node, container }, |part| part.held);
    assert_eq!((logs_elsewhere.logs, logs_elsewhere.volumes), (taken(0, 0), taken(34, 3)));
    let layers_elsewhere = disk_usage(&usage(DISK), Roles { node, container: Some(OTHER) }, |part| part.held);
    assert_eq!((layers_elsewhere.layers, layers_elsewhere.logs), (taken(0, 0), taken(200, 3)));
}

#[test]
fn device_numbers_are_known_for_plain_filesystems_only() {
    let of = |text: &str, kind: &str| {
        let path = std::path::PathBuf::from("/");
        device(&Place { path: path.clone(), device: text.to_owned(), mount_point: path, kind: kind.to_owned() })
    };
    assert_eq!(of("8:1", "ext4"), Some(DISK));
    assert_eq!(of("8:1", "ext4").unwrap().to_string(), "8:1");
    for (text, kind) in [("0:41", "btrfs"), ("0:41", "overlay"), ("nonsense", "ext4"), ("8:x", "xfs")] {
        assert_eq!(of(text, kind), None, "{text} {kind}");
    }
}

#[test]
fn size_limits_and_ephemeral_storage_are_limits() {
    let pods = r#"{"kind": "List", "items": [
        {"metadata": {"uid": "size"}, "spec": {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1Mi"}}]}},
        {"metadata": {"uid": "limit"},
         "spec": {"containers": [{"name": "c", "resources": {"limits": {"ephemeral-storage": "1Mi"}}}]}},
        {"metadata": {"uid": "none"}, "spec": {"volumes": [{"name": "tmp", "emptyDir": {}}]}}]}"#;
    let specs = PodSpecs::parse(pods).unwrap();
    let limited = |uid: &str| is_limited(specs.find(&PodUid(uid.to_owned())).unwrap());
    assert_eq!(["size", "limit", "none"].map(limited), [true, true, false]);
}

#[test]
fn usage_is_reported_by_source() {
    let mut usage = usage(DISK);
    usage.parts[2].source = Source::Quota;
    usage.parts[2].at = Monotonic(2_000_000_007);
    let by_workload = [(Arc::from("w"), Arc::new(usage))].into();
    let found = report(&Usages { by_workload, ..Usages::default() }, Monotonic(3_000_000_007)).kept;
    let shown: Vec<_> = found.iter().map(|it| (it.source, it.bytes.0, it.inodes, it.age.as_secs())).collect();
    assert_eq!(shown, [("walk", 1204, 8, 3), ("quota", 30, 2, 1)], "volumes in memory do not count");
}

#[test]
fn inodes_that_a_workload_made_count_after_an_incomplete_measurement() {
    let taken = |inodes| Taken { bytes: Bytes(1), inodes };
    let usage = DiskUsage { layers: taken(10), logs: taken(2), volumes: taken(30), at: Monotonic(7) };
    let single = Roles { node: Some(DISK), container: Some(DISK) };
    let split = Roles { node: Some(DISK), container: Some(OTHER) };
    let counts = |roles, on_disk, elsewhere| {
        let usage = at_least_made(usage, roles, |device| if device == DISK { on_disk } else { elsewhere });
        [usage.layers, usage.logs, usage.volumes].map(|taken| taken.inodes)
    };
    assert_eq!(counts(single, 1000, 0), [10, 2, 988]);
    assert_eq!(counts(single, 42, 0), [10, 2, 30], "everything was seen");
    assert_eq!(counts(split, 100, 50), [50, 2, 98]);
    assert_eq!(counts(split, 0, 0), [10, 2, 30], "there are no counters");
    assert_eq!(counts(Roles::default(), 1000, 1000), [10, 2, 30], "the filesystem is unknown");
}

#[test]
fn only_quotas_that_a_pod_cannot_change_count() {
    let of = |host_users: Option<bool>| {
        let mut pod = Pod::default();
        pod.spec.host_users = host_users;
        pod
    };
    for (quotas, pod, expected) in [
        (ProjectQuotas::Isolated, Some(of(Some(false))), true),
        (ProjectQuotas::Isolated, Some(of(Some(true))), false),
        (ProjectQuotas::Isolated, Some(of(None)), false),
        (ProjectQuotas::Isolated, None, false),
        (ProjectQuotas::Trusted, None, true),
        (ProjectQuotas::Off, Some(of(Some(false))), false),
    ] {
        assert_eq!(trusts_quotas(quotas, pod.as_ref()), expected, "{quotas:?} {pod:?}");
    }
}
