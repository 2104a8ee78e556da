//! The first lines: the node, its state in a sentence, and evictions.

use node_pressure_state::{Level, State};
use ratatui::text::Line;

use crate::model::{Measured, Model};
use crate::text::{fit, period, wrap};
use crate::view::look::Look;

/// The sentence may take so many lines.
const SENTENCE: usize = 2;

pub fn lines(model: &Model, state: &State, look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = vec![Line::raw(fit(&node(model, state), columns))];
    if let Measured::ByTop { missing: Some(missing) } = &model.measured {
        lines.extend(shortened(missing, columns).into_iter().map(|line| Line::styled(line, look.warning())));
    }
    lines.extend(sentence(state, columns).into_iter().map(|line| Line::styled(line, look.level(state.verdict.level))));
    lines.push(Line::raw(fit(&evictions(state), columns)));
    lines
}

/// Returns the level and the sentence of the verdict.
pub fn sentence(state: &State, columns: usize) -> Vec<String> {
    let level = match state.verdict.level {
        Level::Green => "Green: ",
        Level::Yellow => "Yellow: ",
        Level::Red => "RED: ",
        Level::Unknown => "",
    };
    shortened(&format!("{level}{}", state.verdict.sentence), columns)
}

fn shortened(text: &str, columns: usize) -> Vec<String> {
    let mut lines = wrap(text, columns);
    if lines.len() > SENTENCE {
        let rest = lines.split_off(SENTENCE - 1).join(" ");
        lines.push(fit(&rest, columns));
    }
    lines
}

fn node(model: &Model, state: &State) -> String {
    let agent = &state.agent;
    let measured = match model.measured {
        Measured::ByAgent => None,
        Measured::ByTop { .. } => Some("measured by top itself, without an agent".to_owned()),
    };
    let pool = agent.pool.as_ref().filter(|pool| !pool.is_empty()).map(|pool| format!("pool {pool}"));
    let uptime = agent.uptime_seconds.filter(|_| measured.is_none()).map(|seconds| format!("up {}", period(seconds)));
    let mode = measured.is_none().then(|| agent.mode.clone());
    let facts = [Some(agent.node.clone()), measured, mode, Some(format!("Linux {}", agent.kernel)), pool, uptime];
    let age = format!("{} old", period(model.age().unwrap_or_default()));
    facts.into_iter().flatten().chain([age]).collect::<Vec<_>>().join("  ")
}

fn evictions(state: &State) -> String {
    let evictions = &state.evictions;
    let budget = evictions.budget_left.zip(evictions.budget_per_minute);
    let budget = budget.map(|(left, of)| format!("{left} of {of} evictions a minute left"));
    let cool_down = evictions.cool_down_seconds.map(|seconds| format!("next eviction in {}", period(seconds)));
    let under_way =
        evictions.under_way.iter().map(|it| format!("{} for {}: {}", it.display, period(it.seconds), it.step));
    let before = budget.into_iter().chain(cool_down).chain(evictions.waits_because.clone());
    before.chain(under_way).collect::<Vec<_>>().join("; ")
}
