//! The kind that a document states by `apiVersion` and `kind`.

use super::{FileKind, distributions, kubelet_configuration, monitor_configuration, openshift3, wrapped};
use crate::config::config_error::{ConfigError, ConfigErrors};
use crate::config::document_walk::{Field, Walk};
use crate::config::yaml::{Node, Value};

/// The `kind` of a Kubernetes object that has files in it.
pub const CONFIG_MAP: &str = "ConfigMap";

/// A kind, the versions of it that are known, and these in words.
type Versions = (&'static str, &'static [&'static str], &'static str);

/// Talos' first document has a version of its own.
const TALOS: Versions = ("Talos' machine configuration", &["v1alpha1"], "v1alpha1");
/// The kinds whose name says too little, and the versions of each that are known.
const VERSIONS: [Versions; 5] = [
    (openshift3::KIND, &["v1", distributions::EKS_API_VERSION], "v1 (OpenShift 3) or node.eks.aws/v1alpha1 (EKS)"),
    (wrapped::OPERATOR_KIND, &["machineconfiguration.openshift.io/v1"], "machineconfiguration.openshift.io/v1"),
    ("EC2NodeClass", &["karpenter.k8s.aws/v1"], "karpenter.k8s.aws/v1"),
    (
        "NodePool",
        &["karpenter.sh/v1beta1"],
        "karpenter.sh/v1beta1; since karpenter.sh/v1 an EC2NodeClass has the kubelet's fields",
    ),
    ("Provisioner", &["karpenter.sh/v1alpha5"], "karpenter.sh/v1alpha5"),
];

const KNOWN: &str = "write MonitorConfiguration, KubeletConfiguration or NodeConfig; also known are KubeletConfig of OpenShift 4, EC2NodeClass of \
                     Karpenter, a ConfigMap with one of these, Talos' machine configuration, config.yaml of k3s and RKE2, and flags";

/// The kind that a document names.
#[derive(Debug)]
pub struct StatedKind<'n> {
    pub name: &'n str,
    /// Whether the document is a configuration for certain.
    pub is_explicit: bool,
}

pub fn kind_of(document: &Node) -> StatedKind<'_> {
    let text = |name| document.field(name).and_then(Node::text).unwrap_or_default();
    let name = text("kind");
    let is_known = [monitor_configuration::KIND, kubelet_configuration::KIND, openshift3::KIND].contains(&name);
    let is_kubelets = name.is_empty() && text("apiVersion") == kubelet_configuration::API_VERSION;
    let is_openshift = document.field(openshift3::ARGUMENTS).is_some();
    StatedKind { name, is_explicit: is_known || is_kubelets || is_openshift }
}

/// Refuses a kind in a version that is not known: its fields may mean something else.
pub fn refuse_api_version(file_name: &str, document: &Node) -> Result<(), ConfigErrors> {
    let kind = kind_of(document).name;
    let stated = VERSIONS.iter().find(|(name, ..)| *name == kind);
    let (field, (kind, known, shown)) = match stated {
        Some(stated) => ("apiVersion", stated),
        None if distributions::has_kubelet_of_talos(document) => ("version", &TALOS),
        None => return Ok(()),
    };
    let Some((node, version)) = document.field(field).and_then(|node| Some((node, node.text()?))) else {
        return Ok(());
    };
    if known.contains(&version) {
        return Ok(());
    }
    let error = ConfigError {
        file: file_name.to_owned(),
        field: field.to_owned(),
        value: Some(version.to_owned()),
        ..ConfigError::at(node.line, node.column, format!("not a known version of {kind}"), format!("known: {shown}"))
    };
    Err(ConfigErrors(vec![error]))
}

/// Returns the kind of a file, or `None` after recording that the file is of no known kind.
pub fn kind(walk: &mut Walk<'_>, document: &Node) -> Option<FileKind> {
    if !matches!(document.value, Value::Mapping(_)) {
        let reason = match document.value {
            Value::Null => "the file is empty".to_owned(),
            _ => format!("the file must be a map of fields, not {}", document.value.kind()),
        };
        let (version, kind) = (monitor_configuration::API_VERSION, monitor_configuration::KIND);
        let fix = format!("start with `apiVersion: {version}` and `kind: {kind}`");
        walk.error(&Field { path: String::new(), node: document }, reason, &fix);
        return None;
    }
    let text = |name: &str| document.field(name).and_then(Node::text).unwrap_or_default();
    let (reason, fix) = match text("kind") {
        monitor_configuration::KIND => return Some(FileKind::Monitor),
        kubelet_configuration::KIND => return Some(FileKind::Kubelet),
        openshift3::KIND => return Some(FileKind::OpenShift3),
        _ if document.field(openshift3::ARGUMENTS).is_some() => return Some(FileKind::OpenShift3),
        "" if text("apiVersion") == kubelet_configuration::API_VERSION => return Some(FileKind::Kubelet),
        "" => return Some(FileKind::Monitor),
        CONFIG_MAP => (
            "a ConfigMap without a configuration in its `data`, or with several",
            "save the text below one of its `data` keys (node-config.yaml, kubelet) as a file of its own, and name that",
        ),
        wrapped::OPERATOR_KIND | "MachineConfig" => (
            "a resource of OpenShift's operators without fields of the kubelet",
            "name the file that they write on the node: /etc/kubernetes/kubelet.conf",
        ),
        _ => ("not one of the kinds of configuration", KNOWN),
    };
    walk.error(&Field { path: "kind".to_owned(), node: document.field("kind").unwrap_or(document) }, reason, fix);
    None
}
