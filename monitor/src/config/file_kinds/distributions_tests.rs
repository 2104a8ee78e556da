use std::fs;

use crate::config::file_kinds::{FileKind, OtherFiles};
use crate::config::policy::{MonitorConfig, Ranking};

/// The hard thresholds, the soft ones, what is reserved of memory, and the warnings.
struct Said {
    hard: String,
    soft: String,
    reserved: String,
    warnings: String,
}

fn said_with(text: &str, others: OtherFiles<'_>) -> Result<Said, String> {
    let loaded = MonitorConfig::parse_with("f", text, others).map_err(|errors| errors.to_string())?;
    let policy = loaded.config.policy;
    assert_eq!(policy.ranking, Ranking::Kubernetes, "{text}");
    let of_kind = |is_hard| {
        let own = policy.thresholds.iter().filter(|it| it.is_hard() == is_hard);
        let own = own.filter(|it| !it.signal.as_str().starts_with("allocatable"));
        own.map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let reserved =
        policy.reservations.system.iter().chain(&policy.reservations.kube).filter(|(name, _)| name == "memory");
    Ok(Said {
        hard: of_kind(true),
        soft: of_kind(false),
        reserved: reserved.map(|(_, amount)| amount.canonical()).collect::<Vec<_>>().join(" "),
        warnings: loaded.warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"),
    })
}

fn said(text: &str) -> Said {
    said_with(text, OtherFiles::default()).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

fn refused(text: &str) -> String {
    said_with(text, OtherFiles::default()).err().unwrap_or_else(|| panic!("accepted: {text}"))
}

/// awslabs/amazon-eks-ami#2335, awslabs/amazon-eks-ami#367 (what nodeadm has inherited), docs.aws.amazon.com (eksctl, node bootstrapping).
#[test]
fn the_kubelet_of_eks_is_read() {
    let head = "---\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  cluster: {name: shop}\n";
    for (kubelet, hard, soft) in [
        (
            "  kubelet:\n    config:\n      evictionHard: {memory.available: 5%, nodefs.available: 10%}\n      evictionSoft: {memory.available: 500Mi}\n      evictionSoftGracePeriod: {memory.available: 1m0s}\n",
            "memory.available<5% nodefs.available<10% nodefs.inodesFree<5%",
            "memory.available<500Mi",
        ),
        (
            "  kubelet:\n    config: {clusterDNS: [10.100.0.10]}\n    flags: [--node-labels=a=b]\n",
            "memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5%",
            "",
        ),
        (
            "  kubelet:\n    flags:\n    - --eviction-hard=memory.available<1Gi, nodefs.available<5%\n",
            "memory.available<1Gi nodefs.available<5%",
            "",
        ),
        ("", "memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5%", ""),
    ] {
        let found = said(&format!("{head}{kubelet}"));
        assert_eq!((found.hard.as_str(), found.soft.as_str()), (hard, soft), "{kubelet}");
        assert!(found.warnings.contains("nodeadm has the kubelet merge these fields"), "{}", found.warnings);
    }
    let found = refused(&format!("{head}  kubelet:\n    config:\n      evictionHard: {{memory.available: 5pc}}\n"));
    assert!(found.starts_with("f:8: spec.kubelet.config.evictionHard.memory.available: \"5pc\""), "{found}");
    let found =
        said(&format!("{head}  kubelet:\n    config:\n      evictonHard: {{memory.available: 5%}}\n      foo: 1\n"));
    assert!(found.warnings.contains("f:8: spec.kubelet.config.evictonHard: an unknown field"), "{}", found.warnings);
    assert!(found.warnings.contains("f:9: spec.kubelet.config.foo: no field of a kubelet"), "{}", found.warnings);
}

/// aws/karpenter-provider-aws#7194, aws/karpenter-provider-aws#2514, JiRaska/open-bank-oss#820, kubernetes-sigs/karpenter#2852.
#[test]
fn the_kubelet_of_karpenters_resources_is_read() {
    for (text, hard, soft) in [
        (
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: default}\nspec:\n  kubelet:\n    cpuCFSQuota: true\n    evictionHard: {memory.available: 5%, nodefs.available: 10%, nodefs.inodesFree: 10%}\n    evictionSoft: {memory.available: 10%}\n    evictionSoftGracePeriod: {memory.available: 2m}\n    evictionMaxPodGracePeriod: 120\n",
            "memory.available<5% nodefs.available<10% nodefs.inodesFree<10%",
            "memory.available<10%",
        ),
        (
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nspec:\n  kubelet:\n    evictionHard: {memory.available: 300Mi}\n    evictionSoft: {memory.available: 500Mi}\n    evictionSoftGracePeriod: {memory.available: 60s}\n",
            "memory.available<300Mi nodefs.available<10% nodefs.inodesFree<5%",
            "memory.available<500Mi",
        ),
        // On Amazon Linux 2 a flag replaces the whole map.
        (
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nspec:\n  amiFamily: AL2\n  kubelet: {evictionHard: {memory.available: 5%}}\n",
            "memory.available<5%",
            "",
        ),
        (
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nspec:\n  amiSelectorTerms: [{alias: al2@v20240807}]\n  kubelet: {maxPods: 50}\n",
            "memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5%",
            "",
        ),
        (
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nspec:\n  amiSelectorTerms: [{alias: bottlerocket@latest}]\n  kubelet: {evictionHard: {memory.available: 5%}}\n",
            "memory.available<5%",
            "",
        ),
        (
            "apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nspec:\n  kubeletConfiguration:\n    evictionSoft: {memory.available: \"50%\"}\n    evictionSoftGracePeriod: {memory.available: 180s}\n",
            "memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5%",
            "memory.available<50%",
        ),
        (
            "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nspec:\n  template:\n    spec:\n      kubelet: {evictionHard: {memory.available: 1Gi}}\n",
            "memory.available<1Gi nodefs.available<10% nodefs.inodesFree<5%",
            "",
        ),
    ] {
        let found = said(text);
        assert_eq!((found.hard.as_str(), found.soft.as_str()), (hard, soft), "{text}");
    }
}

/// Tanguille/cluster#4049, siderolabs/talos#4613, siderolabs/talos#9215.
#[test]
fn the_kubelet_of_talos_is_read() {
    let defaults =
        "imagefs.available<15% imagefs.inodesFree<5% memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5%";
    for (text, hard, reserved) in [
        (
            "version: v1alpha1\nmachine:\n  type: worker\n  kubelet:\n    extraConfig:\n      mergeDefaultEvictionSettings: true\n      evictionHard: {memory.available: 7%}\n      evictionMinimumReclaim: {memory.available: 1Gi}\ncluster: {}\n",
            &*defaults.replace("100Mi", "7%"),
            "384Mi",
        ),
        ("version: v1alpha1\nmachine:\n  type: controlplane\n  kubelet: {image: x}\n", defaults, "512Mi"),
        (
            "machine:\n  kubelet:\n    extraConfig:\n      evictionHard: {memory.available: 1Gi}\n      systemReserved: {memory: 1Gi}\n      kubeReserved: {memory: 2Gi}\n",
            "memory.available<1Gi",
            "1Gi 2Gi",
        ),
        (
            "version: v1alpha1\nmachine:\n  kubelet:\n    extraArgs:\n      eviction-hard: memory.available<2Gi\n      system-reserved: [memory=3Gi]\n",
            "memory.available<2Gi",
            "3Gi",
        ),
    ] {
        let found = said(text);
        assert_eq!((found.hard.as_str(), found.reserved.as_str()), (hard, reserved), "{text}");
    }
}

/// Talos keeps further documents in the same file.
#[test]
fn the_document_with_the_kubelet_is_found_among_several() {
    let machine =
        "version: v1alpha1\nmachine:\n  kubelet:\n    extraConfig:\n      evictionHard: {memory.available: 1Gi}\n";
    let other = "apiVersion: v1alpha1\nkind: HostnameConfig\nauto: stable\n";
    for text in [format!("{machine}---\n{other}"), format!("---\n{other}---\n{machine}---\n{other}")] {
        assert_eq!(said(&text).hard, "memory.available<1Gi", "{text}");
    }
    let found = refused(&format!("{other}---\n{}", machine.replace("1Gi", "1GB")));
    assert!(found.starts_with("f:9: machine.kubelet.extraConfig.evictionHard.memory.available: \"1GB\""), "{found}");
    assert!(refused(&format!("{machine}---\n{machine}")).contains("a second document in the same file"));
}

#[test]
fn names_around_the_kubelets_fields_are_warned_of() {
    for (text, expected) in [
        (
            "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kublet: {config: {}}\n",
            "f:4: spec.kublet: an unknown field, which has no effect; did you mean kubelet?",
        ),
        (
            "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet: {extraConfig: {}}\n",
            "f:4: spec.kubelet.extraConfig: no field of this kind of file, and not read; known here: config, flags",
        ),
        (
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nspec:\n  kubelets: {}\n",
            "f:4: spec.kubelets: an unknown field",
        ),
        (
            "version: v1alpha1\nmachine: {kubelet: {config: {}}}\n",
            "f:2: machine.kubelet.config: no field of this kind of file",
        ),
        ("version: v1alpha1\nmachine: {}\nmachines: {}\n", "f:3: machines: an unknown field"),
    ] {
        let found = said(text).warnings;
        assert!(found.contains(expected), "{text}: {found}");
    }
}

/// rancher/rke2#4200, k3s-io/k3s#10399, k3s-io/k3s#7578, PhilipSchmid/k8s-home-lab#5.
#[test]
fn the_files_of_k3s_and_rke2_are_read_together() {
    let place = tempfile::tempdir().unwrap();
    let own = place.path().join("etc/rancher/rke2/config.yaml");
    fs::create_dir_all(place.path().join("etc/rancher/rke2/config.yaml.d")).unwrap();
    let write = |path: &str, text: &str| fs::write(place.path().join(path), text).unwrap();
    let header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    write(
        "k.yaml",
        &format!("{header}evictionHard: {{memory.available: 500Mi, nodefs.available: 3%, imagefs.available: 3%}}\n"),
    );
    let named = |path: &str| place.path().join(path.trim_start_matches('/'));
    for (first, drop_in, hard) in [
        // The file of the user is merged over the drop-in of k3s 1.32.
        (
            "kubelet-arg: [config=/k.yaml, max-pods=150]\n",
            None,
            "imagefs.available<3% memory.available<500Mi nodefs.available<3%",
        ),
        (
            "node-name: a\n",
            Some("{\"kubelet-arg\": [\n \"config=/k.yaml\"\n]}\n"),
            "imagefs.available<3% memory.available<500Mi nodefs.available<3%",
        ),
        (
            "kubelet-arg: [max-pods=50]\n",
            Some("kubelet-arg+: [eviction-hard=memory.available<1Gi]\n"),
            "memory.available<1Gi",
        ),
        (
            "kubelet-arg: [eviction-hard=memory.available<1Gi]\n",
            Some("kubelet-arg: [max-pods=50]\n"),
            "imagefs.available<5% nodefs.available<5%",
        ),
        ("kubelet-arg: [config=/k.yaml, \"eviction-hard=memory.available<2Gi\"]\n", None, "memory.available<2Gi"),
    ] {
        fs::write(&own, first).unwrap();
        let path = "etc/rancher/rke2/config.yaml.d/50-rancher.yaml";
        match drop_in {
            Some(text) => write(path, text),
            None => drop(fs::remove_file(place.path().join(path))),
        }
        let others = OtherFiles { named: Some(&named), own: Some(&own), ..OtherFiles::default() };
        let found = said_with(first, others).unwrap();
        assert_eq!(found.hard, hard, "{first}{drop_in:?}");
    }
    write("etc/rancher/rke2/config.yaml.d/50-rancher.yaml", "kubelet-arg:\n- eviction-hard=memory.available<1GB\n");
    let others = OtherFiles { own: Some(&own), ..OtherFiles::default() };
    let found = said_with("node-name: a\n", others).err().unwrap();
    assert!(found.contains("config.yaml.d/50-rancher.yaml:2: kubelet-arg.eviction-hard"), "{found}");
}

/// k3s-io/k3s#7578 and #5213: the arguments are on the command line of a unit.
#[test]
fn the_command_line_of_k3s_and_rke2_is_read() {
    let place = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        fs::create_dir_all(place.path().join(path).parent().unwrap()).unwrap();
        fs::write(place.path().join(path), text).unwrap();
    };
    let header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    write("k.yaml", &format!("{header}evictionHard: {{memory.available: 500Mi, nodefs.available: 3%}}\n"));
    write("etc/rancher/rke2/config.yaml", "kubelet-arg: [eviction-hard=memory.available<700Mi]\n");
    write("own.yaml", "kubelet-arg: [eviction-hard=memory.available<800Mi]\n");
    let named = |path: &str| place.path().join(path.trim_start_matches('/'));
    let k3s = "imagefs.available<5% nodefs.available<5%";
    for (line, with_root, without) in [
        (
            "ExecStart=/usr/local/bin/k3s \\\n    server \\\n\t'--kubelet-arg=eviction-hard=memory.available<300Mi,nodefs.available<4%' \\\n",
            "memory.available<300Mi nodefs.available<4%",
            "memory.available<300Mi nodefs.available<4%",
        ),
        (
            "INSTALL_K3S_EXEC=\"agent --kubelet-arg eviction-hard=memory.available<1Gi --kubelet-arg=max-pods=50\"\n",
            "memory.available<1Gi",
            "memory.available<1Gi",
        ),
        (
            "ExecStart=/usr/local/bin/k3s server --kubelet-arg config=/k.yaml\n",
            "imagefs.available<5% memory.available<500Mi nodefs.available<3%",
            "no defaults are put in their place",
        ),
        ("ExecStart=/usr/local/bin/k3s server --disable traefik\n", k3s, k3s),
        ("ExecStart=/usr/local/bin/rke2 agent --node-name a\n", "memory.available<700Mi", k3s),
        ("k3s server --config /own.yaml\n", "memory.available<800Mi", "the settings of k3s in /own.yaml were not read"),
    ] {
        let others = OtherFiles { named: Some(&named), ..OtherFiles::default() };
        let found = said_with(line, others).unwrap_or_else(|errors| panic!("{line}\n{errors}"));
        assert_eq!(found.hard, with_root, "{line}");
        let found = said_with(line, OtherFiles::default()).map_or_else(|errors| errors, |said| said.hard);
        assert!(found.contains(without), "{line}: {found}");
    }
    let found = said("/usr/local/bin/rke2 server --token x\n");
    assert!(found.warnings.contains("in /etc/rancher/rke2/config.yaml were not read"), "{}", found.warnings);
    let found = refused("k3s server --kubelet-arg=eviction-hard=memory.available<1GB\n");
    assert!(found.starts_with("f:1: kubelet-arg.eviction-hard"), "{found}");
}

/// kubernetes/kubeadm#1576: the file of `kubeadm init --config` has several documents, one with the fields and one with flags.
#[test]
fn the_kubelet_of_kubeadms_documents_is_read() {
    let kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nevictionHard: {memory.available: 700Mi}\n";
    let cluster = "apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.0\n";
    let init = |arguments: &str| {
        format!(
            "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\nnodeRegistration:\n  kubeletExtraArgs: {arguments}\n"
        )
    };
    for (text, hard) in [
        (format!("{cluster}---\n{kubelet}"), "memory.available<700Mi"),
        (
            format!("{}---\n{cluster}---\n{kubelet}", init("[{name: node-ip, value: 10.0.0.1}]")),
            "memory.available<700Mi",
        ),
        (
            format!(
                "{kubelet}---\n{}",
                init("[{name: eviction-hard, value: 'memory.available<1Gi,nodefs.available<5%'}]")
            ),
            "memory.available<1Gi nodefs.available<5%",
        ),
        (
            format!("---\n{}---\n{kubelet}", init("{eviction-hard: memory.available<2Gi}").replace("Init", "Join")),
            "memory.available<2Gi",
        ),
    ] {
        assert_eq!(said(&text).hard, hard, "{text}");
    }
    let found = refused(&format!("{cluster}---\n{}", kubelet.replace("700Mi", "7GB")));
    assert!(found.starts_with("f:7: evictionHard.memory.available: \"7GB\""), "{found}");
    // Two of them, and a line of dashes in the middle of one.
    for text in [format!("{kubelet}---\n{kubelet}"), kubelet.replace("evictionHard", "---\nevictionHard")] {
        assert!(refused(&text).contains("a second document in the same file"), "{text}");
    }
}

/// openshift/machine-config-operator#2390 and #1880.
#[test]
fn one_of_a_list_of_openshift_is_read() {
    let item = |name: &str, memory: &str| {
        format!(
            "- apiVersion: machineconfiguration.openshift.io/v1\n  kind: KubeletConfig\n  metadata: {{name: {name}}}\n  spec:\n    kubeletConfig:\n      evictionHard: {{memory.available: {memory}}}\n"
        )
    };
    let list = |items: &[String]| format!("apiVersion: v1\nkind: List\nitems:\n{}", items.concat());
    assert_eq!(said(&list(&[item("set-max-pods", "200Mi")])).hard, "memory.available<200Mi");
    let two = list(&[item("worker", "200Mi"), item("infra", "1Gi")]);
    assert!(
        refused(&two).contains("of which each node has one; name one with --item: worker, infra"),
        "{}",
        refused(&two)
    );
    let named = |name| said_with(&two, OtherFiles { item: Some(name), ..OtherFiles::default() });
    assert_eq!(named("infra").unwrap().hard, "memory.available<1Gi");
    assert!(named("other").err().unwrap().contains("no object other in this List; there are: worker, infra"));
    let own = "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfigList\nitems:\n";
    assert_eq!(said(&format!("{own}{}", item("a", "300Mi"))).hard, "memory.available<300Mi");
    let without_grace = item("a", "300Mi").replace("evictionHard", "evictionSoft");
    assert!(refused(&format!("{own}{without_grace}")).contains("grace period must be specified"));
}

#[test]
fn a_version_that_is_not_known_is_refused_and_the_known_ones_are_named() {
    for (text, expected) in [
        (
            "apiVersion: node.eks.aws/v1beta1\nkind: NodeConfig\nspec: {}\n",
            "f:1: apiVersion: \"node.eks.aws/v1beta1\": not a known version of NodeConfig; known: v1 (OpenShift 3) or node.eks.aws/v1alpha1 (EKS)",
        ),
        ("apiVersion: example.com/v1\nkind: NodeConfig\nkubeletArguments: {}\n", "known: v1 (OpenShift 3)"),
        (
            "apiVersion: machineconfiguration.openshift.io/v2\nkind: KubeletConfig\n",
            "known: machineconfiguration.openshift.io/v1",
        ),
        (
            "apiVersion: karpenter.sh/v1\nkind: NodePool\nspec: {}\n",
            "since karpenter.sh/v1 an EC2NodeClass has the kubelet's fields",
        ),
        ("apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n", "write kubelet.config.k8s.io/v1beta1"),
        (
            "version: v1beta1\nmachine: {kubelet: {extraConfig: {}}}\n",
            "f:1: version: \"v1beta1\": not a known version of Talos' machine configuration; known: v1alpha1",
        ),
        (
            "apiVersion: apps/v1\nkind: Deployment\n",
            "also known are KubeletConfig of OpenShift 4, EC2NodeClass of Karpenter",
        ),
    ] {
        let found = refused(text);
        assert!(found.contains(expected), "{text}: {found}");
    }
    let loaded =
        MonitorConfig::parse("f", "apiVersion: v1\nkind: NodeConfig\nspec: {}\nkubeletArguments: {}\n").unwrap();
    assert_eq!(loaded.kind, FileKind::OpenShift3);
    assert!(
        loaded.warnings[0].to_string().starts_with("f:3: spec: no field of OpenShift 3's NodeConfig"),
        "{:?}",
        loaded.warnings
    );
}

/// k0sproject/k0s#1570: a flag's name in a file. The others are of the same kind.
#[test]
fn a_name_that_no_kubelet_has_is_warned_of() {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    for (fields, expected) in [
        (
            "eviction-hard: {memory.available: 100Mi}\n",
            "f:3: eviction-hard: an unknown field, which has no effect; did you mean evictionHard?",
        ),
        ("evictonHard: {}\n", "did you mean evictionHard?"),
        ("kubeletArguments: {}\n", "f:3: kubeletArguments: no field of a kubelet, which ignores it"),
        ("spec: {}\n", "f:3: spec: no field of a kubelet"),
    ] {
        let loaded = MonitorConfig::parse("f", &format!("{head}{fields}")).unwrap();
        assert!(loaded.warnings.iter().any(|it| it.to_string().contains(expected)), "{fields}: {:?}", loaded.warnings);
    }
    let known = "maxPods: 1\nregisterWithTaints: []\nlogging: {}\nmetadata: {creationTimestamp: null}\n";
    assert_eq!(MonitorConfig::parse("f", &format!("{head}{known}")).unwrap().warnings, []);
}

/// Azure/acs-engine#3235: "15% of node memory"; kubernetes/kubernetes#63394.
#[test]
fn a_reservation_in_per_cent_gets_an_answer() {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    for (text, expected) in [
        (format!("{head}kubeReserved: {{memory: 15%}}\n"), "on one with 10Gi, 15% is 1536Mi"),
        ("kubeletArguments:\n  system-reserved: [\"memory=10%\"]\n".to_owned(), "on one with 10Gi, 10% is 1024Mi"),
        ("kubelet --system-reserved=cpu=10%,memory=1Gi".to_owned(), "on one with 4 CPUs, 10% is 400m"),
        (
            "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\nsystemReserved: {pid: 5%}\n"
                .to_owned(),
            "32768 process ids, 5% is 1638",
        ),
        (
            format!("{head}kubeReserved: {{memory: \"x%\"}}\n"),
            "write the amount for each size of node, e.g. 500m of cpu",
        ),
    ] {
        let found = refused(&text);
        assert!(found.contains(expected) && found.contains("only thresholds can be percentages"), "{text}: {found}");
    }
}

#[test]
fn what_no_node_has_is_warned_of() {
    let kubelet = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let own = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
    for (text, expected) in [
        (format!("{kubelet}evictionHard: {{memory.available: 999Ti}}\n"), Some("more than any node has")),
        (format!("{own}evictionHard: {{nodefs.available: 999Ti}}\n"), Some("more than any node has")),
        ("kubelet --eviction-hard=pid.available<5M".to_owned(), Some("more than any node has")),
        (format!("{kubelet}evictionHard: {{memory.available: 99%}}\n"), Some("above half of the capacity")),
        (format!("{own}protected: [\"*\"]\n"), Some("* matches every workload")),
        (format!("{own}protected: [a.service, \"?*\"]\n"), Some("?* matches every workload")),
        (format!("{own}protected: [\"*.service\"]\n"), None),
        (format!("{own}evictionHard: {{memory.available: 1Ti, nodefs.available: 100Ti}}\n"), None),
    ] {
        let warnings = MonitorConfig::parse("f", &text).unwrap().warnings;
        let found: Vec<String> = warnings.iter().map(ToString::to_string).collect();
        let is_said = |it: &String| expected.is_some_and(|expected| it.contains(expected));
        assert_eq!(found.iter().any(is_said), expected.is_some(), "{text}: {found:?}");
        assert!(
            expected.is_some() || !found.iter().any(|it| it.contains("more than") || it.contains("matches every")),
            "{found:?}"
        );
    }
}
