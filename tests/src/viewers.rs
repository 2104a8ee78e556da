//! Programs of the host that look at the agent: clients of a Prometheus and of a browser. The kernel command line has their ports.

pub mod browser;
pub mod pictures;
pub mod prometheus;

use std::net::SocketAddr;

use anyhow::{Context, Result};

use crate::catalogue::{FORWARDED, HOST, Viewer};
use crate::init;

/// Returns the address of a viewer.
fn address(viewer: Viewer) -> Result<SocketAddr> {
    Ok(SocketAddr::from((HOST, port(viewer.key())?)))
}

/// Returns the address of the agent's page as a program of the host sees it.
pub fn page() -> Result<String> {
    Ok(format!("http://127.0.0.1:{}/", port(FORWARDED)?))
}

fn port(key: &str) -> Result<u16> {
    let text = init::option(key).with_context(|| format!("the kernel command line has no {key}"))?;
    text.parse().with_context(|| format!("{key}={text}: no port"))
}
