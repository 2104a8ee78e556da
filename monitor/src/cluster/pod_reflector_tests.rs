use super::*;

const POD: &str = r#"{"kind": "Pod", "unknown": {"x": [1]}, "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "resourceVersion": "7",
    "managedFields": [{"manager": "x"}], "annotations": {"kubernetes.io/config.source": "api", "example.com/keep": "true", "other": "long"},
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "controller": true, "uid": "o"}], "deletionTimestamp": null},
    "spec": {"nodeName": "n", "priority": 5, "containers": [{"name": "c", "image": "i", "resources": {"requests": {"memory": "1Gi"}}}]},
    "status": {"phase": "Running", "conditions": [{"type": "Ready"}], "qosClass": "Burstable"}}"#;

#[test]
fn a_pod_keeps_the_needed_fields() {
    let wire: Wire = serde_json::from_str(POD).unwrap();
    let (pod, version) = wire.pod(&["example.com/keep".to_owned()]);
    assert_eq!((pod.full_name().as_str(), version.as_str(), pod.priority()), ("shop/web", "7", 5));
    assert_eq!(pod.annotation("example.com/keep"), Some("true"));
    // A later configuration may name this annotation.
    assert_eq!((pod.annotation("other"), pod.metadata.annotations.len()), (Some("long"), 2));
    assert!(pod.is_of_daemon_set() && pod.metadata.deletion.is_none());
}

#[test]
fn a_pod_is_read_as_from_a_file() {
    let wire: Wire = serde_json::from_str(POD).unwrap();
    assert_eq!(wire.pod(&[]).0, serde_json::from_str::<Pod>(POD).unwrap().without_forged_source());
}

#[test]
fn an_unreadable_pod_keeps_its_identity() {
    let text = r#"{"metadata": {"uid": "u-1", "resourceVersion": "9"}, "spec": {"priority": "high"}}"#;
    assert!(serde_json::from_str::<Wire>(text).is_err());
    assert_eq!(identity(text), Some(("u-1".to_owned(), "9".to_owned())));
    assert_eq!(identity("{}"), None);
}

#[test]
fn annotation_keys_are_read_from_rules() {
    let mut options = KubernetesOptions::default();
    options.protect.annotations = vec!["a.b/c".to_owned(), "d=e=f".to_owned()];
    assert_eq!(keys(&options), ["a.b/c", "d"]);
}

#[test]
fn unreadable_fields_are_left_out() {
    let text = POD.replace(
        r#""nodeName": "n","#,
        r#""nodeName": "n", "volumes": [{"name": "a.b", "emptyDir": {"sizeLimit": "1e100"}}],"#,
    );
    let text = text.replace(r#"{"memory": "1Gi"}"#, r#"{"example.com/x": "1e100", "memory": "1Gi"}"#);
    assert!(serde_json::from_str::<Wire>(&text).is_err());
    let (wire, reason) = lenient_json::read::<Wire>(text.as_bytes()).unwrap();
    assert!(reason.contains("spec."), "{reason}");
    let (pod, _) = wire.pod(&[]);
    let whole = serde_json::from_str::<Wire>(POD).unwrap().pod(&[]).0;
    assert_eq!((&pod.metadata, &pod.spec.containers), (&whole.metadata, &whole.spec.containers));
    assert!(pod.spec.volumes[0].empty_dir.is_some());
    // With many unreadable fields identity and priority are kept.
    let odd = vec![r#"{"emptyDir": {"sizeLimit": "x"}}"#; 1000].join(",");
    let text = POD.replace(r#""nodeName": "n","#, &format!(r#""nodeName": "n", "volumes": [{odd}],"#));
    let (wire, _) = lenient_json::read::<Wire>(text.as_bytes()).unwrap();
    let (pod, _) = wire.pod(&[]);
    assert_eq!((&pod.metadata, pod.priority(), pod.spec.volumes.len()), (&whole.metadata, 5, 0));
    assert!(lenient_json::read::<Wire>(b"[]").is_err());
}
