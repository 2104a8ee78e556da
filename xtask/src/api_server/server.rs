//! A real API server on the loopback address, with its etcd, for the tests and benches of this process.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::release::Release;
use crate::background::{Background, bound_to_this_process, free_port};
use crate::cmd;
use crate::paths::Workspace;

/// The time for the programs to become ready. Beside other work a start takes up to a minute.
const READY_WITHIN: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(500);
/// Paths that an API server answers once it is ready.
const OF_THE_SERVER: [&str; 2] = ["/readyz", "/api/v1/namespaces/default"];
/// An object that a controller manager makes. The tests look for this object, to learn whether one runs.
const OF_CONTROLLERS: &str = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt";
/// Everything is on the loopback address, and lives no longer than this process.
const TOKEN: &str = "secret";

/// The running programs. Dropping them ends them and removes their files.
#[derive(Debug)]
pub struct Server {
    programs: Vec<Background>,
    directory: PathBuf,
}

impl Server {
    /// Starts the programs, and waits until they are ready. Their files are in a directory of this process.
    pub fn start(workspace: &Workspace, release: &Release, controller_manager: Option<&Path>) -> Result<Self> {
        let directory = workspace.target.join("api-server").join(process::id().to_string());
        fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
        let mut server = Self { programs: Vec::new(), directory };
        let [clients, peers, secure] = [free_port()?, free_port()?, free_port()?];
        server.write("tokens", &format!("{TOKEN},admin,admin,system:masters\n"))?;
        server.write("kubeconfig", &kubeconfig(secure))?;
        server.run(&release.etcd, &etcd(clients, peers))?;
        server.run(&release.api_server, &api_server(clients, secure))?;
        server.wait_for(&release.kubectl, &OF_THE_SERVER)?;
        if let Some(program) = controller_manager {
            server.run(program, &CONTROLLER_MANAGER.map(str::to_owned))?;
            server.wait_for(&release.kubectl, &[OF_CONTROLLERS])?;
        }
        Ok(server)
    }

    /// Returns the path of an administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        let path = self.directory.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// Starts a program in the directory, with a log there.
    fn run(&mut self, program: &Path, arguments: &[String]) -> Result<()> {
        let mut log = OsString::from(program.file_name().unwrap_or_default());
        log.push(".log");
        let mut command = bound_to_this_process(program);
        command.args(arguments).current_dir(&self.directory);
        self.programs.push(Background::start(&mut command, self.directory.join(log))?);
        Ok(())
    }

    /// Waits until the API server answers these paths.
    fn wait_for(&mut self, kubectl: &Path, paths: &[&str]) -> Result<()> {
        let start = Instant::now();
        for path in paths {
            let mut get = Command::new(kubectl);
            get.arg("--kubeconfig").arg(self.kubeconfig()).args(["get", "--request-timeout=5s", "--raw", path]);
            while let Err(error) = cmd::output(&mut get) {
                self.programs.iter_mut().try_for_each(Background::check)?;
                if start.elapsed() > READY_WITHIN {
                    return Err(error.context(format!("the API server is not ready after {READY_WITHIN:?}")));
                }
                thread::sleep(LOOK);
            }
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The client of a program ends before the program.
        while self.programs.pop().is_some() {}
        if let Err(error) = fs::remove_dir_all(&self.directory) {
            eprintln!("warning: {} cannot be removed: {error}", self.directory.display());
        }
    }
}

fn etcd(clients: u16, peers: u16) -> Vec<String> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    vec![
        "--data-dir=etcd".to_owned(),
        format!("--listen-client-urls={}", url(clients)),
        format!("--advertise-client-urls={}", url(clients)),
        format!("--listen-peer-urls={}", url(peers)),
    ]
}

/// The API server makes the key of its certificate itself, before it reads the key for the tokens of service accounts.
fn api_server(etcd: u16, port: u16) -> Vec<String> {
    const ARGUMENTS: [&str; 8] = [
        "--bind-address=127.0.0.1",
        "--cert-dir=certificates",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--authorization-mode=Node,RBAC",
        "--token-auth-file=tokens",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-account-key-file=certificates/apiserver.key",
        "--service-account-signing-key-file=certificates/apiserver.key",
    ];
    let ports = [format!("--etcd-servers=http://127.0.0.1:{etcd}"), format!("--secure-port={port}")];
    ports.into_iter().chain(ARGUMENTS.map(str::to_owned)).collect()
}

/// The certificate of the API server is signed by itself.
const CONTROLLER_MANAGER: [&str; 6] = [
    "--kubeconfig=kubeconfig",
    "--root-ca-file=certificates/apiserver.crt",
    "--service-account-private-key-file=certificates/apiserver.key",
    "--use-service-account-credentials=true",
    "--leader-elect=false",
    "--secure-port=0",
];

fn kubeconfig(port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: real\n\
         contexts: [{{name: real, context: {{cluster: real, user: admin}}}}]\n\
         clusters: [{{name: real, cluster: {{server: \"https://127.0.0.1:{port}\", insecure-skip-tls-verify: true}}}}]\n\
         users: [{{name: admin, user: {{token: {TOKEN}}}}}]\n"
    )
}
