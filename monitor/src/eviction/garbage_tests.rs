use std::time::Duration;

use super::*;
use crate::config::ThresholdValue;
use crate::eviction::fixtures::kubelet;
use crate::eviction::{SignalValue, arm};
use crate::units::Bytes;

#[test]
fn collectors_depend_on_the_layout() {
    use Collector::{Containers, Images};
    for (signal, single, dedicated, split) in [
        (Signal::MemoryAvailable, &[][..], &[][..], &[][..]),
        (Signal::AllocatableMemoryAvailable, &[], &[], &[]),
        (Signal::PidAvailable, &[], &[], &[]),
        (Signal::NodeFsAvailable, &[Containers, Images], &[], &[Containers]),
        (Signal::NodeFsInodesFree, &[Containers, Images], &[], &[Containers]),
        (Signal::ImageFsAvailable, &[Containers, Images], &[Containers, Images], &[Images]),
        (Signal::ImageFsInodesFree, &[Containers, Images], &[Containers, Images], &[Images]),
        (Signal::ContainerFsAvailable, &[Containers, Images], &[Containers, Images], &[Containers]),
        (Signal::ContainerFsInodesFree, &[Containers, Images], &[Containers, Images], &[Containers]),
    ] {
        assert_eq!(collectors(signal, Layout::Single, Quirks::ALL), single, "{signal} single");
        assert_eq!(collectors(signal, Layout::DedicatedImageFs, Quirks::ALL), dedicated, "{signal} dedicated");
        assert_eq!(collectors(signal, Layout::SplitImageFs, Quirks::ALL), split, "{signal} split");
    }
}

#[test]
fn without_the_quirk_dead_containers_are_garbage_on_nodefs_too() {
    for signal in [Signal::NodeFsAvailable, Signal::NodeFsInodesFree] {
        assert_eq!(collectors(signal, Layout::DedicatedImageFs, Quirks::NONE), [Collector::Containers], "{signal}");
    }
    for signal in Signal::ALL {
        for layout in [Layout::Single, Layout::SplitImageFs] {
            assert_eq!(
                collectors(signal, layout, Quirks::NONE),
                collectors(signal, layout, Quirks::ALL),
                "{signal} {layout:?}"
            );
        }
    }
}

#[test]
fn every_signal_must_exceed_its_minimum_reclaim() {
    let mut policy = kubelet(&[(Signal::NodeFsAvailable, "10", 0), (Signal::MemoryAvailable, "10", 30)]);
    policy.thresholds[0].min_reclaim = Some(ThresholdValue::bytes(Bytes(5)));
    let armed = arm(&policy, Layout::Single);
    assert_eq!(
        policy.thresholds[1].grace_period,
        Duration::from_secs(30),
        "the soft threshold has a grace period that must not count"
    );
    for (disk, memory, kubelet, corrected) in [(15, 10, true, true), (14, 10, false, false), (15, 9, false, true)] {
        let value = |signal, available| SignalValue { signal, available, capacity: 100, at: None };
        let after =
            Observation { signals: vec![value(Signal::NodeFsAvailable, disk), value(Signal::MemoryAvailable, memory)] };
        let mut policy = policy.clone();
        assert_eq!(is_enough(&policy, &armed, &after), kubelet, "{disk} {memory}");
        policy.quirks.set(Quirk::EveryThresholdAfterGarbageCollection, false);
        assert_eq!(is_enough(&policy, &armed, &after), corrected, "{disk} {memory} corrected");
    }
}
