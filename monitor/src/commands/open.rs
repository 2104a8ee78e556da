//! `node-pressure-monitor open`: a link to the agent's status page.

use std::io::Write as _;
use std::path::PathBuf;

use super::agent_client::{Agent, address_of, token_of};
use super::input::{self, CommandError};
use super::output;

/// Options of `open`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// URL of the agent; default: http at the address of --config, or http://127.0.0.1:9946
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    url: Option<String>,
    /// Configuration file of the agent, which names its address, certificate and token file
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// File with a token that metrics.bearerToken accepts; default: that of --config
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Address under which the browser reaches the agent, for example that of a port-forward; default: the agent's
    #[arg(long, value_name = "URL")]
    at: Option<String>,
}

const HELP: &str = "The command prints a link for a browser. Where metrics.bearerToken is set the link works once, within a minute, and sets a cookie (HttpOnly, \
SameSite=Strict) that lets this browser read what the token may read: for twelve hours, and not after the token is exchanged or the page's button ends the session. Otherwise the link is the address of the page. Without an agent that answers there is no link.

In a cluster, forward the port, and make the link in the pod:

  kubectl -n node-pressure-monitor port-forward pod/POD 9946
  kubectl -n node-pressure-monitor exec POD -- node-pressure-monitor open --config /etc/node-pressure-monitor/monitor.yaml --at http://127.0.0.1:9946

Exit status: 0 printed; 1 the agent cannot be asked; 2 wrong usage, or a file that cannot be read.";

pub fn run(options: &Options) -> Result<(), CommandError> {
    let given = token_of(options.token_file.as_ref())?;
    let (agent, token, address) = match (&options.url, &options.config) {
        (Some(url), _) => (Agent::of_url(url, given.clone())?, given, url.trim_end_matches('/').to_owned()),
        (None, None) => {
            let address = address_of(None)?;
            (Agent::new(&address.to_string(), given.clone()), given, format!("http://{address}"))
        }
        (None, Some(file)) => {
            let config = input::load(file)?.1.config;
            let token = match given {
                Some(token) => Some(token),
                // The first token of the file: the file has one a line.
                None => token_of(config.serving.token_file.as_ref())?
                    .and_then(|tokens| tokens.lines().find(|line| !line.trim().is_empty()).map(|it| it.trim().into())),
            };
            let address = address_of(Some(file))?;
            let (agent, scheme) = match &config.serving.tls {
                Some(files) => (Agent::pinned(&address.to_string(), token.clone(), &files.certificate)?, "https"),
                None => (Agent::new(&address.to_string(), token.clone()), "http"),
            };
            (agent, token, format!("{scheme}://{address}"))
        }
    };
    let at = options.at.as_deref().unwrap_or(&address).trim_end_matches('/').to_owned();
    let path = if token.is_some() {
        let answer = input::event_loop()?.block_on(agent.post("/api/v1/open"));
        let path = answer.map_err(|refusal| CommandError::Wrong(format!("open: {refusal}")))?;
        String::from_utf8_lossy(&path).trim().to_owned()
    } else {
        let answer = input::event_loop()?.block_on(agent.get("/"));
        answer.map_err(|refusal| CommandError::Wrong(format!("open: {refusal}")))?;
        "/".to_owned()
    };
    output::answer(|out| writeln!(out, "{at}{path}")).map_err(CommandError::Output)
}
