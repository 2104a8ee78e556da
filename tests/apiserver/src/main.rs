//! The test API server as a process of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Parser;
use node_pressure_apiserver::{Settings, TestServer};

/// An API server in memory for tests.
#[derive(Debug, Parser)]
struct Options {
    /// Where to listen.
    #[arg(long, default_value_t = SocketAddr::from((Ipv4Addr::LOCALHOST, 8001)))]
    listen: SocketAddr,
    /// Serve TLS with a new certificate.
    #[arg(long)]
    tls: bool,
    /// Write a kubeconfig for clients to this file.
    #[arg(long)]
    write_kubeconfig: Option<PathBuf>,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let Options { listen, tls, write_kubeconfig } = Options::parse();
    let server = TestServer::with(Settings { listen, tls, kubeconfig: None }).await?;
    if let Some(path) = write_kubeconfig {
        std::fs::write(&path, server.kubeconfig()).with_context(|| format!("writing {}", path.display()))?;
    }
    println!("serving at {}", server.url());
    tokio::signal::ctrl_c().await.context("waiting for an interrupt")?;
    Ok(())
}
