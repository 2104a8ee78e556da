//! The overview as a picture: verdict, signals, the ranking of the selected signal, and incidents.

use node_pressure_state::{Level, SignalState, State};
use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use crate::model::{Entry, Link, Model, Opened, Record, Row};
use crate::text::{amount, fit, fit_right, float, is_hostile, period, rate, wait};
use crate::update::{Event, update};
use crate::what_if::WhatIf;

const BAR: usize = 20;
const NAME: usize = 34;

/// Returns one screen as text, without blanks at the ends of lines.
#[must_use]
pub fn once(state: State, width: u16, height: u16) -> String {
    let (model, _) = update(Model::default(), Event::Document(Box::new(state)));
    // The backend in memory has no errors.
    let Ok(mut terminal) = ratatui::Terminal::new(TestBackend::new(width, height));
    let Ok(drawn) = terminal.draw(|frame| render(&model, frame));
    let line = |y| (0..width).filter_map(|x| drawn.buffer.cell((x, y))).map(ratatui::buffer::Cell::symbol).collect();
    (0..height)
        .map(|y: u16| {
            let line: String = line(y);
            line.trim_end().to_owned() + "\n"
        })
        .collect()
}

pub fn render(model: &Model, frame: &mut Frame<'_>) {
    let area = frame.area();
    for (y, line) in (area.y..area.bottom()).zip(lines(model, area)) {
        frame.render_widget(line, Rect { y, height: 1, ..area });
    }
    // The last guard: no text of a workload controls the terminal, whatever way it took.
    for cell in &mut frame.buffer_mut().content {
        if cell.symbol().contains(is_hostile) {
            cell.set_symbol("?");
        }
    }
}

fn lines(model: &Model, area: Rect) -> Vec<Line<'_>> {
    if area.width < 40 || area.height < 10 {
        return vec![Line::raw("enlarge to 40x10")];
    }
    if model.is_help {
        return HELP.lines().map(Line::raw).collect();
    }
    if let Some(opened) = &model.opened {
        return record_lines(opened);
    }
    let Some(state) = model.shown() else { return vec![Line::raw("waiting for the agent's document")] };
    let colour = match state.verdict.level {
        Level::Green => Color::Green,
        Level::Yellow => Color::Yellow,
        Level::Red => Color::Red,
        Level::Unknown => Color::Gray,
    };
    let style = if model.has_colour { Style::new().fg(colour) } else { Style::new().add_modifier(Modifier::BOLD) };
    let agent = &state.agent;
    let age = period(model.age().unwrap_or_default());
    let mut lines = vec![
        Line::raw(format!("{}  {}  Linux {}  {} old", agent.node, agent.mode, agent.kernel, age)),
        Line::styled(format!("{:?}: {}", state.verdict.level, state.verdict.sentence), style),
        Line::raw(evictions(state)),
    ];
    let selected = model.selected_signal().map(|signal| &signal.signal);
    lines.extend(state.signals.iter().map(|signal| signal_line(signal, Some(&signal.signal) == selected)));
    lines.push(Line::raw(pressure(state)));
    lines
        .extend(state.degradations.first().map(|it| Line::raw(format!("missing: {}: {}", it.capability, it.sentence))));
    let height = usize::from(area.height);
    let incidents = model.incidents().iter().take(3);
    let rows = model.rows();
    let room = height.saturating_sub(lines.len() + 3 + incidents.len());
    let first = model.row(&rows).saturating_sub(room.saturating_sub(1));
    lines.push(Line::raw(format!("{} by {}", selected.map_or("", |name| name), model.sort.words())));
    lines.extend(rows.iter().skip(first).take(room).map(ranking_line));
    lines.resize_with(height.saturating_sub(2 + incidents.len()), Line::default);
    lines.push(Line::raw("incidents"));
    lines
        .extend(incidents.map(|line| Line::raw(format!("{} {}", line.time.strftime("%m-%d %H:%M:%SZ"), line.summary))));
    lines.push(Line::raw(status(model, state)));
    lines
}

const HELP: &str = "\
up, down    select a workload or an incident (i switches)
tab, arrows switch the signal; in an incident, open its neighbour
s           sort
/           filter by name
[ ]         step through the recorded minute or incident
enter       open the selected incident
w           what if: type a threshold such as 500Mi or 10%
esc         back to the present, without filter and threshold
c           colour
q           quit";

/// Returns the last line: what is typed, or what differs from the plain present.
fn status(model: &Model, state: &State) -> String {
    match (&model.entry, &model.mistake, &model.link) {
        (Some(Entry::Filter(typed)), ..) => return format!("/{typed}_"),
        (Some(Entry::WhatIf(typed)), ..) => return format!("threshold: {typed}_"),
        (_, Some(mistake), _) => return mistake.clone(),
        (.., Link::Lost(reason)) => return format!("no connection: {reason}"),
        _ => {}
    }
    let answer = model.what_if.as_ref().zip(model.selected_signal()).map(|(asked, signal)| {
        WhatIf::of(asked, state, signal).map_or_else(|| "the signal is not observed".to_owned(), |it| it.sentence)
    });
    let paused = model.paused.map(|at| format!("paused at frame {} of {}", at + 1, model.frames.len()));
    answer
        .or(paused)
        .unwrap_or_else(|| "? help  q quit  s sort  / filter  w what-if  [ ] step  enter incident".to_owned())
}

fn record_lines(opened: &Opened) -> Vec<Line<'_>> {
    let incident = match &opened.record {
        Record::Awaited => return vec![Line::raw(format!("{} is being read", opened.id))],
        Record::Unreadable(reason) => return vec![Line::raw(format!("{} cannot be read: {reason}", opened.id))],
        Record::Read(incident) => incident,
    };
    let moments = opened.moments();
    let now = moments.get(opened.moment).copied().unwrap_or_default();
    let when = if now < 0.0 { "after" } else { "before" };
    let frame = format!("frame {} of {}, {:.0} ms {when} the incident", opened.moment + 1, moments.len(), now.abs());
    let mut lines = vec![Line::raw(&*incident.summary), Line::raw(frame)];
    for (name, signal) in &incident.signals {
        let value = signal.samples.iter().rfind(|(ms, _)| *ms >= now).map(|(_, value)| amount(*value, &signal.unit));
        let value = value.unwrap_or_else(|| "?".to_owned());
        let threshold =
            signal.threshold.map(|it| format!("threshold {}", amount(it, &signal.unit))).unwrap_or_default();
        lines.push(Line::raw(format!("  {} {} {threshold}", fit(name, 24), fit_right(&value, 12))));
    }
    let steps = incident.steps.iter().map(|step| {
        let mark = if -step.ms >= now { '*' } else { ' ' };
        Line::raw(format!("{mark} {:>10.1} ms {}", step.ms, step.step))
    });
    let places = incident.ranking.iter().map(|place| {
        let number = place.place.map_or_else(|| "-".to_owned(), |number| number.to_string());
        let pod = place.name.as_ref().and_then(node_pressure_state::Identity::full_pod);
        let keys = place.keys.iter().map(|key| &*key.value).collect::<Vec<_>>().join(", ");
        let name = pod.as_deref().unwrap_or(&place.workload);
        Line::raw(format!(
            "{} {} {}",
            fit_right(&number, 4),
            fit(name, NAME),
            place.protection.as_ref().unwrap_or(&keys)
        ))
    });
    lines.extend(steps.chain(places).skip(usize::from(opened.scroll)));
    lines
}

fn evictions(state: &State) -> String {
    let evictions = &state.evictions;
    let under_way = evictions.under_way.iter().map(|it| format!("{}: {}", it.display, it.step));
    let budget = evictions.budget_left.zip(evictions.budget_per_minute);
    let budget = budget.map(|(left, of)| format!("{left} of {of} evictions a minute left"));
    let cool_down = evictions.cool_down_seconds.map(|seconds| format!("next eviction in {}", wait(seconds)));
    under_way.chain(budget).chain(cool_down).chain(evictions.waits_because.clone()).collect::<Vec<_>>().join("; ")
}

fn pressure(state: &State) -> String {
    let lines = state.pressure.iter().filter(|it| it.scope == "system");
    let lines = lines.map(|it| format!("{} {} {:.1}%", it.resource, it.kind, it.avg10 * 100.0));
    format!("PSI of 10 s: {}", lines.collect::<Vec<_>>().join(", "))
}

fn signal_line(signal: &SignalState, is_selected: bool) -> Line<'_> {
    let mark = if is_selected { '>' } else { ' ' };
    let column =
        |number: u64, of: u64| (0..BAR).filter(|at| float(*at as u64) < float(number) / float(of) * 20.0).count();
    let bar: String = match (signal.available, signal.capacity.filter(|capacity| *capacity > 0)) {
        (Some(available), Some(capacity)) => {
            let filled = column(available, capacity);
            let marks: Vec<usize> =
                signal.thresholds.iter().filter_map(|it| Some(column(it.value?, capacity).saturating_sub(1))).collect();
            (0..BAR)
                .map(|at| {
                    if marks.contains(&at) {
                        '|'
                    } else if at < filled {
                        '█'
                    } else {
                        '░'
                    }
                })
                .collect()
        }
        _ => "?".repeat(BAR),
    };
    let left = signal.available.map_or_else(|| "not observed".to_owned(), |it| amount(it, &signal.unit));
    let near = signal.thresholds.iter().find(|it| it.met).map(|it| format!("{} is met", it.threshold));
    let next = signal.thresholds.iter().filter(|it| !it.met).min_by(|a, b| {
        let seconds = |it: &&node_pressure_state::ThresholdState| it.crossed_in_seconds.unwrap_or(f64::INFINITY);
        seconds(a).total_cmp(&seconds(b))
    });
    let next = next.and_then(|it| Some(format!("{} in {}", it.threshold, wait(it.crossed_in_seconds?))));
    let then = [next, near].into_iter().flatten().collect::<Vec<_>>().join("; ").replace(&signal.signal, "");
    Line::raw(format!("{mark}{} {bar} {} {then}", fit(&signal.signal, 19), fit_right(&left, 12)))
}

fn ranking_line<'a>(row: &Row<'a>) -> Line<'a> {
    let place = row.place.and_then(|place| place.place).map_or_else(|| "-".to_owned(), |place| place.to_string());
    let memory = row.state.and_then(|it| it.memory_bytes).map_or_else(|| "-".to_owned(), |it| amount(it, "bytes"));
    let change = row.state.and_then(|it| it.memory_bytes_per_second).map_or_else(String::new, |it| rate(it, "bytes"));
    let keys = || row.place.map(|place| place.keys.iter().map(|key| &*key.value).collect::<Vec<_>>().join(", "));
    let why = row.exempt().map(|why| format!("exempt: {why}")).or_else(keys).unwrap_or_default();
    let next = if row.is_next { "NEXT" } else { "" };
    Line::from(Span::raw(format!(
        "{} {} {} {} {} {why}",
        fit(next, 4),
        fit_right(&place, 3),
        fit(row.display, NAME),
        fit_right(&memory, 9),
        fit_right(&change, 12)
    )))
}
