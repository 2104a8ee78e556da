use crate::config::file_kinds::OtherFiles;
use crate::config::policy::MonitorConfig;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

/// A directory with files by their paths.
struct Node(tempfile::TempDir);

impl Node {
    fn with(files: &[(&str, &str)]) -> Self {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let text = if text.starts_with("---") { (*text).to_owned() } else { format!("{HEAD}{text}") };
            std::fs::write(path, text).unwrap();
        }
        Self(root)
    }

    /// Returns the hard thresholds, the soft ones, and the warnings of a text whose flags name files of this node.
    fn read(&self, text: &str) -> (String, String, String) {
        self.answer(text).unwrap_or_else(|errors| panic!("{text}\n{errors}"))
    }

    fn answer(&self, text: &str) -> Result<(String, String, String), String> {
        let place = |path: &str| self.0.path().join(path.trim_start_matches('/'));
        let others = OtherFiles { named: Some(&place), ..OtherFiles::default() };
        let loaded = MonitorConfig::parse_with("f", text, others).map_err(|errors| errors.to_string())?;
        let of_kind = |is_hard| {
            let own = loaded.config.policy.thresholds.iter().filter(|it| it.is_hard() == is_hard);
            let own = own.filter(|it| !it.signal.as_str().starts_with("allocatable"));
            own.map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        let warnings: Vec<_> = loaded.warnings.iter().map(ToString::to_string).collect();
        Ok((of_kind(true), of_kind(false), warnings.join("\n")))
    }
}

const DEFAULTS_WITH_500MI: &str =
    "imagefs.available<15% imagefs.inodesFree<5% memory.available<500Mi nodefs.available<10% nodefs.inodesFree<5%";

#[test]
fn drop_ins_are_merged_key_by_key_over_the_file() {
    for (name, base, drop_ins, hard) in [
        // EKS with AL2023 (awslabs/amazon-eks-ami#2335): 40-nodeadm.conf over config.json.
        (
            "a key replaces a key",
            "evictionHard: {memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 5%}\n",
            &[("40-nodeadm.conf", "evictionHard: {memory.available: 5%}\n")][..],
            "memory.available<5% nodefs.available<10% nodefs.inodesFree<5%",
        ),
        (
            "the later name counts",
            "evictionHard: {memory.available: 100Mi}\n",
            &[
                ("20-b.conf", "evictionHard: {memory.available: 2Gi}\n"),
                ("10-a.conf", "evictionHard: {memory.available: 1Gi, pid.available: 5%}\n"),
            ],
            "memory.available<2Gi pid.available<5%",
        ),
        (
            "other endings are ignored",
            "evictionHard: {memory.available: 100Mi}\n",
            &[("99.yaml", "evictionHard: {memory.available: 2Gi}\n"), ("README", "x")],
            "memory.available<100Mi",
        ),
        // The kubelet puts the defaults into a file without evictionHard before it merges.
        (
            "defaults of the file are kept",
            "maxPods: 10\n",
            &[("10.conf", "evictionHard: {memory.available: 500Mi}\n")],
            DEFAULTS_WITH_500MI,
        ),
        (
            "the file keeps defaults",
            "mergeDefaultEvictionSettings: true\nevictionHard: {nodefs.available: 10%}\n",
            &[("10.conf", "evictionHard: {memory.available: 500Mi}\n")],
            DEFAULTS_WITH_500MI,
        ),
        (
            "a drop-in cannot keep defaults",
            "evictionHard: {memory.available: 500Mi}\n",
            &[("10.conf", "mergeDefaultEvictionSettings: true\n")],
            "memory.available<500Mi",
        ),
        (
            "null takes away",
            "evictionHard: {memory.available: 500Mi, nodefs.available: 1%}\n",
            &[("10.conf", "evictionHard: {nodefs.available: null}\n")],
            "memory.available<500Mi",
        ),
        ("null takes all away", "maxPods: 10\n", &[("10.conf", "evictionHard: null\n")], ""),
        (
            "directories are walked at their place",
            "maxPods: 10\nevictionHard: {}\n",
            &[
                ("20-dir/00.conf", "evictionHard: {memory.available: 1Gi}\n"),
                ("30.conf", "evictionHard: {memory.available: 3Gi}\n"),
            ],
            "memory.available<3Gi",
        ),
    ] {
        let files: Vec<_> = drop_ins.iter().map(|(file, text)| (format!("etc/k.d/{file}"), *text)).collect();
        let mut files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        files.push(("etc/k.yaml", base));
        let node = Node::with(&files);
        let (found, _, warnings) = node.read("kubelet --config=/etc/k.yaml --config-dir=/etc/k.d --v=2");
        assert_eq!(found, hard, "{name}");
        assert_eq!(
            name == "a drop-in cannot keep defaults",
            warnings.contains("has no effect in a drop-in"),
            "{name}: {warnings}"
        );
    }
}

#[test]
fn a_flag_replaces_what_files_say() {
    let node = Node::with(&[
        (
            "etc/k.yaml",
            "evictionHard: {memory.available: 100Mi, nodefs.available: 10%}\nevictionPressureTransitionPeriod: 1m\n",
        ),
        (
            "etc/d/1.conf",
            "evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}\nsystemReserved: {memory: 1Gi}\n",
        ),
    ]);
    for (flags, hard, soft) in [
        ("", "memory.available<100Mi nodefs.available<10%", "memory.available<1Gi"),
        ("--eviction-hard=memory.available<2Gi", "memory.available<2Gi", "memory.available<1Gi"),
        ("--eviction-hard=", "", "memory.available<1Gi"),
        (
            "--eviction-hard=memory.available<2Gi, pid.available<10%",
            "memory.available<2Gi pid.available<10%",
            "memory.available<1Gi",
        ),
        (
            "--eviction-soft=nodefs.available<20% --eviction-soft-grace-period=nodefs.available=10s",
            "memory.available<100Mi nodefs.available<10%",
            "nodefs.available<20%",
        ),
    ] {
        let text = format!("kubelet --config=/etc/k.yaml --config-dir=/etc/d {flags}");
        let (found_hard, found_soft, _) = node.read(&text);
        assert_eq!((found_hard.as_str(), found_soft.as_str()), (hard, soft), "{flags}");
    }
}

#[test]
fn without_a_file_there_are_no_defaults() {
    // A probe of k3s 1.36 read back its own nodefs threshold and the two of the drop-in, and nothing else.
    let node = Node::with(&[
        ("d/00-k3s-defaults.conf", "evictionHard: {imagefs.available: 5%, nodefs.available: 5%}\n"),
        ("d/10-cli-config.conf", "evictionHard: {memory.available: 500Mi, imagefs.available: 7%}\n"),
    ]);
    let (hard, _, _) = node.read("kubelet --cloud-provider=external --config-dir=/d --node-labels=");
    assert_eq!(hard, "imagefs.available<7% memory.available<500Mi nodefs.available<5%");
}

#[test]
fn errors_and_warnings_name_the_file_of_the_layer() {
    let node = Node::with(&[
        ("etc/k.yaml", "evictionHard: {memory.available: 100MB}\n"),
        ("etc/d/1.conf", "evictonHard: {memory.available: 1Gi}\nfoo: 1\nfailSwapOn: false\n"),
        ("etc/e/1.conf", "---\nevictionHard: {memory.available: 1Gi}\n"),
        ("etc/f/1.conf", "evictionHard: {memory.available: 1Gi, memory.available: 2Gi}\n"),
    ]);
    let errors = |text: &str| node.answer(text).unwrap_err();
    let found = errors("kubelet --config=/etc/k.yaml");
    assert!(found.starts_with("/etc/k.yaml:3: evictionHard.memory.available: \"100MB\": MB is no unit"), "{found}");
    let found = errors("kubelet --config-dir=/etc/e");
    assert!(found.starts_with("/etc/e/1.conf:2: apiVersion: missing"), "{found}");
    let found = errors("kubelet --config-dir=/etc/f");
    assert!(found.contains("/etc/f/1.conf:3: evictionHard.memory.available: given twice, first in line 3"), "{found}");
    let (_, _, warnings) = node.read("kubelet --config-dir=/etc/d");
    let lines: Vec<&str> = warnings.lines().collect();
    assert_eq!(lines.len(), 3, "{warnings}");
    assert_eq!(
        lines[0],
        "/etc/d/1.conf:3: evictonHard: an unknown field, which has no effect; did you mean evictionHard?"
    );
    assert!(lines[1].starts_with("/etc/d/1.conf:4: foo: no field of a kubelet"), "{warnings}");
    assert!(lines[2].starts_with("/etc/d/1.conf:5: failSwapOn: \"false\": swap may be used"), "{warnings}");
}

#[test]
fn a_file_that_was_not_read_is_named_and_no_default_is_put_in_its_place() {
    let node = Node::with(&[("etc/k.yaml", "evictionHard: {memory.available: 100Mi}\n")]);
    for text in [
        "kubelet --cloud-provider=external --config-dir=/var/lib/rancher/k3s/agent/etc/kubelet.conf.d --node-labels=",
        "kubelet --config=/none.yaml",
        "kubelet-arg:\n- config=/none.yaml\n- max-pods=150\n",
        "KUBELET_ARGS=\"--config /etc/k.yaml --config-dir /none\"",
    ] {
        let found = node.answer(text).unwrap_err();
        assert!(found.contains("was not read") && found.contains("--root"), "{text}: {found}");
        let found = MonitorConfig::parse("f", text).unwrap_err().to_string();
        assert!(found.contains("no --root says where it is"), "{text}: {found}");
    }
    let (hard, _, warnings) = node.read("kubelet --config=/none.yaml --eviction-hard=memory.available<1Gi");
    assert_eq!(hard, "memory.available<1Gi");
    assert!(warnings.contains("its soft thresholds, reservations and other fields are missing here"), "{warnings}");
}
