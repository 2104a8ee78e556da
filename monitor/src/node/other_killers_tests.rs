use super::*;
use crate::config::{Mode, MonitorConfig};

/// A directory like `/proc`.
struct Proc(tempfile::TempDir);

impl Proc {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn process(&self, pid: i32, name: &str, command: &str, cgroup: &str) {
        let directory = self.0.path().join(pid.to_string());
        fs::create_dir_all(directory.join("root/etc")).unwrap();
        fs::create_dir_all(directory.join("cwd")).unwrap();
        fs::write(directory.join("comm"), format!("{name}\n")).unwrap();
        fs::write(directory.join("cmdline"), command.replace(' ', "\0") + "\0").unwrap();
        fs::write(directory.join("cgroup"), format!("0::/{cgroup}\n")).unwrap();
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn only(&self) -> OtherKiller {
        let found = find(self.0.path());
        assert_eq!(found.len(), 1, "{found:?}");
        found.into_iter().next().unwrap()
    }
}

#[test]
fn programs_are_found_by_their_processes() {
    for (name, command, cgroup, expected) in [
        (
            "systemd-oomd",
            "/usr/lib/systemd/systemd-oomd",
            "system.slice/systemd-oomd.service",
            Some(Killer::SystemdOomd),
        ),
        ("earlyoom", "/usr/bin/earlyoom -r 3600", "system.slice/earlyoom.service", Some(Killer::Earlyoom)),
        ("oomd", "/usr/bin/oomd --interval 1", "system.slice/oomd.service", Some(Killer::Oomd)),
        ("nohang", "/usr/bin/python3 /usr/sbin/nohang --monitor", "system.slice/nohang.service", Some(Killer::Nohang)),
        ("python3.11", "python3 /opt/nohang --monitor", "system.slice/x.service", Some(Killer::Nohang)),
        ("python3.11", "python3 /opt/earlyoom", "system.slice/x.service", None),
        ("kubelet", "/usr/bin/kubelet", "runtime.slice/kubelet.service", Some(Killer::Kubelet)),
        ("k3s-server", "/usr/local/bin/k3s server", "system.slice/k3s.service", Some(Killer::Kubelet)),
        ("hyperkube", "/hyperkube kubelet", "system.slice/x.service", Some(Killer::Kubelet)),
        ("hyperkube", "/hyperkube apiserver", "system.slice/x.service", None),
        // A pod may call its process anything.
        ("earlyoom", "earlyoom", "kubepods.slice/kubepods-besteffort.slice/x", None),
        ("earlyoomd", "earlyoomd", "system.slice/x.service", None),
        ("sleep", "sleep earlyoom", "system.slice/x.service", None),
    ] {
        let machine = Proc::new();
        machine.process(812, name, command, cgroup);
        let found = find(machine.0.path());
        assert_eq!(found.iter().map(|other| other.killer).next(), expected, "{name} {command} {cgroup}");
        assert!(found.len() <= 1 && found.iter().all(|other| other.pid == 812));
    }
    assert_eq!(find(Path::new("/nonexistent")), []);
}

#[test]
fn each_program_is_reported_once_in_one_order() {
    let machine = Proc::new();
    for (pid, name) in [(9, "earlyoom"), (30, "kubelet"), (7, "nohang"), (31, "earlyoom")] {
        machine.process(pid, name, name, "system.slice/x.service");
    }
    let found: Vec<_> = find(machine.0.path()).iter().map(|other| (other.killer, other.pid)).collect();
    assert_eq!(found, [(Killer::Kubelet, 30), (Killer::Earlyoom, 9), (Killer::Nohang, 7)]);
}

#[test]
fn the_controller_in_process_1_of_talos_is_a_killer() {
    let machine = Proc::new();
    machine.process(1, "init", "/sbin/init", "init");
    machine.process(900, "kubelet", "/usr/local/bin/kubelet", "podruntime/kubelet");
    machine.file("1/root/etc/os-release", "NAME=\"Talos\"\nID=talos\nVERSION_ID=v1.12.1\n");
    let found = find(machine.0.path());
    let named: Vec<_> = found.iter().map(|other| (other.killer, other.pid)).collect();
    assert_eq!(named, [(Killer::Kubelet, 900), (Killer::Talos, 1)]);
    let meaning = found[1].meaning(&MonitorConfig::default(), &|_| None);
    assert!(meaning.sentence.starts_with("talos (process 1) has Talos' OOM controller"), "{}", meaning.sentence);
    assert!(!meaning.collides && meaning.mend.contains("OOMConfig"));
}

/// Returns the thresholds in their textual form, or the reason why they are unknown.
fn thresholds(acts: &Acts) -> String {
    match acts {
        Acts::At(thresholds) => thresholds.iter().map(meaning::text).collect::<Vec<_>>().join(" "),
        Acts::Unknown(reason) => format!("unknown: {reason}"),
        Acts::ByOwnRules => "own rules".to_owned(),
    }
}

#[test]
fn thresholds_of_a_kubelet_are_read_where_the_kubelet_reads_them() {
    const DEFAULTS: &str =
        "imagefs.available<15% imagefs.inodesFree<5% memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5%";
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let hard = format!("{head}evictionHard: {{memory.available: 200Mi}}\n");
    let soft = format!(
        "{hard}evictionSoft: {{memory.available: 500Mi}}\nevictionSoftGracePeriod: {{memory.available: 1m30s}}\n"
    );
    for (name, command, file, expected) in [
        ("kubelet", "kubelet", "", "unknown: it has neither --config nor --eviction-hard"),
        ("kubelet", "kubelet --node-ip=10.0.0.1", "", "unknown: it has neither --config nor --eviction-hard"),
        ("hyperkube", "hyperkube kubelet", "", DEFAULTS),
        (
            "kubelet",
            "kubelet --eviction-hard=memory.available<500Mi,nodefs.available<5%",
            "",
            "memory.available<500Mi nodefs.available<5%",
        ),
        ("kubelet", "kubelet --eviction-hard memory.available<1Gi --v=2", "", "memory.available<1Gi"),
        ("kubelet", "kubelet --config=/etc/k.yaml --eviction-hard-x=memory.available<1Gi", head, DEFAULTS),
        ("kubelet", "kubelet --config=/etc/k.yaml", hard.as_str(), "memory.available<200Mi"),
        ("kubelet", "kubelet --config /etc/k.yaml --eviction-hard=memory.available<1Gi", &hard, "memory.available<1Gi"),
        ("kubelet", "kubelet --config=/etc/k.yaml", head, DEFAULTS),
        ("kubelet", "kubelet --config=/etc/k.yaml", &soft, "memory.available<200Mi memory.available<500Mi for 1m30s"),
        (
            "kubelet",
            "kubelet --config=/etc/k.yaml --eviction-hard=memory.available<1Gi",
            &soft,
            "memory.available<1Gi memory.available<500Mi for 1m30s",
        ),
        (
            "kubelet",
            "kubelet --config=/etc/k.yaml --eviction-soft=memory.available<1Gi --eviction-soft-grace-period=memory.available=10s",
            &soft,
            "memory.available<200Mi memory.available<1Gi for 10s",
        ),
        (
            "kubelet",
            "kubelet --config=/etc/k.yaml --eviction-soft=memory.available<1Gi",
            head,
            "unknown: the kubelet's flags:",
        ),
        (
            "kubelet",
            "kubelet --config=/etc/k.yaml",
            "evictionHard: {memory.available: 1Gi}\n",
            "unknown: /etc/k.yaml:1: apiVersion: missing",
        ),
        ("kubelet", "kubelet --config=/etc/k.yaml", "{", "unknown: /etc/k.yaml:"),
        ("kubelet", "kubelet --config=/etc/none.yaml", "", "unknown: "),
        ("kubelet", "kubelet --config=/etc/k.yaml --config-dir=/etc", &hard, "memory.available<200Mi"),
        ("kubelet", "kubelet --config=/etc/k.yaml --config-dir=/none", &hard, "memory.available<200Mi"),
        ("k3s-server", "k3s server", "", "unknown: it is part of k3s-server"),
        ("k3s-server", "k3s server --kubelet-arg=eviction-hard=memory.available<5%", "", "memory.available<5%"),
        ("k3s-server", "k3s server --kubelet-arg eviction-hard=memory.available<5%", "", "memory.available<5%"),
    ] {
        let machine = Proc::new();
        machine.process(812, name, command, "system.slice/x.service");
        if !file.is_empty() {
            machine.file("812/root/etc/k.yaml", file);
        }
        let found = thresholds(&machine.only().acts);
        let is_as_expected =
            if expected.starts_with("unknown") { found.starts_with(expected) } else { found == expected };
        assert!(is_as_expected, "{command}: {found}");
    }
    let machine = Proc::new();
    machine.process(1, "kubelet", "kubelet --config=k.yaml", "x");
    machine.file("1/cwd/k.yaml", &hard);
    assert_eq!(thresholds(&machine.only().acts), "memory.available<200Mi", "a relative path");
}

#[test]
fn thresholds_of_earlyoom_are_its_options() {
    for (command, expected) in [
        ("earlyoom", "memory.available<10%"),
        ("earlyoom -r 3600", "memory.available<10%"),
        ("earlyoom -m 5", "memory.available<5%"),
        ("earlyoom -m 4,2 -s 50", "memory.available<4%"),
        ("earlyoom -m7", "memory.available<7%"),
        ("earlyoom -M 102400,51200", "memory.available<100Mi"),
        ("earlyoom -m 5 -M 102400", "memory.available<100Mi"),
        ("earlyoom -m", "memory.available<10%"),
        ("earlyoom -m much", "memory.available<10%"),
    ] {
        let machine = Proc::new();
        machine.process(812, "earlyoom", command, "system.slice/earlyoom.service");
        assert_eq!(thresholds(&machine.only().acts), expected, "{command}");
    }
}

#[test]
fn the_meaning_follows_from_both_sides_thresholds() {
    let memory = |signal| (signal == Signal::MemoryAvailable).then_some(10 << 30);
    for (name, command, mode, hard, sentence, mend, collides) in [
        (
            "kubelet",
            "kubelet --eviction-hard=memory.available<100Mi",
            Mode::Enforce,
            "memory.available: 100Mi",
            "kubelet (process 812) evicts at memory.available<100Mi; for memory.available it acts at the threshold of this agent, so that \
          two workloads may go for one shortage",
            "set this agent's threshold above",
            true,
        ),
        (
            "kubelet",
            "kubelet --eviction-hard=memory.available<100Mi",
            Mode::Observe,
            "memory.available: 100Mi",
            "one shortage, in mode enforce",
            "set this agent's threshold above",
            true,
        ),
        (
            "kubelet",
            "kubelet --eviction-hard=memory.available<500Mi",
            Mode::Enforce,
            "memory.available: 1%",
            "for memory.available it acts before this agent",
            "or the kubelet's below",
            true,
        ),
        (
            "kubelet",
            "kubelet --eviction-hard=memory.available<100Mi",
            Mode::Enforce,
            "memory.available: 1%",
            "for memory.available it acts after this agent, as a second line",
            "leave it so",
            false,
        ),
        (
            "kubelet",
            "kubelet --eviction-hard=nodefs.available<10%",
            Mode::Enforce,
            "nodefs.available: 5%",
            "for nodefs.available it acts before this agent",
            "above the kubelet's",
            true,
        ),
        (
            "kubelet",
            "kubelet --eviction-hard=memory.available<100Mi --eviction-soft=memory.available<500Mi --eviction-soft-grace-period=memory.available=90s",
            Mode::Enforce,
            "memory.available: 200Mi",
            "evicts at memory.available<100Mi, memory.available<500Mi for 1m30s; for memory.available (soft) it acts before this agent, so that \
          the agent finds little left to decide; for memory.available it acts after this agent, as a second line",
            "set this agent's threshold above",
            true,
        ),
        // The capacity of a disk is not known here, and the agent has no threshold on process ids.
        (
            "kubelet",
            "kubelet --eviction-hard=nodefs.available<10%,pid.available<5%",
            Mode::Enforce,
            "nodefs.available: 5Gi",
            "evicts at nodefs.available<10%, pid.available<5%",
            "leave it so",
            false,
        ),
        (
            "k3s-server",
            "k3s server",
            Mode::Enforce,
            "memory.available: 100Mi",
            "evicts too, at thresholds that are unknown: it is part of k3s-server",
            "compare its evictionHard",
            false,
        ),
        (
            "earlyoom",
            "earlyoom",
            Mode::Enforce,
            "memory.available: 100Mi",
            "ends the process with the highest oom_score, in pods too, at memory.available<10%; for memory.available it acts before this agent",
            "switch earlyoom off",
            true,
        ),
        (
            "earlyoom",
            "earlyoom -M 51200",
            Mode::Enforce,
            "memory.available: 100Mi",
            "as a second line",
            "leave it so",
            false,
        ),
        (
            "systemd-oomd",
            "x",
            Mode::Enforce,
            "memory.available: 100Mi",
            "ManagedOOMMemoryPressure=kill",
            "kubepods.slice",
            false,
        ),
        (
            "oomd",
            "x",
            Mode::Enforce,
            "memory.available: 100Mi",
            "rules of its own configuration",
            "cgroups of pods",
            false,
        ),
        ("nohang", "x", Mode::Enforce, "memory.available: 100Mi", "ends single processes", "switch it off", false),
    ] {
        let machine = Proc::new();
        machine.process(812, name, command, "system.slice/x.service");
        let head = "apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n";
        let text = format!("{head}mode: {}\nevictionHard: {{{hard}}}\n", mode.as_str());
        let config = MonitorConfig::parse("m.yaml", &text).unwrap().config;
        let meaning = machine.only().meaning(&config, &memory);
        assert!(meaning.sentence.contains(sentence), "{command} {hard}: {meaning:?}");
        assert!(meaning.mend.contains(mend), "{command} {hard}: {meaning:?}");
        assert_eq!(meaning.collides, collides, "{command} {hard}: {meaning:?}");
    }
}

/// k3s-io/k3s#10399, rancher/rke2#4043, awslabs/amazon-eks-ami#2335: the settings are spread over a file, drop-ins and flags.
#[test]
fn drop_ins_of_a_running_kubelet_count() {
    let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
    let of_k3s = "evictionHard: {imagefs.available: 5%, nodefs.available: 5%}\n";
    let k3s = "var/lib/rancher/k3s/agent/etc/kubelet.conf.d";
    let (defaults, own) = (format!("{k3s}/00-k3s-defaults.conf"), format!("{k3s}/10-cli-config.conf"));
    for (name, command, files, expected) in [
        (
            "kubelet",
            "kubelet --config=/etc/kubernetes/kubelet/config.json --config-dir=/etc/kubernetes/kubelet/config.json.d --v=2",
            &[
                (
                    "etc/kubernetes/kubelet/config.json",
                    "evictionHard: {memory.available: 100Mi, nodefs.available: 10%}\n",
                ),
                ("etc/kubernetes/kubelet/config.json.d/40-nodeadm.conf", "evictionHard: {memory.available: 5%}\n"),
            ][..],
            "memory.available<5% nodefs.available<10%",
        ),
        (
            "kubelet",
            "kubelet --config-dir=/var/lib/rancher/rke2/agent/etc/kubelet.conf.d --containerd=/run/k3s/containerd/containerd.sock",
            &[("var/lib/rancher/rke2/agent/etc/kubelet.conf.d/00-rke2-defaults.conf", of_k3s)],
            "imagefs.available<5% nodefs.available<5%",
        ),
        (
            "k3s-server",
            "/usr/local/bin/k3s server",
            &[(&defaults, of_k3s), (&own, "evictionHard: {memory.available: 500Mi, nodefs.available: 3%}\n")],
            "imagefs.available<5% memory.available<500Mi nodefs.available<3%",
        ),
        (
            "k3s-agent",
            "k3s agent --data-dir /data --kubelet-arg=config=/etc/none.yaml",
            &[("data/agent/etc/kubelet.conf.d/00-k3s-defaults.conf", of_k3s)],
            "imagefs.available<5% nodefs.available<5%",
        ),
        (
            "k3s-server",
            "k3s server --kubelet-arg eviction-hard=memory.available<1Gi --kubelet-arg=v=2",
            &[(&defaults, of_k3s)],
            "memory.available<1Gi",
        ),
    ] {
        let machine = Proc::new();
        machine.process(812, name, command, "system.slice/x.service");
        for (path, text) in files {
            machine.file(&format!("812/root/{path}"), &format!("{head}{text}"));
        }
        assert_eq!(thresholds(&machine.only().acts), expected, "{command}");
    }
    let machine = Proc::new();
    machine.process(812, "rke2 server", "rke2 server", "system.slice/rke2-server.service");
    machine.file("812/root/etc/rancher/rke2/config.yaml", "kubelet-arg: [max-pods=50]\n");
    machine.file(
        "812/root/etc/rancher/rke2/config.yaml.d/50-rancher.yaml",
        "kubelet-arg+: [\"eviction-hard=memory.available<2Gi\"]\n",
    );
    assert_eq!(thresholds(&machine.only().acts), "memory.available<2Gi", "config.yaml.d");
    let machine = Proc::new();
    machine.process(812, "kubelet", "kubelet --config-dir=/d", "x");
    machine.file("812/root/d/1.conf", "evictionHard: {memory.available: 1Gi}\n");
    assert_eq!(
        thresholds(&machine.only().acts),
        "unknown: /d/1.conf:1: apiVersion: missing; add `apiVersion: kubelet.config.k8s.io/v1beta1`"
    );
}

/// A pod may nest a cgroup of any name, and its processes are no less the pod's.
#[test]
fn a_process_below_a_pod_is_the_pods_by_any_name_of_its_cgroup() {
    for name in [b"\xff".as_slice(), b"caf\xc3", b"plain"] {
        let proc = Proc::new();
        proc.process(5, "kubelet", "/usr/bin/kubelet", "x");
        let cgroup = [b"0::/kubepods/pod1/".as_slice(), name, b"\n"].concat();
        fs::write(proc.0.path().join("5/cgroup"), cgroup).unwrap();
        assert_eq!(find(proc.0.path()), [], "{name:?}");
    }
}

/// giampaolo/psutil#515: a command line may have any bytes.
#[test]
fn a_program_with_any_arguments_is_found() {
    for argument in [b"\xff".as_slice(), b"caf\xc3", b"\xb1\xbd"] {
        let proc = Proc::new();
        proc.process(5, "earlyoom", "x", "system.slice/earlyoom.service");
        let command = [b"/usr/bin/earlyoom\0-m\x0020\0--prefer\0".as_slice(), argument, b"\0"].concat();
        fs::write(proc.0.path().join("5/cmdline"), command).unwrap();
        let OtherKiller { acts, .. } = proc.only();
        assert!(matches!(&acts, Acts::At(thresholds) if thresholds[0].to_string().contains("20%")), "{acts:?}");
    }
}
