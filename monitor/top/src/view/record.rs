//! An open incident at one of its recorded moments.

use node_pressure_state::Identity;
use node_pressure_state::record::{Eviction, Incident, OomKill, Place, SignalHistory};
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};

use crate::model::{Opened, Record};
use crate::text::{amount, fit, fit_right, float, period, width, wrap};
use crate::view::graph::{Cell, bar, history};
use crate::view::look::{Look, labelled};

/// From this width on, the facts stand beside the signals.
const TWO_COLUMNS: usize = 120;

pub fn lines(opened: &Opened, look: Look, columns: usize, height: usize) -> Vec<Line<'static>> {
    let incident = match &opened.record {
        Record::Awaited => return vec![Line::raw(fit(&format!("{} is being read", opened.id), columns))],
        Record::Unreadable(reason) => {
            let text = format!("{} cannot be read: {reason}; esc goes back", opened.id);
            return wrap(&text, columns).into_iter().map(|line| Line::styled(line, look.warning())).collect();
        }
        Record::Read(incident) => incident,
    };
    let moments = opened.moments();
    let now = moments.get(opened.moment).copied().unwrap_or_default();
    let span = (moments.first().copied().unwrap_or_default(), moments.last().copied().unwrap_or_default());
    let mut lines: Vec<Line<'static>> = wrap(&incident.summary, columns)
        .into_iter()
        .map(|line| Line::styled(line, look.warning().add_modifier(Modifier::BOLD)))
        .collect();
    lines.push(Line::raw(fit(&moment(incident, opened.moment, moments.len(), now), columns)));
    if columns >= TWO_COLUMNS {
        let left = columns * 6 / 10;
        let right = columns - left - 2;
        let mut first = signals(incident, (now, span), look, left);
        first.extend(steps(incident, now, look, left));
        first.extend(ranking(incident, look, left));
        let mut second = facts(incident, look, right);
        second.extend(consumers(incident, look, right));
        lines.extend(beside(first, second, left).into_iter().skip(usize::from(opened.scroll)));
    } else {
        lines.extend(signals(incident, (now, span), look, columns));
        let mut rest = steps(incident, now, look, columns);
        rest.extend(facts(incident, look, columns));
        rest.extend(ranking(incident, look, columns));
        rest.extend(consumers(incident, look, columns));
        lines.extend(rest.into_iter().skip(usize::from(opened.scroll)));
    }
    lines.truncate(height.saturating_sub(1));
    lines.resize_with(height.saturating_sub(1), Line::default);
    let keys = "esc close  [ ] step  { } by ten  left, right other incidents  up, down scroll";
    lines.push(Line::styled(fit(keys, columns), look.faint()));
    lines
}

fn moment(incident: &Incident, at: usize, of: usize, now: f64) -> String {
    let when = if now < 0.0 { "after" } else { "before" };
    let distance = now.abs();
    let distance = if distance < 1000.0 { format!("{distance:.0} ms") } else { period(distance / 1000.0) };
    let time = incident.time.strftime("%Y-%m-%d %H:%M:%SZ");
    let frame = if of == 0 { "no recorded moment".to_owned() } else { format!("moment {} of {of}", at + 1) };
    format!("{time}  {frame}: {distance} {when} the incident")
}

/// Joins two columns line by line.
fn beside(first: Vec<Line<'static>>, second: Vec<Line<'static>>, left: usize) -> Vec<Line<'static>> {
    let count = first.len().max(second.len());
    let mut second = second.into_iter();
    let mut first = first.into_iter();
    let joined = (0..count).map(|_| {
        let mut line = first.next().unwrap_or_default();
        // The style of a line ends with its column.
        let style = line.style;
        line.spans.iter_mut().for_each(|span| span.style = style.patch(span.style));
        let blank = (left + 2).saturating_sub(line.width());
        line.spans.push(Span::raw(" ".repeat(blank)));
        let mut other = second.next().unwrap_or_default();
        let style = other.style;
        other.spans.iter_mut().for_each(|span| span.style = style.patch(span.style));
        line.spans.append(&mut other.spans);
        Line::from(line.spans)
    });
    joined.collect()
}

fn signals(incident: &Incident, (now, span): (f64, (f64, f64)), look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = vec![look.title("signals at this moment", columns)];
    let name = incident.signals.keys().map(|name| width(name)).max().unwrap_or_default().min(columns / 4);
    lines.extend(incident.signals.iter().map(|(key, signal)| {
        let value = signal.samples.iter().rfind(|(ms, _)| *ms >= now).map(|(_, value)| *value);
        let text = value.map_or_else(|| "unknown".to_owned(), |value| amount(value, &signal.unit));
        let threshold = signal.threshold.map(|it| format!("threshold {}", amount(it, &signal.unit)));
        let threshold = threshold.unwrap_or_default();
        let rest = columns.saturating_sub(name + 1 + 11 + 1 + 20 + 1);
        let drawn = rest / 3;
        let graph = rest.saturating_sub(drawn + 1);
        let is_low = value.zip(signal.threshold).is_some_and(|(value, threshold)| value < threshold);
        let style = if is_low { look.level(node_pressure_state::Level::Red) } else { look.line(false) };
        let text = format!(
            "{} {} {} {} {threshold}",
            fit(key, name),
            bar_of(signal, value, drawn),
            fit(&until(signal, (now, span), graph), graph),
            fit_right(&text, 11)
        );
        Line::styled(fit(&text, columns), style)
    }));
    lines
}

fn bar_of(signal: &SignalHistory, value: Option<u64>, columns: usize) -> String {
    let Some((value, capacity)) = value.zip(signal.capacity.filter(|capacity| *capacity > 0)) else {
        return " ".repeat(columns);
    };
    let marks: Vec<(f64, Cell)> = signal.threshold.iter().map(|it| (float(*it), Cell::Hard)).collect();
    bar(value, capacity, &marks, columns).into_iter().map(Cell::letter).collect()
}

/// Returns the history up to the moment; later columns are dots.
fn until(signal: &SignalHistory, (now, (from, to)): (f64, (f64, f64)), columns: usize) -> String {
    let whole = history(&signal.samples, (from, to), columns, signal.capacity.unwrap_or_default() / 50);
    let step = (from - to) / float(columns.max(1) as u64);
    let is_passed = |at: usize| from - step * float(at as u64) >= now;
    whole.chars().enumerate().map(|(at, letter)| if is_passed(at) { letter } else { '·' }).collect()
}

fn steps(incident: &Incident, now: f64, look: Look, columns: usize) -> Vec<Line<'static>> {
    if incident.steps.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![look.title("steps", columns)];
    lines.extend(incident.steps.iter().map(|step| {
        let has_passed = -step.ms >= now;
        let pid = step.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        let mark = if has_passed { '*' } else { ' ' };
        let style = if has_passed { look.line(false) } else { look.faint() };
        Line::styled(fit(&format!("{mark} {:>9.1} ms  {}{pid}", step.ms, step.step), columns), style)
    }));
    lines
}

/// Returns what was done, to which workload, and what came of it.
fn facts(incident: &Incident, look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = vec![look.title(incident.kind.words(), columns)];
    let bytes = |bytes: Option<u64>| bytes.map(|bytes| amount(bytes, "bytes"));
    let mut say = |label: &str, text: Option<String>| {
        let text = text.filter(|text| !text.is_empty());
        lines.extend(text.into_iter().flat_map(|text| labelled(label, &text, columns)));
    };
    say("mode", Some(incident.mode.clone()));
    if let Some(eviction) = &incident.eviction {
        let Eviction { threshold, kind, outcome, failure, benefit, passed_over, afterwards, .. } = eviction;
        say("threshold", Some(format!("{threshold} ({kind})")));
        say("victim", Some(name(eviction.name.as_ref(), eviction.pod.as_ref(), &eviction.workload)));
        say("outcome", Some(format!("{} ({})", outcome.as_str(), eviction.action)));
        say("failure", failure.clone());
        say("used", bytes(eviction.working_set_bytes));
        say("chosen", benefit.clone());
        say("passed over", passed_over.clone());
        say("API server", afterwards.clone());
    }
    if let Some(OomKill { limit, trigger, victims, constraint, .. }) = &incident.oom_kill {
        say("constraint", constraint.clone());
        let limit = limit.as_ref();
        say("limit", limit.and_then(|limit| bytes(limit.limit_bytes)));
        say("limit of", limit.and_then(|limit| limit.workload.as_ref().or(limit.cgroup.as_ref()).cloned()));
        say("asked by", trigger.as_ref().and_then(|trigger| trigger.comm.clone()));
        for victim in victims {
            let process = format!("{} ({})", victim.comm.as_deref().unwrap_or("process"), victim.pid);
            let resident = bytes(victim.resident_bytes()).map(|bytes| format!(", {bytes}")).unwrap_or_default();
            let of = victim.workload.as_deref().unwrap_or_default();
            say(
                "killed",
                Some(format!("{process}{resident} of {}", name(victim.name.as_ref(), victim.pod.as_ref(), of))),
            );
        }
    }
    for it in &incident.pressure {
        let label = format!("{} {}", it.resource, it.kind);
        say(
            &label,
            Some(format!("PSI of {}: {:.1}% 10 s, {:.1}% 60 s, {:.1}% 300 s", it.scope, it.avg10, it.avg60, it.avg300)),
        );
    }
    lines
}

fn name(identity: Option<&Identity>, pod: Option<&String>, workload: &str) -> String {
    identity.and_then(Identity::full_pod).or_else(|| pod.cloned()).unwrap_or_else(|| workload.to_owned())
}

fn ranking(incident: &Incident, look: Look, columns: usize) -> Vec<Line<'static>> {
    if incident.ranking.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![look.title("ranking", columns)];
    let name_of = |place: &Place| name(place.name.as_ref(), None, &place.workload);
    let longest = incident.ranking.iter().map(|place| width(&name_of(place))).max().unwrap_or_default();
    let columns_of_name = longest.min(columns / 2);
    lines.extend(incident.ranking.iter().map(|place| {
        let number = place.place.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let keys = || place.keys.iter().map(|key| &*key.value).collect::<Vec<_>>().join(", ");
        let why = place.protection.as_ref().map_or_else(keys, |why| format!("exempt: {why}"));
        Line::raw(fit(&format!("{} {} {why}", fit_right(&number, 4), fit(&name_of(place), columns_of_name)), columns))
    }));
    if incident.ranking_omitted > 0 {
        lines.push(Line::styled(format!("     and {} more", incident.ranking_omitted), look.faint()));
    }
    lines
}

/// Returns the largest workloads, and those that stalled.
fn consumers(incident: &Incident, look: Look, columns: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if !incident.top_consumers.is_empty() {
        lines.push(look.title("largest", columns));
        lines.extend(incident.top_consumers.iter().map(|it| {
            let size = fit_right(&amount(it.working_set_bytes, "bytes"), 10);
            Line::raw(fit(&format!("{size}  {}", name(it.name.as_ref(), None, &it.workload)), columns))
        }));
    }
    if !incident.stalls.is_empty() {
        lines.push(look.title("stalled in reclaim", columns));
        lines.extend(incident.stalls.iter().map(|it| {
            let time = fit_right(&period(it.seconds), 10);
            Line::raw(fit(
                &format!("{time}  {} times: {}", it.count, name(it.name.as_ref(), None, &it.workload)),
                columns,
            ))
        }));
    }
    lines
}
