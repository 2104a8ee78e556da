//! The programs of the cluster, each a transient unit of systemd.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::audit;
use super::network::{NODE_ADDRESS, SERVICES};
use super::pki::{DIRECTORY, file};
use crate::containers::runtime::Runtime;
use crate::containers::{run, systemctl};
use crate::control_plane::NODE;
use crate::init::mount_at;

/// The mount point of the programs of Kubernetes.
const PROGRAMS: &str = "/opt/kubernetes";
/// The directory in memory with the control plane's programs.
const IN_MEMORY: &str = "/opt/control-plane";
const CONTROL_PLANE: [Program; 4] = [Program::Etcd, Program::ApiServer, Program::ControllerManager, Program::Scheduler];
const AUDIT_POLICY: &str = "/etc/kubernetes/audit.yaml";
const KUBELET_CONFIG: &str = "/etc/kubernetes/kubelet.yaml";

/// One program of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    Etcd,
    ApiServer,
    ControllerManager,
    Scheduler,
    Kubelet,
}

impl Program {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::ApiServer => "kube-apiserver",
            Self::ControllerManager => "kube-controller-manager",
            Self::Scheduler => "kube-scheduler",
            Self::Kubelet => "kubelet",
        }
    }

    fn unit(self) -> String {
        match self {
            // Debian's package has a unit of the program's own name.
            Self::Etcd => "guest-etcd.service".to_owned(),
            _ => format!("{}.service", self.name()),
        }
    }

    pub fn log(self) -> String {
        format!("/var/log/{}.log", self.name())
    }

    fn arguments(self) -> Vec<String> {
        let in_directory = |name: &str| file(name).display().to_string();
        let words: Vec<String> = match self {
            // The data does not outlive the guest, so it need not reach the disk.
            Self::Etcd => vec!["--data-dir=/mnt/node/etcd".to_owned(), "--unsafe-no-fsync".to_owned()],
            Self::ApiServer => vec![
                "--etcd-servers=http://127.0.0.1:2379".to_owned(),
                "--secure-port=443".to_owned(),
                format!("--advertise-address={NODE_ADDRESS}"),
                format!("--service-cluster-ip-range={SERVICES}"),
                "--authorization-mode=Node,RBAC".to_owned(),
                "--enable-admission-plugins=NodeRestriction".to_owned(),
                "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
                format!("--service-account-key-file={}", in_directory("service-accounts.pub")),
                format!("--service-account-signing-key-file={}", in_directory("service-accounts.key")),
                format!("--client-ca-file={}", in_directory("ca.crt")),
                format!("--tls-cert-file={}", in_directory("apiserver.crt")),
                format!("--tls-private-key-file={}", in_directory("apiserver.key")),
                format!("--kubelet-client-certificate={}", in_directory("admin.crt")),
                format!("--kubelet-client-key={}", in_directory("admin.key")),
                "--profiling=false".to_owned(),
                // The scenarios count events by differences, and on a slow machine a boot lasts longer than the default of an hour.
                "--event-ttl=24h".to_owned(),
                format!("--audit-policy-file={AUDIT_POLICY}"),
                format!("--audit-log-path={}", audit::LOG),
            ],
            Self::ControllerManager => vec![
                format!("--kubeconfig={}", in_directory("controller-manager.conf")),
                format!("--root-ca-file={}", in_directory("ca.crt")),
                format!("--service-account-private-key-file={}", in_directory("service-accounts.key")),
                "--use-service-account-credentials=true".to_owned(),
                "--leader-elect=false".to_owned(),
            ],
            Self::Scheduler => {
                vec![format!("--kubeconfig={}", in_directory("scheduler.conf")), "--leader-elect=false".to_owned()]
            }
            Self::Kubelet => vec![
                format!("--kubeconfig={}", in_directory("kubelet.conf")),
                format!("--config={KUBELET_CONFIG}"),
                format!("--hostname-override={NODE}"),
                format!("--node-ip={NODE_ADDRESS}"),
            ],
        };
        words
    }

    fn on_disk(self) -> String {
        match self {
            Self::Etcd => "/usr/bin/etcd".to_owned(),
            _ => path(self.name()),
        }
    }

    fn in_memory(self) -> String {
        format!("{IN_MEMORY}/{}", self.name())
    }

    /// Starts the program.
    pub fn start(self) -> Result<()> {
        let is_of_control_plane = CONTROL_PLANE.contains(&self);
        let program = if is_of_control_plane { self.in_memory() } else { self.on_disk() };
        // The score of a node's own services: the kernel's OOM killer leaves them alone.
        let mut properties = vec!["OOMScoreAdjust=-999".to_owned(), "Delegate=yes".to_owned()];
        if is_of_control_plane {
            // A control plane on another machine waits for none of the node's services. Against pods the control plane has the share of all services.
            properties.push("CPUWeight=10000".to_owned());
        }
        // A controller manager gives up when the API server is not healthy within ten seconds.
        properties.extend(["Restart=always".to_owned(), "RestartSec=1".to_owned()]);
        properties.extend(["StandardOutput", "StandardError"].map(|stream| format!("{stream}=append:{}", self.log())));
        let mut words = vec!["--quiet".to_owned(), "--collect".to_owned(), format!("--unit={}", self.unit())];
        words.extend(properties.into_iter().map(|property| format!("--property={property}")));
        words.push(program);
        words.extend(self.arguments());
        run("systemd-run", &words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    pub fn stop(self) -> Result<()> {
        systemctl(&["stop", &self.unit()])
    }

    /// Returns the id of the program's process.
    pub fn pid(self) -> Result<i32> {
        let mut show = Command::new("systemctl");
        let output = show.args(["show", "--property=MainPID", "--value", &self.unit()]).output();
        let output = output.context("start systemctl")?;
        String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .with_context(|| format!("the process of {}", self.name()))
    }

    /// Returns the last lines of the program's log.
    pub fn tail(self, lines: usize) -> Vec<String> {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all[all.len().saturating_sub(lines)..].iter().map(|line| (*line).to_owned()).collect()
    }
}

/// Returns the path of a program of Kubernetes.
pub fn path(program: &str) -> String {
    format!("{PROGRAMS}/{program}")
}

/// Mounts the disk with the programs of Kubernetes, and writes their configuration. As a rule a control plane runs on another machine. Its programs
/// are in memory here: a node without memory does not drop their pages, and no request waits for the disk.
pub fn arrange(device: &str) -> Result<()> {
    mount_at(device, PROGRAMS, "ext4", "")?;
    mount_at("tmpfs", IN_MEMORY, "tmpfs", "")?;
    for program in CONTROL_PLANE {
        fs::copy(program.on_disk(), program.in_memory()).with_context(|| format!("copy {}", program.name()))?;
    }
    fs::write(AUDIT_POLICY, audit::policy()).with_context(|| format!("write {AUDIT_POLICY}"))?;
    configure_kubelet("")
}

/// Writes the kubelet's configuration with these further fields. The kubelet reads it when it starts. Images are kept, because there is no registry:
/// under pressure on a disk the kubelet removes all images that no container uses, also the image of sandboxes, which containerd 1.6 does not pin.
pub fn configure_kubelet(fields: &str) -> Result<()> {
    let text = format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         authentication: {{anonymous: {{enabled: false}}, x509: {{clientCAFile: {DIRECTORY}/ca.crt}}, webhook: {{enabled: false}}}}\n\
         authorization: {{mode: AlwaysAllow}}\ncgroupDriver: systemd\n\
         containerRuntimeEndpoint: unix://{}\n\
         imageGCHighThresholdPercent: 100\nimageMinimumGCAge: 24h\nfailSwapOn: false\nresolvConf: /etc/resolv.conf\n\
         evictionPressureTransitionPeriod: 10s\nfailCgroupV1: false\n{fields}",
        Runtime::here().socket()
    );
    fs::write(KUBELET_CONFIG, text).with_context(|| format!("write {KUBELET_CONFIG}"))
}
