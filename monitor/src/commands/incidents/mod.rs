//! `node-pressure-monitor incidents`: what happened on this node, from the journal, with or without an agent at work.

mod export_trace;
mod incident_collector;
mod incident_table;

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;

use crate::config::{IncidentOptions, MonitorConfig};
use crate::incidents::{Incident, text};

use super::input::CommandError;
use super::output;
use export_trace::Export;
use incident_collector::{Collected, Collector};

/// Options of `incidents`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    /// The incident to tell: its id, the beginning of it that no other has, or last
    #[arg(value_name = "ID", conflicts_with = "limit")]
    id: Option<String>,
    /// Go on, and print each further incident as it happens
    #[arg(long, conflicts_with = "id")]
    follow: bool,
    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    output: Format,
    /// Configuration file of the agent, which says where its journal is; without one the default is looked at
    #[arg(long, value_name = "FILE", global = true)]
    config: Option<PathBuf>,
    /// Directory of the journal, whatever the configuration says
    #[arg(long, value_name = "DIRECTORY", global = true)]
    directory: Option<PathBuf>,
    /// List at most so many, the newest
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
}

const HELP: &str = "Without an ID the incidents are listed, newest last: OOM kills of the kernel, and evictions of the agent. With one it is told with all \
evidence. With --output json each is one object a line, everything in it; what is not known is left out. Of an eviction that ended, the \
last record counts.

The journal is read beside an agent that is at work, and without one. What a crash left unfinished or a disk damaged is skipped, and said.

Exit status: 0 answered; 1 the journal or the configuration is wrong, or there is no such incident; 2 wrong usage, or a file that cannot \
be read.";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Write the snapshots and steps that led to an eviction as a trace, which simulate replays
    Export(Export),
}

/// How often a journal that is followed is looked at.
const POLL: Duration = Duration::from_millis(300);

/// Answers.
///
/// # Errors
/// When the journal cannot be read, there is no such incident, or the answer cannot be written.
pub fn run(options: &Options) -> Result<(), CommandError> {
    if options.action.is_some() && (options.follow || options.id.is_some()) {
        return Err(CommandError::Usage("incidents: give export after no other ID, and without --follow".to_owned()));
    }
    let directory = directory(options)?;
    let mut collector = Collector::new(&directory);
    let collected = match collector.poll() {
        Ok(collected) => collected,
        // An agent that has not started yet will make it.
        Err(error) if options.follow && error.kind() == io::ErrorKind::NotFound => Collected::default(),
        Err(source) => return Err(CommandError::Unreadable { file: directory.display().to_string(), source }),
    };
    note_damage(&collected);
    if let Some(Action::Export(export)) = &options.action {
        return export.run(&chosen(&collected, &export.id)?);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let written = match &options.id {
        Some(id) => tell(&mut out, &chosen(&collected, id)?, options.output),
        None => {
            let skipped = collected.incidents.len().saturating_sub(options.limit);
            let shown = collected.incidents.get(skipped..).unwrap_or_default();
            if skipped > 0 {
                output::note(format_args!(
                    "{skipped} older ones are not shown; --limit {} shows all",
                    collected.incidents.len()
                ));
            }
            let listed = list(&mut out, shown, options.output);
            if listed.is_ok() && options.follow { follow(&mut out, &mut collector, options.output) } else { listed }
        }
    };
    match written.and_then(|()| out.flush()).map_err(CommandError::Output) {
        // Whoever reads has had enough.
        Err(error) if error.is_broken_pipe() => Ok(()),
        result => result,
    }
}

fn directory(options: &Options) -> Result<PathBuf, CommandError> {
    if let Some(directory) = &options.directory {
        return Ok(directory.clone());
    }
    let Some(path) = &options.config else { return Ok(IncidentOptions::default().directory) };
    let bytes = MonitorConfig::read(path).map_err(|errors| CommandError::Usage(errors.to_string()))?;
    let loaded = MonitorConfig::parse_bytes(&path.display().to_string(), bytes);
    Ok(loaded.map_err(|errors| CommandError::Wrong(errors.to_string()))?.config.incidents.directory)
}

fn note_damage(collected: &Collected) {
    if collected.damaged > 0 {
        output::note(format_args!(
            "the journal is damaged in {} of its places: what was there is not shown",
            collected.damaged
        ));
    }
    if collected.unfinished {
        output::note("the last record is being written, or a crash cut it off: it is not shown");
    }
    if collected.unknown > 0 {
        output::note(format_args!("{} records are of no kind that this version knows", collected.unknown));
    }
}

/// The one of that name, or whose name begins so.
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
        [] if incidents.is_empty() => Err(CommandError::Wrong("the journal has no incident yet".to_owned())),
        [] => Err(CommandError::Wrong(format!(
            "no incident is called {id}; `node-pressure-monitor incidents` lists them"
        ))),
        [first, second, ..] => Err(CommandError::Wrong(format!(
            "{} incidents begin with {id}: {}, {}{}",
            found.len(),
            first.id,
            second.id,
            if found.len() > 2 { ", …" } else { "" }
        ))),
    }
}

fn tell(out: &mut impl Write, incident: &Incident, format: Format) -> io::Result<()> {
    match format {
        Format::Text => out.write_all(text::render(incident).as_bytes()),
        Format::Json => json(out, incident),
    }
}

fn json(out: &mut impl Write, incident: &Incident) -> io::Result<()> {
    serde_json::to_writer(&mut *out, incident)?;
    out.write_all(b"\n")
}

fn list(out: &mut impl Write, incidents: &[Incident], format: Format) -> io::Result<()> {
    match format {
        Format::Json => incidents.iter().try_for_each(|incident| json(out, incident)),
        Format::Text if incidents.is_empty() => {
            output::note("no incident is on record");
            Ok(())
        }
        Format::Text => incident_table::write(out, incidents),
    }
}

/// Until whoever reads goes away.
fn follow(out: &mut impl Write, collector: &mut Collector, format: Format) -> io::Result<()> {
    if format == Format::Text && io::stderr().is_terminal() {
        output::note("waiting for the next; Ctrl-C ends this");
    }
    loop {
        out.flush()?;
        std::thread::sleep(POLL);
        let collected = match collector.poll() {
            Ok(collected) => collected,
            // The agent may not have made it yet, or the directory was cleared away.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for incident in &collected.incidents {
            match format {
                Format::Json => json(out, incident)?,
                Format::Text => incident_table::row(out, incident)?,
            }
        }
    }
}
