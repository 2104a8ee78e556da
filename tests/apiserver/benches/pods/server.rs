//! The API server, in a process of its own.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};

/// The server that `KUBECONFIG` names, or the test server, which ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// The path of the agent's kubeconfig.
    pub kubeconfig: PathBuf,
    child: Option<Child>,
}

impl Server {
    pub fn start(directory: &Path) -> Result<Self> {
        if let Some(path) = std::env::var_os("KUBECONFIG").filter(|path| !path.is_empty()) {
            return Ok(Self { kubeconfig: path.into(), child: None });
        }
        let kubeconfig = directory.join("kubeconfig");
        let mut child = Command::new(env!("CARGO_BIN_EXE_test-apiserver"))
            .args(["--listen", "127.0.0.1:0", "--tls", "--write-kubeconfig"])
            .arg(&kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the test API server")?;
        let stdout = child.stdout.take().context("standard output of the test API server")?;
        let server = Self { kubeconfig, child: Some(child) };
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("waiting for the test API server")?;
        Ok(server)
    }

    /// Returns a client with administrator rights.
    pub async fn client(&self) -> Result<kube::Client> {
        let file = Kubeconfig::read_from(&self.kubeconfig).context("the kubeconfig")?;
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        Ok(kube::Client::try_from(config)?)
    }

    /// Returns the server's description, for output.
    pub fn kind(&self) -> &'static str {
        if self.child.is_some() { "the test API server" } else { "the API server of KUBECONFIG" }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _already_gone = child.kill();
            let _already_gone = child.wait();
        }
    }
}
