//! Brings what the agent tells to the view.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Sender;
use std::time::Duration;

use node_pressure_top::{Event, Link, Request};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

use super::super::agent_client::{Agent, Refusal};

const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// While all streams are taken the document is read once a second, and the stream is tried again after this many.
const POLLS: usize = 30;

/// Where the agent comes from.
pub enum Origin {
    /// It ran before the view.
    Running,
    /// Its lock file is held, but it did not accept a connection when the view began.
    Silent,
    /// This process has started it. This is its log.
    Own(PathBuf),
}

impl Origin {
    /// Adds to the reason for which the agent does not answer.
    pub fn explain(&self, reason: String) -> String {
        match self {
            Self::Running => reason,
            Self::Silent => format!(
                "{reason}; an agent runs, because its lock file is held: name its address by --config or --url, or measure without it by --no-agent"
            ),
            Self::Own(log) => last_words(log).unwrap_or(reason),
        }
    }
}

/// Returns why an agent has ended, from its log: the lines that are no log records.
fn last_words(log: &Path) -> Option<String> {
    let text = std::fs::read_to_string(log).ok()?;
    let words: Vec<&str> = text.lines().filter(|line| !line.starts_with('{')).collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// Brings what the agent tells to the view, answers what the view asks, and ends it on a signal.
pub struct Feed {
    pub agent: Agent,
    pub origin: Origin,
    pub events: Sender<Event>,
    pub asked: UnboundedReceiver<Request>,
    pub signals: Signals,
}

/// The signals that end the view: the terminal must be restored first.
pub struct Signals([Signal; 4]);

impl Signals {
    /// Must be called within the event loop.
    pub fn handle() -> std::io::Result<Self> {
        let [terminate, hangup, interrupt, quit] =
            [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()].map(signal);
        Ok(Self([terminate?, hangup?, interrupt?, quit?]))
    }

    async fn received(&mut self) {
        let Self([terminate, hangup, interrupt, quit]) = self;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = interrupt.recv() => {}
            _ = quit.recv() => {}
        }
    }
}

/// The view has ended.
struct Ended;

impl Feed {
    pub async fn run(self) {
        let Self { agent, origin, events, mut asked, mut signals } = self;
        tokio::select! {
            Ended = follow(&agent, &origin, &events) => {}
            Ended = answer(&agent, &events, &mut asked) => {}
            () = signals.received() => {}
        }
        let _ended_already = events.send(Event::End);
    }
}

/// Follows the agent's stream, again and again.
async fn follow(agent: &Agent, origin: &Origin, events: &Sender<Event>) -> Ended {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let refusal = match stream(agent, events).await {
            Ok(ended) => return ended,
            Err((refusal, has_told)) => {
                if has_told {
                    pause = SHORTEST_PAUSE;
                }
                refusal
            }
        };
        let is_over = match refusal {
            Refusal::Busy => poll(agent, events).await.is_err(),
            Refusal::Other(reason) => {
                let reason = origin.explain(reason);
                let is_over = events.send(Event::Link(Link::Lost(reason))).is_err();
                sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
                is_over
            }
        };
        if is_over {
            return Ended;
        }
    }
}

/// Shows the documents of one stream. Returns why it ended, and whether it had told anything.
async fn stream(agent: &Agent, events: &Sender<Event>) -> Result<Ended, (Refusal, bool)> {
    let mut documents = agent.watch().await.map_err(|refusal| (refusal, false))?;
    let mut has_told = false;
    loop {
        let json = match documents.next().await {
            Ok(Some(json)) => json,
            // The agent ends each stream after ten minutes.
            Ok(None) if has_told => return Err((Refusal::Busy, true)),
            Ok(None) => return Err((Refusal::Other("the agent has ended the stream".to_owned()), false)),
            Err(refusal) => return Err((refusal, has_told)),
        };
        if !has_told && events.send(Event::Link(Link::Streaming)).is_err() || tell(&json, events).is_err() {
            return Ok(Ended);
        }
        has_told = true;
    }
}

/// Reads the document once a second for a while.
async fn poll(agent: &Agent, events: &Sender<Event>) -> Result<(), Ended> {
    for _ in 0..POLLS {
        match agent.get("/api/v1/state").await {
            Ok(json) => {
                events.send(Event::Link(Link::Polling)).map_err(|_| Ended)?;
                tell(&json, events)?;
            }
            Err(Refusal::Busy) => {}
            Err(Refusal::Other(reason)) => {
                return events.send(Event::Link(Link::Lost(reason))).map_err(|_| Ended);
            }
        }
        sleep(SHORTEST_PAUSE).await;
    }
    Ok(())
}

fn tell(json: &[u8], events: &Sender<Event>) -> Result<(), Ended> {
    let event = match node_pressure_top::state(json) {
        Ok(state) => Event::Document(Box::new(state)),
        Err(error) => Event::Link(Link::Lost(format!("the agent's document cannot be read: {error}"))),
    };
    events.send(event).map_err(|_| Ended)
}

/// Reads the incidents that the user opens.
async fn answer(agent: &Agent, events: &Sender<Event>, asked: &mut UnboundedReceiver<Request>) -> Ended {
    while let Some(Request::Incident(id)) = asked.recv().await {
        let read = agent.get(&format!("/incidents/{id}")).await.map_err(|refusal| refusal.to_string());
        let record = read.and_then(|json| node_pressure_top::incident(&json).map_err(|error| error.to_string()));
        if events.send(Event::Incident { id, record: record.map(Box::new) }).is_err() {
            return Ended;
        }
    }
    Ended
}
