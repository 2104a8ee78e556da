//! Translates a pod's object into the kubelet's request to the runtime. An unknown field is an error, so that a test covers the
//! whole manifest.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::wire::Message;

/// The paths that the kubelet masks in every container with the default `procMount` (pkg/securitycontext).
const MASKED: [&str; 11] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];
/// CRI's NamespaceMode.
const OF_THE_POD: u64 = 0;
const OF_THE_CONTAINER: u64 = 1;
const OF_THE_NODE: u64 = 2;
/// CRI's MountPropagation.
const HOST_TO_CONTAINER: u64 = 1;
const BIDIRECTIONAL: u64 = 2;

/// The facts that the kubelet adds to the object.
#[derive(Debug)]
pub struct Surroundings<'a> {
    pub node_name: &'a str,
    /// Host and port of the API server, which every container finds in its environment.
    pub api_server: (String, u16),
    /// The path of each volume on the node.
    pub volumes: BTreeMap<String, PathBuf>,
    /// The memory of the node in bytes.
    pub memory: u64,
}

/// Returns the namespaces of the pod.
pub fn namespaces(pod: &Value) -> Message {
    let mode = |field: &str, else_it_is: u64| if flag(&pod["spec"], field) { OF_THE_NODE } else { else_it_is };
    // There is no network plugin: every pod uses the node's network.
    Message::default()
        .number(1, OF_THE_NODE)
        .number(2, mode("hostPID", OF_THE_CONTAINER))
        .number(3, mode("hostIPC", OF_THE_POD))
}

/// Refuses fields that the translation does not carry over.
pub fn check_pod(pod: &Value) -> Result<()> {
    known(
        &pod["spec"],
        "spec",
        &[
            // These fields are carried over, or concern only the scheduler and controllers.
            "affinity",
            "automountServiceAccountToken",
            "containers",
            "dnsPolicy",
            "enableServiceLinks",
            "hostIPC",
            "hostNetwork",
            "hostPID",
            "nodeName",
            "nodeSelector",
            "preemptionPolicy",
            "priority",
            "priorityClassName",
            "restartPolicy",
            "schedulerName",
            "serviceAccount",
            "serviceAccountName",
            "terminationGracePeriodSeconds",
            "tolerations",
            "volumes",
            // This object must be empty; the check below refuses any field in it.
            "securityContext",
        ],
    )?;
    known(&pod["spec"]["securityContext"], "spec.securityContext", &[])
}

/// Translates one container, without its name, image and labels.
pub fn container(message: Message, pod: &Value, container: &Value, around: &Surroundings<'_>) -> Result<Message> {
    known(
        container,
        "container",
        &[
            "args",
            "command",
            "env",
            "image",
            "imagePullPolicy",
            "livenessProbe",
            "name",
            "ports",
            "readinessProbe",
            "resources",
            "securityContext",
            "startupProbe",
            "terminationMessagePath",
            "terminationMessagePolicy",
            "volumeMounts",
        ],
    )?;
    let mut message = message;
    for (field, list) in [(3, "command"), (4, "args")] {
        for word in items(&container[list]) {
            message = message.text(field, word.as_str().with_context(|| format!("{list}: {word}"))?);
        }
    }
    let (host, port) = &around.api_server;
    let port = port.to_string();
    let mut variables = vec![
        ("KUBERNETES_SERVICE_HOST".to_owned(), host.clone()),
        ("KUBERNETES_SERVICE_PORT".to_owned(), port.clone()),
        ("KUBERNETES_SERVICE_PORT_HTTPS".to_owned(), port),
    ];
    for variable in items(&container["env"]) {
        variables.push((text(variable, "name")?.to_owned(), value_of(variable, pod, around)?));
    }
    for (key, value) in variables {
        message = message.entry(6, &key, &value);
    }
    for mount in items(&container["volumeMounts"]) {
        message = message.part(7, &mount_of(mount, around)?);
    }
    let linux = Message::default()
        .part(1, &resources(pod, container, around)?)
        .part(2, &security(pod, &container["securityContext"])?);
    Ok(message.part(15, &linux))
}

fn value_of(variable: &Value, pod: &Value, around: &Surroundings<'_>) -> Result<String> {
    known(variable, "env", &["name", "value", "valueFrom"])?;
    if let Some(value) = variable["value"].as_str() {
        return Ok(value.to_owned());
    }
    Ok(match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
        Some("spec.nodeName") => around.node_name.to_owned(),
        Some("metadata.name") => text(&pod["metadata"], "name")?.to_owned(),
        Some("metadata.namespace") => text(&pod["metadata"], "namespace")?.to_owned(),
        Some("status.hostIP" | "status.podIP") => "127.0.0.1".to_owned(),
        _ => bail!("env: the value of {variable} is not known here"),
    })
}

fn mount_of(mount: &Value, around: &Surroundings<'_>) -> Result<Message> {
    known(mount, "volumeMounts", &["name", "mountPath", "readOnly", "mountPropagation"])?;
    let volume = text(mount, "name")?;
    let place = around.volumes.get(volume).with_context(|| format!("there is no volume {volume}"))?;
    let propagation = match mount["mountPropagation"].as_str() {
        None | Some("None") => 0,
        Some("HostToContainer") => HOST_TO_CONTAINER,
        Some("Bidirectional") => BIDIRECTIONAL,
        Some(other) => bail!("mountPropagation: {other}"),
    };
    Ok(Message::default()
        .text(1, text(mount, "mountPath")?)
        .text(2, &place.to_string_lossy())
        .number(3, u64::from(flag(mount, "readOnly")))
        .number(5, propagation))
}

fn resources(pod: &Value, container: &Value, around: &Surroundings<'_>) -> Result<Message> {
    let amounts = &container["resources"];
    known(amounts, "resources", &["requests", "limits"])?;
    known(&amounts["limits"], "limits", &["memory"])?;
    known(&amounts["requests"], "requests", &["cpu", "memory"])?;
    let amount = |list: &str, name: &str| amounts[list][name].as_str().map_or(Ok(0), quantity);
    let shares = (amount("requests", "cpu")? * 1024 / 1000).max(2);
    let is_critical = pod["spec"]["priorityClassName"] == "system-node-critical";
    // pkg/kubelet/qos/policy.go.
    let score = if is_critical {
        -997
    } else {
        let share = amount("requests", "memory")? * 1000 / around.memory.max(1);
        (1000 - i64::try_from(share)?).clamp(3, 999)
    };
    Ok(Message::default()
        .number(3, shares)
        .number(4, amount("limits", "memory")?)
        // A negative number is sent in 64 bits.
        .number(5, score.cast_unsigned()))
}

/// Parses a quantity in bytes or, with the suffix `m`, in thousandths.
fn quantity(text: &str) -> Result<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "" | "m" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => bail!("{text:?}: unit {unit:?}"),
    };
    Ok(number.parse::<u64>().with_context(|| format!("quantity {text:?}"))? * factor)
}

fn security(pod: &Value, context: &Value) -> Result<Message> {
    known(
        context,
        "securityContext",
        &[
            "allowPrivilegeEscalation",
            "appArmorProfile",
            "capabilities",
            "privileged",
            "readOnlyRootFilesystem",
            "runAsGroup",
            "runAsNonRoot",
            "runAsUser",
            "seLinuxOptions",
            "seccompProfile",
        ],
    )?;
    let mut capabilities = Message::default();
    for (field, list) in [(1, "add"), (2, "drop")] {
        for name in items(&context["capabilities"][list]) {
            capabilities = capabilities.text(field, name.as_str().with_context(|| format!("capability {name}"))?);
        }
    }
    let is_privileged = flag(context, "privileged");
    let mut message = Message::default()
        .part(1, &capabilities)
        .number(2, u64::from(is_privileged))
        .part(3, &namespaces(pod))
        .number(7, u64::from(flag(context, "readOnlyRootFilesystem")))
        .number(11, u64::from(context["allowPrivilegeEscalation"] == false))
        // Without a profile in the spec, the kubelet asks for none (no --seccomp-default).
        .part(15, &profile(&context["seccompProfile"], UNCONFINED)?)
        .part(16, &profile(&context["appArmorProfile"], RUNTIME_DEFAULT)?);
    // This kernel's command line does not enable SELinux.
    for (field, name) in [(5, "runAsUser"), (12, "runAsGroup")] {
        if let Some(id) = context[name].as_u64() {
            message = message.part(field, &Message::default().number(1, id));
        }
    }
    if !is_privileged {
        message = MASKED.iter().fold(message, |message, path| message.text(13, path));
        message = READ_ONLY.iter().fold(message, |message, path| message.text(14, path));
    }
    Ok(message)
}

const RUNTIME_DEFAULT: u64 = 0;
const UNCONFINED: u64 = 1;

fn profile(wanted: &Value, unsaid: u64) -> Result<Message> {
    let kind = match wanted["type"].as_str() {
        None => unsaid,
        Some("RuntimeDefault") => RUNTIME_DEFAULT,
        Some("Unconfined") => UNCONFINED,
        Some(other) => bail!("security profile {other}"),
    };
    Ok(Message::default().number(1, kind))
}

/// Refuses fields that this translation does not know.
fn known(object: &Value, what: &str, fields: &[&str]) -> Result<()> {
    let Some(object) = object.as_object() else { return Ok(()) };
    match object.keys().find(|key| !fields.contains(&key.as_str())) {
        Some(unknown) => bail!("{what}.{unknown} is not carried over to the runtime by this test"),
        None => Ok(()),
    }
}

/// Returns the items of a list, or none if the value is no list.
pub fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

/// Returns a required text field.
pub fn text<'a>(object: &'a Value, field: &str) -> Result<&'a str> {
    object[field].as_str().with_context(|| format!("no {field} in {object}"))
}

pub fn flag(object: &Value, field: &str) -> bool {
    object[field].as_bool().unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn around() -> Surroundings<'static> {
        Surroundings {
            node_name: "guest",
            api_server: ("127.0.0.1".to_owned(), 6443),
            volumes: BTreeMap::from([("cgroup".to_owned(), "/sys/fs/cgroup".into())]),
            memory: 1 << 30,
        }
    }

    #[test]
    fn unknown_fields_are_refused() {
        let pod = |spec| json!({"spec": spec});
        assert!(check_pod(&pod(json!({"hostPID": true, "containers": []}))).is_ok());
        let error = check_pod(&pod(json!({"shareProcessNamespace": true}))).unwrap_err().to_string();
        assert!(error.contains("spec.shareProcessNamespace"), "{error}");
        let lifecycle = json!({"name": "x", "lifecycle": {}});
        assert!(container(Message::default(), &pod(json!({})), &lifecycle, &around()).is_err());
    }

    #[test]
    fn quantities_are_read() {
        assert_eq!(quantity("20m").unwrap(), 20);
        assert_eq!(quantity("48Mi").unwrap(), 48 << 20);
        assert!(quantity("1.5Gi").is_err() && quantity("2e3").is_err());
    }

    #[test]
    fn a_mount_names_its_volumes_place() {
        let mount = json!({"name": "cgroup", "mountPath": "/sys/fs/cgroup", "mountPropagation": "HostToContainer"});
        let expected = Message::default().text(1, "/sys/fs/cgroup").text(2, "/sys/fs/cgroup").number(5, 1);
        assert_eq!(mount_of(&mount, &around()).unwrap().encoded(), expected.encoded());
        assert!(mount_of(&json!({"name": "else", "mountPath": "/x"}), &around()).is_err());
    }
}
