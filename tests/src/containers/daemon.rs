//! The agent's pod on this node, made as the DaemonSet controller makes it and run as the kubelet runs it.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::translation::{self, Surroundings, items, text};
use super::volumes::{self, Files, Sources};
use super::wire::Message;
use super::{Node, NodePod, manifests};
use crate::agent::Agent;
use crate::cgroups::Qos;
use crate::control_plane::{ControlPlane, NODE};
use crate::evidence::meminfo;
use crate::stage::Stage;

/// The name of every object that deploys the agent.
pub const NAME: &str = "node-pressure-monitor";
/// The name of the agent's image archive.
const ARCHIVE: &str = "node-pressure-monitor";

/// The agent's pod.
#[derive(Debug)]
pub struct DaemonPod {
    /// The container's id.
    pub id: String,
    pub agent: Agent,
    /// The container's object in the API.
    pub container: Value,
    /// The size of the image, as the runtime reports it.
    pub image_bytes: u64,
    configuration: PathBuf,
    files: Files,
}

impl DaemonPod {
    /// Applies the manifests to the API server and starts the DaemonSet's pod on the node.
    pub fn start(stage: &Stage<'_>, node: &Node, plane: &ControlPlane) -> Result<Self> {
        let objects = manifests::objects()?;
        plane.apply(&objects)?;
        let daemon_set = plane.get(&format!("/apis/apps/v1/namespaces/{NAME}/daemonsets/{NAME}"))?;
        let object = plane.create(&format!("/api/v1/namespaces/{NAME}/pods"), &pod_of(&daemon_set))?;

        let files = data(manifests::find(&objects, "ConfigMap", NAME)?)?;
        let (host, port, certificate) = plane.address()?;
        let authority = Files::from([("ca.crt".to_owned(), certificate)]);
        let config_maps = [(NAME, files.clone()), ("kube-root-ca.crt", authority)];
        let sources = Sources {
            config_maps: config_maps.map(|(name, files)| (name.to_owned(), files)).into(),
            token: plane.service_account(NAME, text(&object["spec"], "serviceAccountName")?)?,
        };
        let places = volumes::make(&object, &sources)?;
        let configuration = place_of_configuration(&object, &places)?;

        let container = object["spec"]["containers"][0].clone();
        let image = text(&container, "image")?;
        let image_bytes = node.import_as(ARCHIVE, image)?.bytes;
        let around =
            Surroundings { node_name: NODE, api_server: (host, port), volumes: places, memory: meminfo("MemTotal")? };
        let config = translation::container(Message::default(), &object, &container, &around)?;
        let qos = if object["status"]["qosClass"] == "Burstable" { Qos::Burstable } else { Qos::BestEffort };
        let pod = NodePod::of_object(stage.layout(), &object, qos)?;
        let name = text(&container, "name")?;
        let id = pod.start(name, image, config)?;
        let processes = pod.scope(stage.layout(), &id).processes();
        let pid = *processes.first().with_context(|| format!("container {name} has no process"))?;
        let port = items(&container["ports"]).find_map(|port| port["containerPort"].as_u64()).context("no port")?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(port)?));
        let agent = Agent::attach(pid, address, pod.log(name));
        Ok(Self { id, agent, container, image_bytes, configuration, files })
    }

    /// Changes the agent's configuration, as an edit of the ConfigMap does.
    pub fn configure(&self, change: impl Fn(&str) -> String) -> Result<()> {
        let files = self.files.iter().map(|(name, content)| (name.clone(), change(content))).collect();
        volumes::publish(&self.configuration, &files)
    }

    /// Returns the path of one of the container's probes.
    pub fn probe(&self, name: &str) -> Result<&str> {
        text(&self.container[name]["httpGet"], "path").with_context(|| format!("{name} is no httpGet"))
    }
}

/// Returns the pod that the DaemonSet controller would make for this node.
fn pod_of(daemon_set: &Value) -> Value {
    let template = &daemon_set["spec"]["template"];
    let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
    pod["metadata"]["name"] = json!(format!("{NAME}-x7k2p"));
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": NAME, "uid": daemon_set["metadata"]["uid"], "controller": true,
    }]);
    pod["spec"]["nodeName"] = json!(NODE);
    pod
}

fn data(config_map: &Value) -> Result<Files> {
    let data = config_map["data"].as_object().context("a ConfigMap without data")?;
    let file = |(name, content): (&String, &Value)| {
        Ok((name.clone(), content.as_str().with_context(|| format!("{name} is no text"))?.to_owned()))
    };
    data.iter().map(file).collect()
}

fn place_of_configuration(pod: &Value, places: &BTreeMap<String, PathBuf>) -> Result<PathBuf> {
    let volume = items(&pod["spec"]["volumes"]).find(|volume| volume["configMap"]["name"] == NAME);
    let name = text(volume.context("no volume is of the ConfigMap")?, "name")?;
    places.get(name).cloned().context("the ConfigMap's volume was not made")
}
