use super::*;

fn tolerations(json: &str) -> Vec<Toleration> {
    serde_json::from_str(json).unwrap()
}

fn taints(texts: &[&str]) -> Vec<Taint> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn fate(json: &str, texts: &[&str]) -> Fate {
    outcome(&tolerations(json), &taints(texts)).fate
}

#[test]
fn an_untolerated_no_schedule_taint_does_not_evict() {
    // The pod tolerates two of three taints. The third does not evict, so the running pod stays, but a new one would not be scheduled.
    let three = taints(&["key1=value1:NoSchedule", "key1=value1:NoExecute", "key2=value2:NoSchedule"]);
    let pod = tolerations(
        r#"[{"key": "key1", "operator": "Equal", "value": "value1", "effect": "NoSchedule"},
            {"key": "key1", "operator": "Equal", "value": "value1", "effect": "NoExecute"}]"#,
    );
    let outcome = outcome(&pod, &three);
    assert_eq!((outcome.fate, outcome.because), (Fate::Stays, None));
    assert_eq!(outcome.kept_away_by, Some(&three[2]));
}

/// The second table of OpenShift's chapter on taints: `PreferNoSchedule` neither evicts nor excludes.
#[test]
fn an_untolerated_preference_only_makes_the_scheduler_avoid_the_node() {
    let prefer = |key: &str| format!(r#"[{{"key": "{key}", "operator": "Exists", "effect": "PreferNoSchedule"}}]"#);
    let hard = r#"[{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]"#.to_owned();
    for (json, texts, kept_away_by, avoided_by) in [
        ("[]".to_owned(), &["k:PreferNoSchedule"][..], None, Some(0)),
        (prefer("k"), &["k:PreferNoSchedule"], None, None),
        (hard, &["k:PreferNoSchedule"], None, Some(0)),
        (r#"[{"operator": "Exists"}]"#.to_owned(), &["k=v:PreferNoSchedule"], None, None),
        ("[]".to_owned(), &["k:PreferNoSchedule", "l:NoSchedule"], Some(1), Some(0)),
        (prefer("k"), &["k:PreferNoSchedule", "l:PreferNoSchedule"], None, Some(1)),
    ] {
        let all = taints(texts);
        let pod = tolerations(&json);
        let outcome = outcome(&pod, &all);
        let expected = (Fate::Stays, kept_away_by.map(|at: usize| &all[at]), avoided_by.map(|at: usize| &all[at]));
        assert_eq!((outcome.fate, outcome.kept_away_by, outcome.avoided_by), expected, "{json} {texts:?}");
    }
}

#[test]
fn a_pods_fate_follows_from_its_tolerations() {
    let five = Fate::GoesAfter(Duration::from_secs(5));
    for (json, texts, expected) in [
        ("[]", &["k:NoSchedule", "k:PreferNoSchedule"][..], Fate::Stays),
        ("[]", &["k:NoExecute"], Fate::GoesAtOnce),
        ("[]", &[], Fate::Stays),
        (r#"[{"operator": "Exists"}]"#, &["k=v:NoExecute", "l:NoExecute"], Fate::Stays),
        (r#"[{"key": "k"}]"#, &["k:NoExecute"], Fate::Stays),
        (r#"[{"key": "k"}]"#, &["k=v:NoExecute"], Fate::GoesAtOnce),
        (r#"[{"key": "k", "operator": "Exists", "effect": "NoSchedule"}]"#, &["k:NoExecute"], Fate::GoesAtOnce),
        (r#"[{"key": "k", "operator": "Exists", "tolerationSeconds": 5}]"#, &["k:NoExecute"], five),
        (r#"[{"key": "k", "operator": "Exists", "tolerationSeconds": 0}]"#, &["k:NoExecute"], Fate::GoesAtOnce),
        (r#"[{"key": "k", "operator": "Exists", "tolerationSeconds": -7}]"#, &["k:NoExecute"], Fate::GoesAtOnce),
        (
            r#"[{"key": "k", "operator": "Exists", "tolerationSeconds": 5}]"#,
            &["k:NoExecute", "l:NoExecute"],
            Fate::GoesAtOnce,
        ),
        (r#"[{"key": "k", "operator": "Gt", "value": "3"}]"#, &["k=5:NoExecute"], Fate::GoesAtOnce),
        (r#"[{"key": "k", "operator": "Exists", "tolerationSeconds": null}]"#, &["k:NoExecute"], Fate::Stays),
    ] {
        assert_eq!(fate(json, texts), expected, "{json} {texts:?}");
    }
}

#[test]
fn the_first_match_and_the_shortest_time_count() {
    let long_first = r#"[{"operator": "Exists", "tolerationSeconds": 60}, {"key": "k", "operator": "Exists", "tolerationSeconds": 5}]"#;
    assert_eq!(fate(long_first, &["k:NoExecute"]), Fate::GoesAfter(Duration::from_secs(60)));
    let each = r#"[{"key": "k", "operator": "Exists", "tolerationSeconds": 60}, {"key": "l", "operator": "Exists", "tolerationSeconds": 5},
        {"key": "m", "operator": "Exists"}]"#;
    let all = taints(&["k:NoExecute", "l:NoExecute", "m:NoExecute"]);
    let outcome = outcome(&tolerations(each), &all);
    assert_eq!((outcome.fate, outcome.because), (Fate::GoesAfter(Duration::from_secs(5)), Some(&all[1])));
}

#[test]
fn taints_are_written_as_kubectl_takes_them() {
    for text in ["k:NoSchedule", "a.example/k=v:NoExecute", "node-pressure-monitor/memory-pressure:PreferNoSchedule"] {
        assert_eq!(text.parse::<Taint>().unwrap().to_string(), text);
    }
    assert_eq!("k=:NoSchedule".parse::<Taint>().unwrap().to_string(), "k:NoSchedule");
    for (text, reason) in [
        ("k", "no effect"),
        ("k:Never", "no such effect"),
        (":NoSchedule", "no key"),
        ("-k:NoSchedule", "no key"),
        ("a/b/c:NoSchedule", "no key"),
        ("k=v v:NoSchedule", "no value"),
    ] {
        let error = text.parse::<Taint>().unwrap_err().to_string();
        assert!(error.contains(reason), "{text}: {error}");
    }
}

#[test]
fn the_toll_lists_pods_by_time_and_name() {
    let pods: Vec<Pod> = serde_json::from_str(
        r#"[{"metadata": {"namespace": "b", "name": "tolerant"}, "spec": {"tolerations": [{"operator": "Exists"}]}},
            {"metadata": {"namespace": "b", "name": "slow"}, "spec": {"tolerations": [{"operator": "Exists", "tolerationSeconds": 30}]}},
            {"metadata": {"namespace": "b", "name": "first"}},
            {"metadata": {"namespace": "a", "name": "critical"}, "spec": {"priority": 2000001000}},
            {"metadata": {"namespace": "a", "name": "ended"}, "status": {"phase": "Succeeded"}}]"#,
    )
    .unwrap();
    let all = taints(&["k:NoExecute"]);
    let toll = toll(&pods, &all);
    let mut protect = crate::config::KubernetesOptions::default().protect;
    let untouchable = |protect: &PodProtection| toll.untouchable(protect).map(|(pod, why)| (pod.full_name(), why));
    assert_eq!(untouchable(&protect), Some(("a/critical".to_owned(), Protection::CriticalPriority)));
    protect.namespaces.push("b".to_owned());
    assert_eq!(super::toll(&pods[..3], &all).untouchable(&protect).map(|(_, why)| why), Some(Protection::Namespace));
    assert_eq!(toll.words(2), "it evicts 3 pods: a/critical, b/first and 1 more; 1 pod tolerates it");
    assert!(toll.words(9).contains("b/slow (after 30 s)"));
    assert_eq!(super::toll(&pods[..1], &all).words(1), "it evicts no pod; 1 pod tolerates it");
}
