//! The network of a cluster of one node. Pods are on a bridge. The address of the API server's service is the node's own, so no kube-proxy is
//! needed.

use std::fs;

use anyhow::{Context, Result};

use crate::containers::run;

/// The address of the service `kubernetes`, the first of [`SERVICES`].
pub const API_SERVER: &str = "10.96.0.1";
pub const SERVICES: &str = "10.96.0.0/24";
/// The node's address on the bridge of its pods.
pub const NODE_ADDRESS: &str = "10.244.0.1";
const BRIDGE: &str = "cni0";

/// The plugin chain of CNI, of the default kind on a node without a network of other nodes. The check by CRI-O is disabled: udev may change the
/// hardware address that the check compares.
const PODS: &str = r#"{
  "cniVersion": "0.4.0",
  "name": "pods",
  "disableCheck": true,
  "plugins": [{
    "type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}
  }]
}
"#;

pub fn arrange() -> Result<()> {
    let (gateway, service) = (format!("{NODE_ADDRESS}/24"), format!("{API_SERVER}/32"));
    for words in [
        &["link", "add", BRIDGE, "type", "bridge"][..],
        &["addr", "add", &gateway, "dev", BRIDGE],
        &["link", "set", BRIDGE, "up"],
        &["addr", "add", &service, "dev", "lo"],
        &["link", "set", "lo", "up"],
        // A kubelet looks for a default route.
        &["route", "add", "default", "dev", BRIDGE],
    ] {
        run("ip", words)?;
    }
    fs::create_dir_all("/etc/cni/net.d").context("create /etc/cni/net.d")?;
    fs::write("/etc/cni/net.d/10-pods.conflist", PODS).context("write the configuration of the pod network")
}
