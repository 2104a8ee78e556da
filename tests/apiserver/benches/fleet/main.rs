//! Measures what the API clients of many agents send: during a rollout, idle, in a wave of memory pressure, after their connections were cut,
//! after a restart of the API server and after it has forgotten its versions. The agents are hollow: one
//! [`Cluster`](node_pressure_monitor::cluster::Cluster) for each node, with the timeouts and the heartbeat of production, and nothing that
//! measures or decides.
//!
//! Prints one row for each phase and `fleet NODES nodes: idle RATE requests/s of BUDGET, restart COUNT requests in a second of BUDGET,
//! expiry COUNT requests in a second of BUDGET`; the caller judges it. `FLEET_NODES` is the number of nodes, `FLEET_SECONDS` the duration of
//! the idle phase. The API server is in memory, on one thread of this process and without TLS. With `KUBECONFIG` it is the one of that
//! file, behind the same listener, and the phase of the forgotten versions is left out.

mod agents;
mod nodes;
mod traffic;

use std::time::Duration;

use anyhow::{Result, ensure};
use node_pressure_apiserver::api::Api;
use node_pressure_apiserver::{Kubelet, Stage, bench};
use tokio::time::{sleep, sleep_until};

use agents::Agents;
use nodes::Node;
use traffic::{Phase, Row};

const NODES: u32 = 1000;
const IDLE_SECONDS: u32 = 120;
/// A rollout of a DaemonSet starts its pods over such a time.
const ROLLOUT: Duration = Duration::from_secs(30);
/// The time for the first writes of the agent that was up last.
const SETTLING: Duration = Duration::from_secs(5);
/// One node in so many gets memory pressure.
const PRESSURED: usize = 10;
/// The pressured nodes get it within this time.
const ONSET: Duration = Duration::from_secs(10);
const PRESSURE: Duration = Duration::from_secs(20);
const WAVE: Duration = Duration::from_secs(60);
/// The time to renew all watches whose connections were cut.
const AFTER_CUT: Duration = Duration::from_secs(15);
const AWAY: Duration = Duration::from_secs(10);
const AFTER_RESTART: Duration = Duration::from_secs(60);
const AFTER_EXPIRY: Duration = Duration::from_secs(60);
/// Requests a second of a kubelet at rest: the Lease every quarter of `nodeLeaseDurationSeconds` (40 s); GET and PATCH of the node every
/// `nodeStatusReportFrequency` (5 min).
const OF_KUBELET: f64 = 1.0 / 10.0 + 2.0 / 300.0;
/// The promised share of a kubelet's requests at rest. Both figures are without the requests that renew watches.
const SHARE_OF_KUBELET: f64 = 0.2;
/// The promised requests for each agent in the busiest second after a restart. 0.6 to 1.1 were measured; in step they would be 3, a list and
/// two watches.
const AFTER_RESTART_PROMISED: f64 = 1.5;
/// The same after the versions have expired. Four requests, two lists and two watches, are spread over ten seconds.
const AFTER_EXPIRY_PROMISED: f64 = 0.8;

fn main() {
    bench::run(measure());
}

async fn measure() -> Result<()> {
    let count = bench::variable("FLEET_NODES", NODES)?;
    let idle_time = Duration::from_secs(bench::variable("FLEET_SECONDS", IDLE_SECONDS)?.into());
    agents::raise_open_files(count)?;
    let stage = Stage::new().await?;
    let _kubelets = Kubelet::only_noting_failed(stage.admin(), &stage.namespace);
    let nodes = nodes::create(&stage, count).await?;
    let server = if stage.server.is_real() { "the API server of KUBECONFIG" } else { "the test API server in memory" };
    println!(
        "fleet: {count} nodes with two pods each, at {server}; bytes are those of bodies, without headers and TLS"
    );
    traffic::print_head();

    let (started, agents) = start(&stage, &nodes).await?;
    started.print();
    let idle = idle(&stage, idle_time).await?;
    idle.print();
    let of_kubelets = OF_KUBELET * f64::from(count);
    traffic::print_kubelets(count, of_kubelets);
    wave(&stage, &nodes, &agents).await?.print();
    cut(&stage).await?.print();
    let restarted = restart(&stage, &agents).await?;
    restarted.print();
    let expired = match stage.server.memory() {
        Some(api) => {
            let row = expire(&stage, api).await?;
            row.print();
            ensure!(row.lists() >= 2 * u64::from(count), "not every agent has listed its node and its pods again");
            format!(
                ", expiry {} requests in a second of {:.0}",
                row.busiest_second(),
                f64::from(count) * AFTER_EXPIRY_PROMISED
            )
        }
        None => {
            println!("versions expired: left out, a real API server cannot be told to forget its versions");
            String::new()
        }
    };
    println!(
        "fleet {count} nodes: idle {:.2} requests/s of {:.2}, restart {} requests in a second of {:.0}{expired}",
        idle.per_second_without_renewals(count),
        of_kubelets * SHARE_OF_KUBELET,
        restarted.busiest_second(),
        f64::from(count) * AFTER_RESTART_PROMISED
    );
    if stage.server.is_real() {
        agents.stop();
        nodes::remove(&stage, &nodes).await?;
    }
    stage.end().await
}

async fn start(stage: &Stage, nodes: &[Node]) -> Result<(Row, Agents)> {
    let phase = Phase::begin("start", stage.server.log());
    let agents = Agents::start(&stage.kubeconfig_file()?, nodes, ROLLOUT).await?;
    agents.wait_until_up().await?;
    sleep(SETTLING).await;
    Ok((phase.end()?, agents))
}

async fn idle(stage: &Stage, time: Duration) -> Result<Row> {
    let phase = Phase::begin("idle", stage.server.log());
    sleep(time).await;
    phase.end()
}

/// Gives some nodes memory pressure, one after the other, and ends it.
async fn wave(stage: &Stage, nodes: &[Node], agents: &Agents) -> Result<Row> {
    let phase = Phase::begin("pressure wave", stage.server.log());
    let begun = tokio::time::Instant::now();
    let pressured: Vec<usize> = (0..nodes.len()).step_by(PRESSURED).collect();
    for (at, holds) in [(Duration::ZERO, true), (PRESSURE, false)] {
        for (place, number) in pressured.iter().enumerate() {
            sleep_until(begun + at + ONSET.mul_f64(traffic::share(place, pressured.len()))).await;
            agents.set_pressure(*number, &nodes[*number], holds)?;
        }
    }
    sleep_until(begun + WAVE).await;
    phase.end()
}

/// Cuts all connections. The server stays.
async fn cut(stage: &Stage) -> Result<Row> {
    let phase = Phase::begin("connections cut", stage.server.log());
    stage.server.cut_connections();
    sleep(AFTER_CUT).await;
    phase.end()
}

/// Lets the server forget its versions, and end all watches for that. All agents have to list.
async fn expire(stage: &Stage, api: &Api) -> Result<Row> {
    let phase = Phase::begin("versions expired", stage.server.log());
    api.compact();
    api.expire_watches();
    sleep(AFTER_EXPIRY).await;
    phase.end()
}

/// Closes the port for a time. The row begins when the port is open again.
async fn restart(stage: &Stage, agents: &Agents) -> Result<Row> {
    stage.server.close().await;
    sleep(AWAY).await;
    let phase = Phase::begin("after restart", stage.server.log());
    stage.server.open().await?;
    sleep(AFTER_RESTART).await;
    let row = phase.end()?;
    agents.wait_until_up().await?;
    Ok(row)
}
