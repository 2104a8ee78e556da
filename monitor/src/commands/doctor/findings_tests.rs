use super::super::facts::{
    Capability, Cgroup, Feature, Filesystem, InodesLeft, Kernel, MissingProbe, Needed, PodsLimit, Probes, Runtime,
};
use super::*;
use crate::units::Signal;

/// A machine on which everything works.
pub(in super::super) fn capable() -> Facts {
    let feature = |name| Feature { name, present: true, since: "5.0", otherwise: "less is known" };
    let capability = |name| Capability { name, present: true, purpose: "something" };
    let filesystem = |role, path: &str| Filesystem {
        role,
        path: path.into(),
        device: "8:1".to_owned(),
        mount_point: "/var".into(),
        kind: "ext4".to_owned(),
        available_bytes: 1 << 30,
        capacity_bytes: 1 << 32,
        inodes: Some(InodesLeft { free: 5, total: 10 }),
        project_quotas: Some(true),
    };
    Facts {
        mode: "observe",
        pool: None,
        kernel: Kernel { release: "6.12.0".to_owned(), features: vec![feature("pidfd"), feature("cgroup.kill")] },
        cgroup: Some(Cgroup {
            version: "v2".to_owned(),
            memory: "/sys/fs/cgroup".into(),
            hybrid: false,
            controllers: vec!["memory".to_owned()],
            kill: true,
            freezer: true,
        }),
        probes: Probes { would_attach: vec!["oom:mark_victim".to_owned()], missing: Vec::new(), cgroup_ids: "none" },
        oom_kills_told_by: "ebpf",
        pressure_stall_information: true,
        kernel_log: true,
        swap_bytes: 0,
        capabilities: vec![capability("CAP_KILL")],
        is_root: true,
        private_namespaces: Vec::new(),
        filesystems: vec![filesystem("nodefs", "/var/lib/kubelet"), filesystem("imagefs", "/var/lib/containerd")],
        kubelet: true,
        filesystem_layout: "single",
        runtimes: vec![Runtime {
            name: "containerd".to_owned(),
            version: Some("1.6.20".to_owned()),
            api_version: Some("v1".to_owned()),
            socket: "/run/c.sock".into(),
            trouble: None,
        }],
        candidates: "pods",
        needed: Vec::new(),
        patterns: Vec::new(),
        unheld_sockets: Some(Vec::new()),
        other_instance: None,
        other_killers: Vec::new(),
        set_up: None,
        thresholds: Vec::new(),
        unobserved: Vec::new(),
        remarks: Vec::new(),
        pods_limit: None,
        decisions: None,
        unread_configuration: None,
        limits_unknown: false,
        lacks_to_enforce: None,
        problems: Vec::new(),
    }
}

/// A threshold that an agent would not act on at its start, if `unarmed` has a reason.
pub fn threshold(unarmed: Option<Unarmed>, is_waived: bool) -> NodeThreshold {
    NodeThreshold {
        threshold: "nodefs.inodesFree<100Mi".to_owned(),
        signal: Signal::NodeFsInodesFree,
        kind: "hard",
        is_bytes: false,
        quantity: 104_857_600,
        available: 2_000_000,
        capacity: 3_000_000,
        met: true,
        is_plausible: false,
        reported_only: None,
        evicts: None,
        is_waived,
        unarmed,
    }
}

#[test]
fn thresholds_that_would_not_or_must_not_evict_are_unsafe() {
    let (met, absurd) = (Unarmed::Present { available: 5 }, Unarmed::Implausible { capacity: 9 });
    for (unarmed, is_waived, part) in [
        (None, false, None),
        (None, true, None),
        (Some(met), false, Some("is met now")),
        (Some(absurd), false, Some("cannot be meant for this node")),
        (Some(met), true, Some("would evict at once")),
        (Some(absurd), true, Some("would evict at once")),
    ] {
        let found = findings(&Facts { thresholds: vec![threshold(unarmed, is_waived)], ..capable() });
        let sentence = found.first().map(|finding| finding.sentence.as_str());
        assert_eq!(sentence.is_some(), part.is_some(), "{found:?}");
        assert!(
            found.iter().all(Finding::is_unsafe) && sentence.is_none_or(|it| it.contains(part.unwrap())),
            "{found:?}"
        );
    }
}

type Lacking = fn(&mut Facts);

#[test]
fn a_capable_machine_has_no_findings() {
    assert_eq!(findings(&capable()), []);
}

#[test]
fn the_limit_of_all_pods_has_one_finding() {
    let limit = |guarded_by: &[&str]| {
        let guarded_by = guarded_by.iter().map(|it| (*it).to_owned()).collect();
        findings(&Facts { pods_limit: Some(PodsLimit { limit: 1 << 30, available: 7 << 20, guarded_by }), ..capable() })
    };
    let [guarded] = &limit(&["hard allocatableMemory.available<100Mi"])[..] else { panic!("not one finding") };
    assert_eq!(
        (guarded.severity, guarded.sentence.as_str()),
        (
            Severity::Note,
            "all pods together (kubepods) have a limit of 1.0 GiB, of which 7.0 MiB are left: at the limit the kernel's OOM killer ends \
             processes of pods, whatever the node has left; before that evicts hard allocatableMemory.available<100Mi"
        )
    );
    let [unguarded] = &limit(&[])[..] else { panic!("not one finding") };
    assert_eq!(unguarded.severity, Severity::Degraded);
    assert!(
        unguarded.sentence.ends_with("whatever the node has left; no threshold evicts before that"),
        "{unguarded:?}"
    );
}

/// Each case removes one ability and expects one finding.
#[test]
fn each_missing_ability_has_one_finding() {
    use Severity::{Degraded, Note, Unsafe};
    let cases: [(Lacking, Severity, &str, &str); 20] = [
        (|it| it.private_namespaces = vec!["cgroup", "pid"], Unsafe, "namespaces", "cgroup and pid namespace"),
        (|it| it.problems = vec![Problem::fatal("cgroup", "no hierarchy")], Unsafe, "cgroup", "no hierarchy"),
        (|it| it.problems = vec![Problem::degraded("eBPF", "eBPF: no CAP_BPF")], Degraded, "eBPF", "no CAP_BPF"),
        (
            |it| it.capabilities[0].present = false,
            Degraded,
            "killing workloads",
            "no CAP_KILL: the agent can kill whole cgroups",
        ),
        (
            |it| {
                it.capabilities[0].present = false;
                it.cgroup.as_mut().unwrap().kill = false;
            },
            Unsafe,
            "killing workloads",
            "no CAP_KILL: the agent cannot signal any workload",
        ),
        (
            |it| {
                let cgroup = it.cgroup.as_mut().unwrap();
                (cgroup.kill, cgroup.freezer) = (false, false);
            },
            Degraded,
            "killing workloads",
            "a fork bomb may outrun it",
        ),
        (|it| it.swap_bytes = 1, Degraded, "swap", "swap is on"),
        (|it| it.filesystems[0].inodes = None, Note, "nodefs", "there is no nodefs.inodesFree"),
        // One filesystem in two roles is one finding.
        (
            |it| it.filesystems.iter_mut().for_each(|filesystem| filesystem.inodes = None),
            Note,
            "nodefs",
            "creates inodes without limit",
        ),
        (
            |it| it.filesystems.iter_mut().for_each(|filesystem| filesystem.project_quotas = Some(false)),
            Note,
            "nodefs",
            "/var (8:1) counts no projects",
        ),
        (|it| it.filesystems[1].project_quotas = Some(false), Note, "imagefs", "counts no projects"),
        (
            |it| {
                it.filesystems[1].project_quotas = Some(false);
                it.filesystems[1].kind = "xfs".to_owned();
            },
            Note,
            "imagefs",
            "xfs at /var",
        ),
        (
            |it| it.runtimes[0].trouble = Some("Connection refused".to_owned()),
            Degraded,
            "runtime",
            "containerd does not answer at /run/c.sock: Connection refused",
        ),
        (|it| it.runtimes.clear(), Degraded, "runtime", "none was found, though a kubelet"),
        (
            |it| it.unread_configuration = Some("/etc/npm.yaml".into()),
            Note,
            "configuration",
            "the defaults were examined: /etc/npm.yaml exists",
        ),
        (|it| it.limits_unknown = true, Note, "local storage", "evict no pod"),
        (|it| it.lacks_to_enforce = Some("may not patch nodes".to_owned()), Note, "API server", "patch nodes"),
        (|it| it.kernel.features[1].present = false, Note, "kernel", "no cgroup.kill (Linux 5.0): less is known"),
        (
            |it| {
                let (name, reason) = ("xfs:xfs_create".to_owned(), "no xfs in this kernel".to_owned());
                it.probes.missing = vec![MissingProbe { name, purpose: "inodes made on xfs", reason }];
            },
            Note,
            "probes",
            "xfs:xfs_create: no xfs in this kernel (inodes made on xfs)",
        ),
        (|it| it.other_instance = Some(77), Note, "other agent", "process 77"),
    ];
    for (remove, severity, about, sentence) in cases {
        let mut facts = capable();
        remove(&mut facts);
        let found = findings(&facts);
        let [finding] = &found[..] else { panic!("{sentence}: {found:?}") };
        assert_eq!((finding.severity, finding.about.as_str()), (severity, about), "{sentence}");
        assert!(finding.sentence.contains(sentence), "{finding:?}");
    }
}

#[test]
fn what_the_node_needs_must_be_recognized_where_it_could_be_evicted() {
    let needed = |protection: Protection| Needed {
        workload: "runtime.slice/a.service".to_owned(),
        protection: protection.as_str(),
        by: "listens on a socket".to_owned(),
        process: Some(7),
    };
    for (candidates, found, expected) in [
        ("everything", vec![Protection::Kubelet, Protection::Runtime], vec![]),
        ("everything", vec![Protection::Runtime], vec!["the kubelet"]),
        ("everything", vec![Protection::Kubelet], vec!["the container runtime"]),
        ("everything", vec![Protection::Session], vec!["the kubelet", "the container runtime"]),
        ("pods", vec![], vec![]),
    ] {
        let needed = found.into_iter().map(needed).collect();
        let found = findings(&Facts { candidates, needed, ..capable() });
        assert!(found.iter().all(Finding::is_unsafe), "{found:?}");
        assert_eq!(found.len(), expected.len(), "{found:?}");
        assert!(found.iter().zip(expected).all(|(it, start)| it.sentence.starts_with(start)), "{found:?}");
    }
    // A machine with neither.
    let plain = Facts { candidates: "everything", kubelet: false, runtimes: Vec::new(), ..capable() };
    assert_eq!(findings(&plain), []);
}

#[test]
fn another_killer_at_this_agents_threshold_is_a_degradation_of_enforcing() {
    for (mode, collides, severity) in
        [("enforce", true, Severity::Degraded), ("enforce", false, Severity::Note), ("observe", true, Severity::Note)]
    {
        let meaning = Meaning { sentence: "s".to_owned(), mend: "m".to_owned(), collides };
        let other = OtherKillerFact { name: "earlyoom", pid: 7, thresholds: None, meaning };
        let found = findings(&Facts { mode, other_killers: vec![other], ..capable() });
        assert_eq!(found.iter().map(|it| it.severity).collect::<Vec<_>>(), [severity], "{mode} {collides}");
    }
}

#[test]
fn a_machine_without_a_kubelet_needs_no_runtime() {
    let mut facts = Facts { kubelet: false, runtimes: Vec::new(), ..capable() };
    facts.filesystems.iter_mut().for_each(|filesystem| filesystem.project_quotas = Some(false));
    assert_eq!(findings(&facts), [], "nor quotas");
}

#[test]
fn without_pidfds_only_cgroup_kill_can_evict() {
    let mut facts = capable();
    facts.kernel.features[0].present = false;
    assert!(findings(&facts).iter().all(|finding| finding.severity == Severity::Note));
    facts.cgroup.as_mut().unwrap().kill = false;
    assert!(findings(&facts).iter().any(|finding| finding.is_unsafe() && finding.sentence.contains("pidfd")));
}

#[test]
fn probes_that_are_all_missing_are_not_listed() {
    let missing = |name: &str| MissingProbe { name: name.to_owned(), purpose: "x", reason: "no eBPF".to_owned() };
    let mut facts = capable();
    facts.probes =
        Probes { would_attach: Vec::new(), missing: vec![missing("a:b"), missing("c:d")], cgroup_ids: "none" };
    facts.problems = vec![Problem::degraded("eBPF", "eBPF: cannot be loaded")];
    assert_eq!(findings(&facts).len(), 1);
}

#[test]
fn the_worst_comes_first() {
    let mut facts = capable();
    facts.limits_unknown = true;
    facts.swap_bytes = 1;
    facts.private_namespaces = vec!["pid"];
    let severities: Vec<Severity> = findings(&facts).iter().map(|finding| finding.severity).collect();
    assert_eq!(severities, [Severity::Unsafe, Severity::Degraded, Severity::Note]);
}

#[test]
fn a_daemon_that_cannot_be_told_from_a_workload_is_unsafe() {
    let found = |candidates: &'static str, unheld_sockets: Option<Vec<&str>>| {
        let unheld_sockets = unheld_sockets.map(|all| all.into_iter().map(str::to_owned).collect());
        let facts = Facts { candidates, unheld_sockets, kubelet: false, runtimes: Vec::new(), ..capable() };
        findings(&facts).first().map(|finding| (finding.is_unsafe(), finding.sentence.clone()))
    };
    let everything = Candidates::Everything.as_str();
    for (unheld, part) in [
        (
            Some(vec!["listens on port 22", "listens on /run/udev/control"]),
            "process listens on port 22, or listens on /run",
        ),
        (None, "net/unix of process 1"),
    ] {
        let (is_unsafe, sentence) = found(everything, unheld.clone()).unwrap();
        assert!(is_unsafe && sentence.contains(part), "{sentence}");
        assert_eq!(found("pods", unheld), None, "nothing outside pods is a candidate");
    }
    assert_eq!(found(everything, Some(Vec::new())), None);
}

#[test]
fn a_pattern_without_effect_is_named_with_the_reason() {
    let reach = |pattern: &str, matches: usize, hint: Option<&str>| PatternReach {
        field: "protected",
        pattern: pattern.to_owned(),
        matches,
        examples: Vec::new(),
        hint: hint.map(str::to_owned),
    };
    let patterns =
        vec![reach("db.service", 1, None), reach("typo.service", 0, None), reach("vm-*.scope", 0, Some("why"))];
    let found = findings(&Facts { patterns, ..capable() });
    let found: Vec<_> = found.iter().map(|it| (it.severity, it.sentence.as_str())).collect();
    let without = "matches no workload of this machine now, and has no effect";
    let expected = [
        (Severity::Degraded, format!("protected: \"vm-*.scope\" {without}: why")),
        (Severity::Note, format!("protected: \"typo.service\" {without}")),
    ];
    assert_eq!(found, expected.each_ref().map(|(severity, sentence)| (*severity, sentence.as_str())));
}

#[test]
fn a_threshold_that_never_acts_here_is_a_note() {
    let facts =
        Facts { remarks: vec![("soft threshold on memory.available: never".to_owned(), "raise it")], ..capable() };
    let found = findings(&facts);
    let own: Vec<_> = found.iter().filter(|it| it.about == "thresholds").collect();
    assert_eq!(
        (own.len(), own[0].severity, own[0].mend.as_deref()),
        (1, Severity::Note, Some("raise it")),
        "{found:?}"
    );
}
