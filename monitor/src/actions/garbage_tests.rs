use super::*;
use crate::eviction::{SignalValue, arm};
use crate::units::Bytes;

#[test]
fn garbage_depends_on_signal_and_layout() {
    assert_eq!(garbage_for(Signal::PidAvailable, Layout::Single, Quirks::NONE), []);
    assert_eq!(
        garbage_for(Signal::NodeFsAvailable, Layout::Single, Quirks::NONE),
        [Garbage::Containers, Garbage::Images]
    );
    assert_eq!(garbage_for(Signal::ImageFsInodesFree, Layout::SplitImageFs, Quirks::NONE), [Garbage::Images]);
}

#[test]
fn enough_is_the_threshold_and_its_minimum_reclaim() {
    let text = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n\
                evictionHard: {nodefs.available: 100Mi}\nevictionMinimumReclaim: {nodefs.available: 50Mi}\n";
    let policy = crate::config::MonitorConfig::parse("m.yaml", text).unwrap().config.policy;
    let armed = arm(&policy, Layout::Single);
    let mut left = vec![200, 150, 149, 99];
    let mut is_enough = until_enough(policy, armed, move || {
        let available = Bytes::from_mib(left.pop().unwrap());
        Observation { signals: vec![SignalValue::now(Signal::NodeFsAvailable, available, Bytes::from_gib(1))] }
    });
    let measured: Vec<bool> = (0..4).map(|_| is_enough()).collect();
    assert_eq!(measured, [false, false, true, true]);
}
