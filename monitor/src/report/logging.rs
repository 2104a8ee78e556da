//! Log records on stderr or in the journal: as JSON lines, as text, for people at a terminal, or as entries of systemd-journald.

use std::io::{IsTerminal as _, Write, stderr};
use std::time::Duration;

use tracing::Subscriber;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt as _;

use super::log_journal::{JournalWriter, leads_to_journal};
use super::log_people::PeopleWriter;

/// The environment variable with the log filter, e.g. `debug` or `info,node_pressure_monitor::kernel=debug`.
pub const FILTER_VARIABLE: &str = "NODE_PRESSURE_LOG";
/// `kube_client` logs every failed request; the agent reports a failure once.
const DEFAULT_FILTER: &str = "info,kube_client=off";
/// Any text in this variable switches colours off (<https://no-color.org>).
const NO_COLOUR_VARIABLE: &str = "NO_COLOR";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// One line of text with all fields
    Text,
    /// One JSON object a line
    Json,
    /// For people: what happened, to whom, why, and what to do
    People,
    /// Entries of systemd-journald with priorities and fields; stderr while journald is away
    Journal,
}

impl LogFormat {
    /// Returns the journal if stderr leads there, lines for people on a terminal, and JSON otherwise.
    pub fn for_stderr() -> Self {
        match stderr() {
            stderr if stderr.is_terminal() => Self::People,
            stderr if leads_to_journal(&stderr) => Self::Journal,
            _ => Self::Json,
        }
    }

    /// Whether a person reads stdout too.
    pub const fn is_for_people(self) -> bool {
        matches!(self, Self::Text | Self::People)
    }

    /// Returns the writer of formatted lines. The records for people and for the journal are formatted as JSON first: the thread that writes
    /// them does the rest, so that the loop pays for no more than one format.
    fn writer(self, colours: bool) -> Box<dyn Write + Send + Sync> {
        match self {
            Self::Text | Self::Json => Box::new(stderr()),
            Self::People => Box::new(PeopleWriter::new(stderr(), colours)),
            Self::Journal => Box::new(JournalWriter::new(stderr())),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error("{FILTER_VARIABLE}={value:?}: {reason}; write e.g. debug or info,node_pressure_monitor::kernel=debug")]
    Filter { value: String, reason: String },
    #[error("logging is set up already: {0}")]
    Taken(String),
}

/// Maximum number of lines queued for a slow reader. Further lines are dropped.
const WAITING_LINES: usize = 4096;

/// The writer thread. Dropping this writes the queued lines.
#[derive(Debug)]
pub struct Writer {
    _thread: WorkerGuard,
    dropped: ErrorCounter,
}

impl Writer {
    pub fn dropped(&self) -> u64 {
        self.dropped.dropped_lines() as u64
    }
}

#[cfg(test)]
impl Writer {
    pub(super) fn discarding() -> Self {
        let (writer, thread) = NonBlockingBuilder::default().finish(std::io::sink());
        Self { _thread: thread, dropped: writer.error_counter() }
    }
}

/// Sends all records of the process to stderr or the journal, including those of the `log` crate. A separate thread writes them, so that a
/// stalled reader cannot block the loop.
pub fn init(format: LogFormat) -> Result<Writer, LoggingError> {
    let value = std::env::var(FILTER_VARIABLE).unwrap_or_default();
    let filter = filter(&value)?;
    let colours = stderr().is_terminal() && std::env::var_os(NO_COLOUR_VARIABLE).is_none_or(|value| value.is_empty());
    let (writer, thread) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(WAITING_LINES)
        .thread_name("log")
        .finish(format.writer(colours));
    let dropped = writer.error_counter();
    if cfg!(panic = "abort") {
        write_before_abort();
    }
    subscriber(format, filter, colours, writer).try_init().map_err(|error| LoggingError::Taken(error.to_string()))?;
    Ok(Writer { _thread: thread, dropped })
}

/// An abort drops nothing: before it, the log thread gets time for the queued lines.
fn write_before_abort() {
    const WRITTEN_WITHIN: Duration = Duration::from_millis(200);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        usual(panic);
        std::thread::sleep(WRITTEN_WITHIN);
    }));
}

/// Parses a filter. An empty value selects the default.
fn filter(value: &str) -> Result<EnvFilter, LoggingError> {
    let text = if value.trim().is_empty() { DEFAULT_FILTER } else { value };
    EnvFilter::builder()
        .parse(text)
        .map_err(|error| LoggingError::Filter { value: value.to_owned(), reason: error.to_string() })
}

fn subscriber<W>(format: LogFormat, filter: EnvFilter, colours: bool, writer: W) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match format {
        LogFormat::Text => Box::new(builder.with_ansi(colours).with_target(false).finish()),
        LogFormat::Json | LogFormat::People | LogFormat::Journal => {
            Box::new(builder.json().flatten_event(true).with_current_span(false).with_span_list(false).finish())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: LogFormat, filter_text: &str, act: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = subscriber(format, filter(filter_text).unwrap(), false, move || writer.clone());
        tracing::subscriber::with_default(subscriber, act);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    fn record() {
        tracing::debug!("not by default");
        tracing::info!(event = "recovered", available_bytes = 5_u64, signal = "memory.available", "fine again");
    }

    #[test]
    fn json_has_its_fields_at_the_top_level() {
        let text = logged(LogFormat::Json, "", record);
        assert_eq!(text.lines().count(), 1, "{text}");
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["event"], "recovered");
        assert_eq!(value["available_bytes"], 5);
        assert_eq!(value["signal"], "memory.available");
        assert_eq!(value["message"], "fine again");
        assert_eq!(value["level"], "INFO");
        assert!(value["timestamp"].as_str().unwrap().ends_with('Z'));
    }

    #[test]
    fn text_is_one_line_and_the_filter_applies() {
        let text = logged(LogFormat::Text, "debug", record);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("fine again event=\"recovered\" available_bytes=5"), "{text}");
    }

    #[test]
    fn a_malformed_filter_is_named() {
        let error = filter("a=b=c").unwrap_err().to_string();
        assert!(error.starts_with("NODE_PRESSURE_LOG=\"a=b=c\": "), "{error}");
    }
}
