//! For every kind of event, generated = delivered + lost + malformed. The generated events are also compared with the kernel's count.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::Result;

use super::cache::mounted;
use crate::cgroups::PodSpec;
use crate::config::AgentConfig;
use crate::evidence::trace::Trace;
use crate::http::Metrics;
use crate::init::EXT4;
use crate::processes;
use crate::stage::{Stage, Worker};
use crate::units::MIB;

/// The event that ends every memory-cgroup reclaim.
pub const MEMCG_RECLAIM_END: &str = "vmscan/mm_vmscan_memcg_reclaim_end";

/// The counters of one kind of event.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub struct Book {
    pub generated: f64,
    pub delivered: f64,
    pub lost: f64,
    pub malformed: f64,
}

impl Book {
    pub fn balances(&self) -> bool {
        (self.generated - self.delivered - self.lost - self.malformed).abs() < 0.5
    }
}

impl fmt::Display for Book {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "generated {} = delivered {} + lost {} + malformed {}",
            self.generated, self.delivered, self.lost, self.malformed
        )
    }
}

/// Returns the counters of every kind of event.
pub fn books(metrics: &Metrics) -> BTreeMap<String, Book> {
    let mut books: BTreeMap<String, Book> = BTreeMap::new();
    type Pick = fn(&mut Book) -> &mut f64;
    let columns: [(&str, Pick); 4] = [
        ("events_generated_total", |book| &mut book.generated),
        ("events_delivered_total", |book| &mut book.delivered),
        ("events_lost_total", |book| &mut book.lost),
        ("events_malformed_total", |book| &mut book.malformed),
    ];
    for (name, pick) in columns {
        for series in metrics.all(name) {
            *pick(books.entry(series.label("event").to_owned()).or_default()) += series.value;
        }
    }
    books
}

/// Starts pods whose processes only make their own cgroups reclaim.
pub fn stallers(stage: &Stage<'_>, count: u32) -> Result<Vec<Worker>> {
    (0..count)
        .map(|index| {
            let pod = stage.pod("staller", PodSpec::best_effort())?;
            pod.container()?.limit(8 * MIB)?;
            stage.work(&pod, &format!("memcg-stall --name staller --file {EXT4}/stall{index} --mib 48"))
        })
        .collect()
}

/// Kills workloads and waits until they have exited.
pub fn end(stage: &mut Stage<'_>, workers: &[Worker]) {
    for worker in workers {
        processes::signal(worker.pid, libc::SIGKILL);
    }
    stage.until(Duration::from_secs(10), |stage| workers.iter().all(|worker| stage.reaper.ended(worker.pid).is_some()));
}

/// Waits until the counters are stable and balance; returns the last values.
pub fn quiescent(stage: &mut Stage<'_>, agent: &crate::agent::Agent) -> BTreeMap<String, Book> {
    let mut last = BTreeMap::new();
    stage.until(Duration::from_secs(15), |stage| {
        stage.pause(Duration::from_millis(500));
        let now = agent.metrics().map(|metrics| books(&metrics)).unwrap_or_default();
        let still = !now.is_empty() && now == last && now.values().all(Book::balances);
        last = now;
        still
    });
    last
}

/// Asserts that the counters of every kind balance, and prints them.
pub fn check_books(stage: &mut Stage<'_>, books: &BTreeMap<String, Book>) {
    stage.check(!books.is_empty(), || "no events_generated_total in /metrics".to_owned());
    for (kind, book) in books {
        stage.check(book.balances(), || format!("{kind}: {book}"));
        if book.generated > 0.0 {
            stage.note(format!("{kind}: {book}"));
        }
    }
}

pub fn accounts(stage: &mut Stage<'_>) -> Result<()> {
    if !mounted(EXT4) {
        stage.skip("no ext4 disk in this guest");
        return Ok(());
    }
    let config = AgentConfig { ring_buffer: Some("4Ki"), stall_threshold: Some("0s"), ..AgentConfig::observe() };
    let boot = stage.boot;
    let agent = stage.agent(&config)?;
    let count = if Trace::has(MEMCG_RECLAIM_END) { Some(boot.trace.count(MEMCG_RECLAIM_END)?) } else { None };
    let before = agent.metrics()?.sum("reclaim_stall_seconds_count", &[]).unwrap_or(0.0);
    let workers = stallers(stage, 2)?;
    stage.pause(Duration::from_secs(2));
    // The stopped agent does not read the ring buffer: the buffer fills, and later events are lost.
    processes::signal(agent.pid, libc::SIGSTOP);
    stage.pause(Duration::from_secs(2));
    processes::signal(agent.pid, libc::SIGCONT);
    stage.pause(Duration::from_secs(1));
    stage.check_alive(&workers.iter().collect::<Vec<_>>());
    end(stage, &workers);
    let books = quiescent(stage, &agent);
    check_books(stage, &books);
    let lost: f64 = books.values().map(|book| book.lost).sum();
    let generated: f64 = books.values().map(|book| book.generated).sum();
    stage.check(lost > 0.0, || "nothing was lost: the ring was never full".to_owned());
    stage.figure("generated", generated, "events");
    stage.figure("lost", lost, "events");
    if let Some(count) = count {
        check_stalls(stage, &agent, before, count.hits()?)?;
    }
    stage.check_no_oom_kill()?;
    stage.stop(&agent);
    Ok(())
}

/// Asserts that no stall is lost. Stalls are counted in maps, which do not depend on the ring buffer.
pub fn check_stalls(stage: &mut Stage<'_>, agent: &crate::agent::Agent, before: f64, hits: u64) -> Result<()> {
    let counted = agent.metrics()?.sum("reclaim_stall_seconds_count", &[]).unwrap_or(0.0) - before;
    let kernel = f64::from(u32::try_from(hits).unwrap_or(u32::MAX));
    stage.figure("kernel_memcg_reclaims", kernel, "events");
    stage.figure("agent_stalls", counted, "events");
    stage.check(kernel > 0.0, || "the kernel counted no memory-cgroup reclaim".to_owned());
    // A workload that is killed during a reclaim begins this reclaim but does not end it.
    stage.check((counted - kernel).abs() < 8.5, || {
        format!("the kernel counted {kernel} memory-cgroup reclaims, the agent {counted} stalls")
    });
    Ok(())
}
