//! The plugin's drill-downs: Leases and pods of the API server, and an agent behind a port that kubectl forwards.
//!
//! kubectl is a script that names the port. `vm cluster-ramp` runs the real one.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Parser;
use http::Method;
use node_pressure_apiserver::stage::{Stage, lease_path};
use node_pressure_monitor::commands::fleet;
use serde_json::json;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::support::lease;
use super::sweep::silent;

const INCIDENT: &str = r#"{"id":"20260102-030405-oom-7","kind":"OomKill","time":"2026-01-02T03:04:05Z","summary":"java was killed","pod":"batch/report"}"#;
const STATE: &str = r#"{"verdict":{"level":"green","sentence":"no threshold is near"},
    "workloads":[{"workload":"/p","display":"batch/report","namespace":"batch","pod":"report","qosClass":"BestEffort"}],
    "rankings":[{"signal":"memory.available","next":"/p","places":[{"place":1,"workload":"/p","display":"batch/report","keys":[]}]}]}"#;

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    fleet: fleet::Options,
}

/// Answers as an agent with one incident of the pod batch/report does; by TLS with this configuration.
fn agent(tls: Option<Arc<ServerConfig>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            match &tls {
                None => answer(stream).unwrap(),
                Some(tls) => {
                    let connection = ServerConnection::new(Arc::clone(tls)).unwrap();
                    // A client without TLS, or with another certificate, is answered by an alert.
                    let _refused = answer(StreamOwned::new(connection, stream));
                }
            }
        }
    });
    address
}

fn answer(mut stream: impl Read + Write) -> std::io::Result<()> {
    let mut lines = BufReader::new(&mut stream).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    let _headers = lines.map_while(Result::ok).take_while(|line| !line.is_empty()).count();
    let path = request.split(' ').nth(1).unwrap_or_default();
    let body = match path.split_once('?').map_or((path, ""), |(path, query)| (path, query)) {
        ("/incidents", query) if query.contains("pod=batch%2Fother") => "[]".to_owned(),
        ("/incidents", _) => format!("[{INCIDENT}]"),
        ("/incidents/20260102-030405-oom-7", "output=text") => "OOM KILL of java\n".to_owned(),
        ("/api/v1/state", _) => STATE.to_owned(),
        _ => String::new(),
    };
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    stream.flush()
}

/// Returns a server's configuration, and writes its certificate into a file.
fn tls(certificate: &Path) -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["node-pressure-monitor".to_owned()]).unwrap();
    std::fs::write(certificate, made.cert.pem()).unwrap();
    let key = PrivateKeyDer::from_pem_slice(made.signing_key.serialize_pem().as_bytes()).unwrap();
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    Arc::new(builder.with_single_cert(vec![made.cert.der().clone()], key).unwrap())
}

/// Makes a kubectl that says it forwards to the agent, and notes its arguments.
fn make_kubectl(directory: &Path, agent: SocketAddr) -> PathBuf {
    let (path, log) = (directory.join("kubectl"), directory.join("log"));
    let script = format!(
        "#!/bin/sh\necho \"$@\" >> {}\necho \"Forwarding from 127.0.0.1:{} -> 9946\"\nexec sleep 60\n",
        log.display(),
        agent.port()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn incidents_and_pods_are_explained_by_their_agents() {
    let stage = Stage::new().await.unwrap();
    if stage.skips("a pod of an agent that does not run") {
        return stage.end().await.unwrap();
    }
    silent(&stage).await;
    lease(&stage, |_| true).await;
    let told = json!({"metadata": {"annotations": {"node-pressure-monitor/last-incident": "2026-01-02T03:04:05Z java was killed"}}});
    let (status, answer) = stage.ask(Method::PATCH, &lease_path(&stage.node), told).await.unwrap();
    assert_eq!(status, 200, "{answer}");
    let labels = json!({"app.kubernetes.io/name": "node-pressure-monitor", "app.kubernetes.io/component": "agent"});
    stage.running_pod("agent-x", json!({"labels": labels}), json!({})).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let kubectl = make_kubectl(directory.path(), agent(None));
    let kubeconfig = stage.kubeconfig_file().unwrap();
    let ask = async |words: &[&str]| {
        let common = ["fleet", "--kubectl", kubectl.to_str().unwrap(), "--kubeconfig", kubeconfig.to_str().unwrap()];
        let arguments = Arguments::parse_from([&common[..], words].concat());
        fleet::answer(&arguments.fleet).await
    };
    // The Lease is in the agents' namespace; the pod of this test is in the test's.
    let of_stage = ["--agent-namespace", &stage.namespace];
    let refused = ask(&[&["incidents"], &of_stage[..]].concat()).await.unwrap_err().to_string();
    assert!(refused.contains("no agent has a Lease in the namespace"), "{refused}");
    let refused = ask(&["incidents", "-A"]).await.unwrap_err().to_string();
    assert!(refused.contains("no running pod of the agent is on the node"), "{refused}");

    let pods = "/api/v1/namespaces/node-pressure-monitor/pods";
    stage.create(pods, agent_pod(&stage, &labels)).await.unwrap();
    let running = json!({"status": {"phase": "Running"}});
    stage.patch(&format!("{pods}/agent-y/status"), running).await.unwrap();
    let listed = ask(&["incidents", "-A", "--since", "2026-01-01T00:00:00Z"]).await.unwrap();
    assert!(listed.contains("20260102-030405-oom-7  java was killed") && listed.contains(&stage.node), "{listed}");
    assert_eq!(ask(&["incidents", "-A", "--since", "2026-01-03T00:00:00Z"]).await.unwrap(), "", "its Lease says no");
    let story = ask(&["why", "batch/report"]).await.unwrap();
    assert!(story.contains("The incident of batch/report") && story.contains("OOM KILL of java"), "{story}");
    let refused = ask(&["why", "batch/other"]).await.unwrap_err().to_string();
    assert!(refused.contains("there is no pod batch/other"), "{refused}");

    let (good, other) = (directory.path().join("agent.crt"), directory.path().join("other.crt"));
    let (server, _) = (agent(Some(tls(&good))), tls(&other));
    make_kubectl(directory.path(), server);
    let refused = ask(&["why", "batch/report"]).await.unwrap_err().to_string();
    assert!(refused.contains("give its certificate by --certificate"), "{refused}");
    let refused =
        ask(&["why", "batch/report", "--certificate", other.to_str().unwrap()]).await.unwrap_err().to_string();
    assert!(refused.contains("invalid peer certificate"), "{refused}");
    let story = ask(&["why", "batch/report", "--certificate", good.to_str().unwrap()]).await.unwrap();
    assert!(story.contains("OOM KILL of java"), "{story}");
    let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
    assert!(log.contains("--namespace node-pressure-monitor port-forward pod/agent-y :9946"), "{log}");
    stage.end().await.unwrap();
}

fn agent_pod(stage: &Stage, labels: &serde_json::Value) -> serde_json::Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "agent-y", "namespace": "node-pressure-monitor", "labels": labels},
        "spec": {"nodeName": stage.node, "containers": [{"name": "monitor", "image": "x"}]},
    })
}
