//! The settings of a kubelet in the files of distributions: EKS' `NodeConfig`, Karpenter's node classes, Talos' machine configuration, and the
//! `config.yaml` of k3s and RKE2. Each is known by what it states, and gives the layers that the distribution makes of it.

use super::layers::{Layers, patch, text_at};
use super::other_files::NamedText;
use crate::config::document_walk::{Field, Walk};
use crate::config::yaml::{Node, Value};

pub const EKS_API_VERSION: &str = "node.eks.aws/v1alpha1";

/// What nodeadm writes into the file of `--config`, over which it has the kubelet merge `spec.kubelet.config`
/// (nodeadm/internal/kubelet/config.go in awslabs/amazon-eks-ami). Its `kubeReserved` depends on the instance.
const NODEADM: &str = "evictionHard: {memory.available: 100Mi, nodefs.available: 10%, nodefs.inodesFree: 5%}\n";
/// What Talos reserves where `systemReserved` is not given (`KubeletSystemReserved…` in pkg/machinery/constants of siderolabs/talos).
const TALOS_WORKER: &str = "systemReserved: {cpu: 50m, memory: 384Mi, pid: \"100\", ephemeral-storage: 256Mi}\n";
const TALOS_CONTROL_PLANE: &str = "systemReserved: {cpu: 50m, memory: 512Mi, pid: \"100\", ephemeral-storage: 256Mi}\n";
/// The drop-in `00-k3s-defaults.conf` that k3s and RKE2 write since 1.32, as far as it concerns evictions (pkg/daemons/agent/agent.go).
const K3S: &str = "evictionHard: {imagefs.available: 5%, nodefs.available: 5%}
evictionMinimumReclaim: {imagefs.available: 10%, nodefs.available: 10%}
";

/// The names that a map of a document may have.
#[derive(Debug)]
pub struct Names {
    /// Where the map is; empty for the document.
    pub path: &'static str,
    pub known: &'static str,
    /// Whether these are all, or only those that a misspelt one may be meant as.
    pub are_all: bool,
}

const RESOURCE: Names = Names { path: "", known: "apiVersion kind metadata spec status", are_all: true };
const EKS: [Names; 3] = [
    RESOURCE,
    Names { path: "spec", known: "cluster containerd instance kubelet featureGates", are_all: true },
    Names { path: "spec.kubelet", known: "config flags maxPodsExpression", are_all: true },
];
const KARPENTER: [Names; 2] = [
    RESOURCE,
    Names { path: "spec", known: "kubelet kubeletConfiguration template tags userData amiFamily role", are_all: false },
];
const TALOS: [Names; 3] = [
    Names { path: "", known: "version debug persist machine cluster", are_all: true },
    Names { path: "machine", known: "kubelet", are_all: false },
    Names {
        path: "machine.kubelet",
        known: "image clusterDNS extraArgs extraMounts extraConfig credentialProviderConfig defaultRuntimeSeccompProfileEnabled \
                registerWithFQDN nodeIP skipNodeRegistration disableManifestsDirectory",
        are_all: true,
    },
];

/// Warns about names around the kubelet's fields that the document's kind does not have: what is below them is not read.
pub fn check_names(walk: &mut Walk<'_>, document: &Node, names: &[Names]) {
    for Names { path, known, are_all } in names {
        let Some(node) = at(document, path) else { continue };
        let Value::Mapping(pairs) = &node.value else { continue };
        walk.known_fields(&Field { path: (*path).to_owned(), node }, known);
        for (key, _) in pairs.iter().filter(|_| *are_all) {
            let Some(name) = key.text().filter(|name| !known.split(' ').any(|known| known == *name)) else { continue };
            if !walk.has_note_at(key) {
                let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
                let fix = format!("known here: {}", known.split(' ').collect::<Vec<_>>().join(", "));
                walk.warning_at(&path, key, None, "no field of this kind of file, and not read", &fix);
            }
        }
    }
}

/// The layers in a file of a distribution.
#[derive(Debug)]
pub struct Found {
    /// What the document is, for a sentence.
    pub what: &'static str,
    pub names: &'static [Names],
    /// Where the kubelet's fields are in the document.
    pub path: &'static str,
    /// What the distribution sets below them.
    pub own: Option<NamedText>,
    /// Whether the distribution's settings are the kubelet's own file, or the first drop-in.
    pub own_is_file: bool,
    pub fields: Option<Node>,
    pub flags: Option<Node>,
    /// The reason for a warning, and the advice.
    pub notice: (String, &'static str),
}

impl Found {
    /// Returns the layers, with `own` parsed.
    pub fn layers(self, own: Option<Node>) -> Layers {
        let Self { own_is_file, fields, flags, .. } = self;
        match own_is_file {
            true => Layers { base: Some(own.unwrap_or_else(empty)), drop_ins: fields.into_iter().collect(), flags },
            // Talos puts both into one file.
            false => {
                let mut base = own.unwrap_or_else(empty);
                fields.into_iter().for_each(|fields| patch(&mut base, fields));
                Layers { base: Some(base), drop_ins: Vec::new(), flags }
            }
        }
    }
}

fn empty() -> Node {
    Node { line: 1, column: 1, value: Value::Mapping(Vec::new()) }
}

fn own(name: &str, text: &str) -> Option<NamedText> {
    Some(NamedText { name: name.to_owned(), text: text.to_owned() })
}

fn at<'n>(document: &'n Node, path: &str) -> Option<&'n Node> {
    path.split('.')
        .filter(|name| !name.is_empty())
        .try_fold(document, |node, name| node.field(name))
        .filter(|node| node.value != Value::Null)
}

fn text<'n>(document: &'n Node, name: &str) -> &'n str {
    document.field(name).and_then(Node::text).unwrap_or_default()
}

/// Returns the layers in a document that states its kind, or that is Talos' machine configuration.
pub fn find(document: &Node) -> Option<Found> {
    let (api_version, kind) = (text(document, "apiVersion"), text(document, "kind"));
    match (api_version, kind) {
        (EKS_API_VERSION, "NodeConfig") => Some(of_eks(document)),
        ("karpenter.k8s.aws/v1", "EC2NodeClass") => Some(of_karpenter(document, "spec.kubelet")),
        ("karpenter.sh/v1beta1", "NodePool") => Some(of_karpenter(document, "spec.template.spec.kubelet")),
        ("karpenter.sh/v1alpha5", "Provisioner") => Some(of_karpenter(document, "spec.kubeletConfiguration")),
        ("", "") if is_talos(document) => Some(of_talos(document)),
        _ => None,
    }
}

fn of_eks(document: &Node) -> Found {
    let reason = "nodeadm has the kubelet merge these fields key by key over its own file, which has memory.available<100Mi, \
                  nodefs.available<10% and nodefs.inodesFree<5%, and a kubeReserved that depends on the instance and is not known here";
    Found {
        what: "NodeConfig of EKS",
        names: &EKS,
        path: "spec.kubelet.config",
        own: own("nodeadm's own settings", NODEADM),
        own_is_file: true,
        fields: at(document, "spec.kubelet.config").cloned(),
        flags: at(document, "spec.kubelet.flags").map(flags_of_list),
        notice: (reason.to_owned(), "for all of it, name what the node's kubelet answers to /configz"),
    }
}

fn of_karpenter(document: &Node, path: &'static str) -> Found {
    let fields = at(document, path).cloned();
    let has_hard = fields.as_ref().is_some_and(|fields| at(fields, "evictionHard").is_some());
    let family = ami_family(document);
    // On Amazon Linux 2 a flag replaces the whole map of its file, which has the thresholds of nodeadm, too.
    let (has_own, reason) = match family.as_deref() {
        None | Some("al2023") => (
            true,
            "on Amazon Linux 2023 these fields are merged key by key over those of nodeadm (memory.available<100Mi, \
             nodefs.available<10%, nodefs.inodesFree<5%), as here; on Amazon Linux 2 they become flags, which replace them; userData \
             and kubeReserved are not known here",
        ),
        Some("al2") => (
            !has_hard,
            "on Amazon Linux 2 these fields become flags, which replace the maps of the kubelet's file, as here; userData and kubeReserved are \
             not known here",
        ),
        Some(_) => (
            false,
            "the settings of this family of images are not known here: where these fields say nothing, the image decides",
        ),
    };
    Found {
        what: "resource of Karpenter",
        names: &KARPENTER,
        path,
        own: if has_own { own("nodeadm's own settings", NODEADM) } else { None },
        own_is_file: has_own,
        fields,
        flags: None,
        notice: (reason.to_owned(), "for all of it, name what the node's kubelet answers to /configz"),
    }
}

/// Returns the family of images in lower case: `amiFamily`, or what stands before the version in the alias of an image.
fn ami_family(document: &Node) -> Option<String> {
    let terms = at(document, "spec.amiSelectorTerms").map(|terms| &terms.value);
    let terms = if let Some(Value::Sequence(terms)) = terms { &terms[..] } else { &[] };
    let alias = terms.iter().find_map(|term| term.field("alias").and_then(Node::text)?.split('@').next());
    let family = at(document, "spec.amiFamily").and_then(Node::text).or(alias);
    family.map(str::to_ascii_lowercase)
}

/// Talos' first document states a version and no kind. A patch of it may have `machine` alone.
fn is_talos(document: &Node) -> bool {
    document.field("machine").is_some()
        && (document.field("version").and_then(Node::text) == Some("v1alpha1") || has_kubelet_of_talos(document))
}

/// Returns whether a document without a kind has the field of Talos with the kubelet's settings.
pub fn has_kubelet_of_talos(document: &Node) -> bool {
    text(document, "kind").is_empty() && at(document, "machine.kubelet").is_some()
}

fn of_talos(document: &Node) -> Found {
    let fields = at(document, "machine.kubelet.extraConfig").cloned();
    let reserves = fields.as_ref().and_then(|fields| fields.field("systemReserved"));
    let is_reserved = reserves.is_some_and(|map| matches!(&map.value, Value::Mapping(pairs) if !pairs.is_empty()));
    let is_control_plane = at(document, "machine.type").and_then(Node::text) == Some("controlplane");
    let reservation = if is_control_plane { TALOS_CONTROL_PLANE } else { TALOS_WORKER };
    let reason = "Talos' own settings count below these fields; patches that are applied later are not known here";
    Found {
        what: "machine configuration of Talos",
        names: &TALOS,
        path: "machine.kubelet.extraConfig",
        own: if is_reserved { None } else { own("Talos' own settings", reservation) },
        own_is_file: false,
        fields,
        flags: at(document, "machine.kubelet.extraArgs").map(flags_of_map),
        notice: (reason.to_owned(), "for all of it, name what the node's kubelet answers to /configz"),
    }
}

/// The settings of a kubelet in the files of k3s or RKE2.
#[derive(Debug)]
pub struct OfK3s {
    /// The field that has the flags.
    pub path: &'static str,
    pub flags: Node,
    /// The flags that the files leave at the default of k3s, in a version before 1.32.
    pub defaults: Vec<String>,
}

/// The kubelet's flags in `/etc/rancher/k3s/config.yaml` and `/etc/rancher/rke2/config.yaml`.
pub const K3S_ARGUMENTS: &str = "kubelet-arg";
/// The same where the flags are appended to those of the files before.
const K3S_APPENDED: &str = "kubelet-arg+";
/// The thresholds that k3s and RKE2 set by flags before 1.32, and by their drop-in since. In both forms a flag of the user replaces them.
const K3S_DEFAULTS: [(&str, &str); 2] = [
    ("eviction-hard", "imagefs.available<5%,nodefs.available<5%"),
    ("eviction-minimum-reclaim", "imagefs.available=10%,nodefs.available=10%"),
];

/// The drop-in of k3s and RKE2.
pub fn k3s_drop_in() -> NamedText {
    NamedText { name: "00-k3s-defaults.conf".to_owned(), text: K3S.to_owned() }
}

/// Returns the kubelet's flags in the files of k3s or RKE2, in the order in which they are read, or `None` for any other document. These
/// files state no kind.
pub fn of_k3s(documents: &[&Node]) -> Option<OfK3s> {
    let is_stated = |name: &&str| documents.iter().any(|document| document.field(name).is_some());
    if ["apiVersion", "kind", super::openshift3::ARGUMENTS].iter().any(is_stated) {
        return None;
    }
    let last = |name: &'static str| documents.iter().rev().find_map(|document| Some((name, document.field(name)?)));
    let (path, given) = last(K3S_ARGUMENTS).or_else(|| last(K3S_APPENDED))?;
    let items = k3s_items(documents);
    let is_layered = items.iter().any(|item| is_reference(item));
    let mut flags = Vec::new();
    for item in items {
        let default = |name: &str| K3S_DEFAULTS.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        add_flag(&mut flags, item, |name| {
            default(name).filter(|_| !is_layered).map(|value| text_at(given, value, true))
        });
    }
    let mut defaults = Vec::new();
    for (name, value) in K3S_DEFAULTS {
        if !is_layered && !flags.iter().any(|(known, _)| known == name) {
            flags.push((name.to_owned(), vec![text_at(given, value, true)]));
            defaults.push(format!("--{name}={value}"));
        }
    }
    Some(OfK3s { path, flags: map_of(given, flags), defaults })
}

/// Returns the items of `kubelet-arg` in all files: a later file replaces the list of an earlier one, and `kubelet-arg+` appends to it.
pub fn k3s_items<'n>(documents: &[&'n Node]) -> Vec<&'n Node> {
    let mut items = Vec::new();
    for document in documents {
        if let Some(given) = document.field(K3S_ARGUMENTS) {
            items.clear();
            items.extend(list(given));
        }
        items.extend(document.field(K3S_APPENDED).into_iter().flat_map(list));
    }
    items
}

fn is_reference(item: &Node) -> bool {
    let text = item.text().unwrap_or_default().trim_start_matches("--");
    text.starts_with("config=") || text.starts_with("config-dir=")
}

fn list(given: &Node) -> &[Node] {
    match &given.value {
        Value::Sequence(items) => items,
        _ => std::slice::from_ref(given),
    }
}

/// Adds a flag such as `eviction-hard=…`. `name+=value` and `name-=value` add to `default`, which the distribution may have.
fn add_flag(flags: &mut Vec<(String, Vec<Node>)>, item: &Node, default: impl Fn(&str) -> Option<Node>) {
    // The parser of flags refuses what is no text.
    let text = item.text().unwrap_or("eviction-hard").trim_start_matches("--");
    // A flag without a value is a switch.
    let (name, value) = text.split_once('=').unwrap_or((text, "true"));
    let (is_added, name) = (name.ends_with(['+', '-']), name.trim_end_matches(['+', '-']));
    let value = if item.text().is_some() { text_at(item, value, true) } else { item.clone() };
    match flags.iter_mut().find(|(known, _)| known == name) {
        Some((_, values)) => values.push(value),
        None => {
            let before = if is_added { default(name) } else { None };
            flags.push((name.to_owned(), before.into_iter().chain([value]).collect()));
        }
    }
}

fn map_of(place: &Node, flags: Vec<(String, Vec<Node>)>) -> Node {
    let pairs = flags.into_iter().map(|(name, values)| {
        let first = values.first().unwrap_or(place).clone();
        (text_at(&first, &name, true), Node { value: Value::Sequence(values), ..first })
    });
    Node { line: place.line, column: place.column, value: Value::Mapping(pairs.collect()) }
}

/// Returns the map of flags in a list such as `[--eviction-hard=…]`.
fn flags_of_list(given: &Node) -> Node {
    let mut flags = Vec::new();
    list(given).iter().for_each(|item| add_flag(&mut flags, item, |_| None));
    map_of(given, flags)
}

/// Returns the map of flags in a map from names to values, or to lists of them.
fn flags_of_map(given: &Node) -> Node {
    let Value::Mapping(pairs) = &given.value else { return flags_of_list(given) };
    let flags = pairs.iter().filter_map(|(key, value)| Some((key.text()?.to_owned(), list(value).to_vec())));
    map_of(given, flags.collect())
}

/// Returns the kubelet's flags in a document of kubeadm: a map in `v1beta3`, a list of names and values since `v1beta4`. The outer value says
/// whether the document is kubeadm's at all.
pub fn arguments_of_kubeadm(document: &Node) -> Option<Option<Node>> {
    let is_of_node = matches!(text(document, "kind"), "InitConfiguration" | "JoinConfiguration");
    let is_of_kubeadm = text(document, "apiVersion").starts_with("kubeadm.k8s.io/") && is_of_node;
    is_of_kubeadm.then(|| {
        let given = at(document, "nodeRegistration.kubeletExtraArgs")?;
        Some(match &given.value {
            Value::Sequence(items) => {
                let pair = |item: &Node| Some((item.field("name")?.clone(), item.field("value")?.clone()));
                flags_of_map(&Node { value: Value::Mapping(items.iter().filter_map(pair).collect()), ..given.clone() })
            }
            _ => flags_of_map(given),
        })
    })
}

#[cfg(test)]
#[path = "distributions_tests.rs"]
mod tests;
