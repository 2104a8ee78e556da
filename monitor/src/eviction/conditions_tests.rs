use super::*;

#[test]
fn every_text_is_the_kubelets() {
    let text = |condition: NodeCondition, status| {
        let ConditionText { reason, message, event, .. } = condition.text(status);
        format!("{} {reason} / {message} / {event}", condition.as_str())
    };
    let texts: Vec<String> =
        NodeCondition::ALL.into_iter().flat_map(|it| [true, false].map(|status| text(it, status))).collect();
    let expected = [
        "MemoryPressure KubeletHasInsufficientMemory / kubelet has insufficient memory available / NodeHasInsufficientMemory",
        "MemoryPressure KubeletHasSufficientMemory / kubelet has sufficient memory available / NodeHasSufficientMemory",
        "DiskPressure KubeletHasDiskPressure / kubelet has disk pressure / NodeHasDiskPressure",
        "DiskPressure KubeletHasNoDiskPressure / kubelet has no disk pressure / NodeHasNoDiskPressure",
        "PIDPressure KubeletHasInsufficientPID / kubelet has insufficient PID available / NodeHasInsufficientPID",
        "PIDPressure KubeletHasSufficientPID / kubelet has sufficient PID available / NodeHasSufficientPID",
    ];
    assert_eq!(texts, expected);
    let taints = NodeCondition::ALL.map(NodeCondition::taint_key);
    let expected = ["memory", "disk", "pid"].map(|what| format!("node.kubernetes.io/{what}-pressure"));
    assert_eq!(taints.map(str::to_owned), expected);
}

#[test]
fn the_node_event_names_the_resource() {
    assert_eq!(reclaim_message(Resource::EphemeralStorage), "Attempting to reclaim ephemeral-storage");
}
