//! `node-pressure-monitor incidents`: the OOM kills and evictions of this node, from the journal, with or without a running agent.

mod export_trace;
mod incident_collector;
mod incident_table;

use std::io::{self, IsTerminal as _, Write};
use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;

use crate::config::IncidentOptions;
use crate::incidents::incident_filter::{IncidentFilter, parse_kind, parse_time};
use crate::incidents::{Head, Incident, Kind, text};

use super::input::{self, CommandError};
use super::output::{self, TextOrJson};
use export_trace::Export;
use incident_collector::{Collected, Collector};

/// Options of `incidents`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    /// Incident to show: its id, an unambiguous beginning of the id, or last
    #[arg(value_name = "ID", conflicts_with = "limit")]
    id: Option<String>,
    /// Keep running, and print each new incident
    #[arg(long, conflicts_with = "id")]
    follow: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = TextOrJson::Text)]
    output: TextOrJson,
    /// Configuration file of the agent, which names the journal's directory; default: the default directory
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Directory of the journal; overrides the configuration
    #[arg(long, value_name = "DIRECTORY", global = true)]
    directory: Option<PathBuf>,
    /// Most incidents to list; the newest are listed
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    filter: FilterOptions,
}

/// The options that narrow a list of incidents.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub(super) struct FilterOptions {
    /// List incidents since this time: a time span such as 24h, or a time such as 2026-01-02T03:04:05Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<Timestamp>,
    /// List incidents before this time
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<Timestamp>,
    /// List incidents of this kind: oom-kill or eviction
    #[arg(long, value_name = "KIND", value_parser = parse_kind)]
    pub kind: Option<Kind>,
    /// List incidents whose victim is a pod of this namespace
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// List incidents whose victim is this pod: name or namespace/name
    #[arg(long, value_name = "POD")]
    pub pod: Option<String>,
}

impl FilterOptions {
    pub fn filter(&self) -> IncidentFilter {
        let Self { since, until, kind, ref namespace, ref pod } = *self;
        IncidentFilter { since, until, kind, namespace: namespace.clone(), pod: pod.clone() }
    }
}

fn time(text: &str) -> Result<Timestamp, String> {
    parse_time(text, Timestamp::now())
}

impl Options {
    /// Removes the incidents that the options do not ask for.
    fn select(&self, incidents: &mut Vec<Incident>) {
        let filter = self.filter.filter();
        incidents.retain(|incident| filter.matches(&Head::from(incident)));
    }
}

const HELP: &str = "Without an ID the command lists the incidents, newest last: the kernel's OOM kills and the agent's evictions. With an ID it prints the \
post-mortem of the incident. --output json prints the complete record of each incident, one object a line; unknown fields are left out. If \
an incident has several records, the last one counts.

The command reads the journal of a running agent, or without an agent. It skips unfinished and damaged records with a note.

Exit status: 0 answered; 1 the journal or the configuration is wrong, or there is no such incident; 2 wrong usage, or a file that cannot \
be read.";

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Write the snapshots and steps that led to an eviction as a trace for simulate
    Export(Export),
}

/// Interval of polls with `--follow`.
const POLL: Duration = Duration::from_millis(300);

pub fn run(options: &Options) -> Result<(), CommandError> {
    if options.action.is_some() && (options.follow || options.id.is_some()) {
        return Err(CommandError::Usage(
            "incidents: export takes its own ID and no --follow; write: incidents export ID".to_owned(),
        ));
    }
    if options.id.is_some() && options.filter.filter() != IncidentFilter::default() {
        return Err(CommandError::Usage(
            "incidents: an ID selects one incident; leave out the ID or the filters".to_owned(),
        ));
    }
    let directory = directory(options)?;
    let mut collector = Collector::new(&directory);
    let collected = match collector.poll() {
        Ok(collected) => collected,
        // The agent creates the directory when it starts.
        Err(error) if options.follow && error.kind() == io::ErrorKind::NotFound => Collected::default(),
        Err(source) => return Err(CommandError::Unreadable { file: directory.display().to_string(), source }),
    };
    note_damage(&collected);
    if let Some(Action::Export(export)) = &options.action {
        return export.run(&chosen(&collected, &export.id)?);
    }
    if let Some(id) = &options.id {
        let incident = chosen(&collected, id)?;
        return output::answer(|out| show(out, &incident, options.output)).map_err(CommandError::Output);
    }
    let mut collected = collected;
    let known = collected.incidents.len();
    options.select(&mut collected.incidents);
    match known {
        0 if options.output == TextOrJson::Text => output::note("the journal has no incident"),
        1.. if collected.incidents.is_empty() => {
            output::note(format_args!("the options ask for none of the {known} incidents"));
        }
        _ => {}
    }
    let count = collected.incidents.len();
    let skipped = count.saturating_sub(options.limit);
    if skipped > 0 {
        output::note(format_args!("{skipped} older incidents are not shown; --limit {count} shows all"));
    }
    let shown = collected.incidents.get(skipped..).unwrap_or_default();
    let write = |out: &mut _| {
        list(out, shown, options.output)?;
        if options.follow { follow(out, &mut collector, options) } else { Ok(()) }
    };
    output::answer(write).map_err(CommandError::Output)
}

fn directory(options: &Options) -> Result<PathBuf, CommandError> {
    if let Some(directory) = &options.directory {
        return Ok(directory.clone());
    }
    let Some(path) = &options.config else { return Ok(IncidentOptions::default().directory) };
    Ok(input::load(path)?.1.config.incidents.directory)
}

fn note_damage(collected: &Collected) {
    if collected.damaged > 0 {
        output::note(format_args!(
            "the journal is damaged in {} places; damaged records are not shown",
            collected.damaged
        ));
    }
    if collected.unfinished {
        output::note("the last record is not shown: it is being written, or a crash cut it off");
    }
    if collected.unknown > 0 {
        output::note(format_args!("{} records are not shown: this version cannot read them", collected.unknown));
    }
}

/// Finds the incident with this id, or with the only id that begins so.
fn chosen(collected: &Collected, id: &str) -> Result<Incident, CommandError> {
    let incidents = &collected.incidents;
    let found: Vec<&Incident> = match id {
        "last" => incidents.last().into_iter().collect(),
        id => match incidents.iter().find(|incident| incident.id == id) {
            Some(exact) => vec![exact],
            None => incidents.iter().filter(|incident| incident.id.starts_with(id)).collect(),
        },
    };
    match found[..] {
        [one] => Ok(one.clone()),
        [] if incidents.is_empty() => Err(CommandError::Wrong("the journal has no incident".to_owned())),
        [] => Err(CommandError::Wrong(format!(
            "no incident has the id {id}; list the ids with: node-pressure-monitor incidents"
        ))),
        [first, second, ..] => Err(CommandError::Wrong(format!(
            "{} ids begin with {id}: {}, {}{}; give a longer beginning",
            found.len(),
            first.id,
            second.id,
            if found.len() > 2 { ", …" } else { "" }
        ))),
    }
}

fn show(out: &mut impl Write, incident: &Incident, format: TextOrJson) -> io::Result<()> {
    match format {
        TextOrJson::Text => out.write_all(text::render(incident).as_bytes()),
        TextOrJson::Json => json(out, incident),
    }
}

fn json(out: &mut impl Write, incident: &Incident) -> io::Result<()> {
    serde_json::to_writer(&mut *out, incident)?;
    out.write_all(b"\n")
}

fn list(out: &mut impl Write, incidents: &[Incident], format: TextOrJson) -> io::Result<()> {
    match format {
        TextOrJson::Json => incidents.iter().try_for_each(|incident| json(out, incident)),
        TextOrJson::Text if incidents.is_empty() => Ok(()),
        TextOrJson::Text => incident_table::write(out, incidents),
    }
}

/// Prints new incidents until the reader closes the pipe.
fn follow(out: &mut impl Write, collector: &mut Collector, options: &Options) -> io::Result<()> {
    if options.output == TextOrJson::Text && io::stderr().is_terminal() {
        output::note("waiting for incidents; Ctrl-C ends the command");
    }
    loop {
        out.flush()?;
        std::thread::sleep(POLL);
        let mut collected = match collector.poll() {
            Ok(collected) => collected,
            // The agent has not created the directory yet, or it was removed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        options.select(&mut collected.incidents);
        for incident in &collected.incidents {
            match options.output {
                TextOrJson::Json => json(out, incident)?,
                TextOrJson::Text => incident_table::row(out, incident)?,
            }
        }
    }
}
