//! Evictions at the API server: each is a plan of few steps, carried out on its own, and noted in the ledger as it goes.

mod eviction_call;
pub mod eviction_plan;
pub mod eviction_requests;
pub mod exchange;
pub(super) mod intent;

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use crate::units::Monotonic;

use super::Event;
use super::api_threads::Context;
use super::backoff::{Backoff, jittered};
use super::ledger::Unfinished;

pub use exchange::{Progress, Verdict};
pub use intent::Intent;

use eviction_plan::Plan;
use exchange::Wait;

/// Between tries, at first.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Between tries, at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// The same while somebody waits for the answer.
const LONGEST_PAUSE_ASKING: Duration = Duration::from_secs(1);
/// When the agent stops, what is under way has so long to be finished; the rest stays in the ledger.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// What came of an eviction, so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvictionUpdate {
    /// Which pod.
    pub uid: String,
    /// What came of it.
    pub verdict: Verdict,
}

/// Carries them out, those first that an earlier agent left unfinished, until there are no more.
pub(super) async fn carry_out(context: &Context, mut intents: mpsc::Receiver<Intent>) {
    let mut work = Work { context, tasks: JoinSet::new(), running: HashMap::new() };
    for open in context.ledger.unfinished() {
        work.start(open);
    }
    loop {
        tokio::select! {
            intent = intents.recv() => match intent {
                // What is not in the ledger was ended meanwhile.
                Some(intent) => if let Some(open) = context.ledger.find(&intent.uid) { work.start(open) },
                None => break,
            },
            Some(ended) = work.tasks.join_next() => {
                if let Ok(uid) = ended {
                    work.running.retain(|of, task| *of != uid || !task.is_finished());
                }
            }
        }
    }
    let rest = async { while work.tasks.join_next().await.is_some() {} };
    // Who is not done by then is done by the next agent.
    let _done = tokio::time::timeout(LAST_MOMENT, rest).await;
}

/// What is under way, a task for each pod.
struct Work<'c> {
    context: &'c Context,
    tasks: JoinSet<String>,
    running: HashMap<String, AbortHandle>,
}

impl Work<'_> {
    /// One that is under way goes on as what it is now: its request may have been carried out, and what follows finds that out.
    fn start(&mut self, open: Unfinished) {
        let uid = open.intent.uid.clone();
        let task = self.tasks.spawn(carry_out_one(self.context.clone(), open));
        if let Some(earlier) = self.running.insert(uid, task) {
            earlier.abort();
        }
    }
}

/// From the first request that is left to the last; returns the UID.
async fn carry_out_one(context: Context, open: Unfinished) -> String {
    let Unfinished { intent, progress, is_resumed } = open;
    let mut plan = Plan::of(&intent, progress, is_resumed);
    let mut patience = Backoff::new(FIRST_PAUSE, if intent.is_certain { LONGEST_PAUSE } else { LONGEST_PAUSE_ASKING });
    let mut requests = 0_u32;
    let mut last = None;
    let mut removed = None;
    while let Some(step) = plan.step() {
        if is_called_off(&context, &intent) {
            return intent.uid;
        }
        if let Some(verdict) = plan.expire(intent.age()) {
            last = Some(verdict.clone());
            tell(&context, &intent, verdict);
            break;
        }
        if plan.asks() {
            context.ledger.note(&intent.uid, plan.progress());
        }
        let before = plan.progress();
        requests += 1;
        let answer = eviction_call::send(&context.client, step, &intent, &context.node_name, before.removed).await;
        tracing::debug!(event = "eviction_step", pod = intent.pod(), ?step, ?answer, "the API server was asked");
        let outcome = plan.take(answer, intent.age());
        // Only what gets on starts anew with short pauses: an answer that leads nowhere may come for ever.
        if plan.progress() != before {
            patience.reset();
            context.ledger.note(&intent.uid, plan.progress());
        }
        if plan.progress().removed && removed.is_none() {
            removed = Some(Monotonic::now());
        }
        if let Some(verdict) = outcome.news {
            if let Verdict::NoAnswer(_) = verdict {
                patience = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
            }
            last = Some(verdict.clone());
            tell(&context, &intent, verdict);
        }
        match outcome.wait {
            Wait::None => {}
            Wait::Backoff => tokio::time::sleep(patience.after_failure(None)).await,
            // `Retry-After: 0` is no invitation to come without end; and not every node comes back in the same moment.
            Wait::For(told) => {
                let pause = patience.after_failure(None).max(told);
                tokio::time::sleep(pause + jittered(pause / 8)).await;
            }
        }
    }
    context.ledger.end(&intent);
    if matches!(last, None | Some(Verdict::Accepted | Verdict::Delayed(_))) {
        tell(&context, &intent, Verdict::Done(plan.take_note()));
    }
    tracing::info!(
        event = "eviction_told",
        pod = intent.pod(),
        pod_uid = intent.uid,
        cause = intent.cause,
        marked = plan.progress().marked,
        removed = plan.progress().removed,
        resumed = is_resumed,
        requests,
        decided_mono_ns = intent.decided_mono_ns,
        removed_mono_ns = removed.map(|at| at.0),
        ended_mono_ns = Monotonic::now().0,
        "nothing is left to say to the API server about this pod"
    );
    intent.uid
}

/// The loop has taken it out of the ledger: from now on it only observes, and says so itself.
fn is_called_off(context: &Context, intent: &Intent) -> bool {
    let open = context.ledger.find(&intent.uid);
    open.is_none_or(|open| open.intent.decided_mono_ns != intent.decided_mono_ns)
}

fn tell(context: &Context, intent: &Intent, verdict: Verdict) {
    // The loop may have ended.
    let _unheard = context.news.send(Event::Eviction(EvictionUpdate { uid: intent.uid.clone(), verdict }));
}
