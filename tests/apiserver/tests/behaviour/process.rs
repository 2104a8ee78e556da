//! The server as a separate process.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use k8s_openapi::api::core::v1::Namespace;
use kube::api::ListParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};

#[tokio::test]
async fn the_process_serves_clients_with_its_kubeconfig() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let mut process = Command::new(env!("CARGO_BIN_EXE_test-apiserver"))
        .args(["--listen", "127.0.0.1:0", "--tls", "--write-kubeconfig"])
        .arg(&kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    BufReader::new(process.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let kubeconfig = Kubeconfig::read_from(&kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let url = config.cluster_url.to_string();
    let namespaces: Api<Namespace> = Api::all(Client::try_from(config).unwrap());
    let list = namespaces.list(&ListParams::default()).await;
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(said.trim(), format!("serving at {}", url.trim_end_matches('/')));
    assert!(list.unwrap().items.iter().any(|namespace| namespace.metadata.name.as_deref() == Some("default")));
}
