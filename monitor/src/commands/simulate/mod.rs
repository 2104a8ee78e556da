//! `node-pressure-monitor simulate`: the decision, replayed over a trace.

mod answer;
mod cache;
mod lines;
mod progress;
mod table;
mod trace;

use std::fs::{File, Metadata};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};

use crate::config::{MonitorConfig, Policy};
use crate::eviction::decider::{Decider, OwnedRules, Pace, RecordedCandidate, RecordedLine, RecordedRules, Rules};
use crate::eviction::preview::{AgentView, Preview};
use crate::eviction::synchronization::{Input, Synchronized, synchronize};
use crate::eviction::{Armed, Layout};
use crate::units::Moment;

use super::input::{self, CommandError, Fault};
use super::output::TableOrJson;
use answer::Answer;
use cache::PodCache;
use lines::{Lines, LinesError};
use table::Table;
use trace::{EXPECTED, TraceLine};

pub use progress::Progress;

/// Options of `simulate`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// The policy: a KubeletConfiguration or OpenShift 3 kubeletArguments for the kubelet's decisions, a MonitorConfiguration for the agent's;
    /// - is standard input
    #[arg(long, value_name = "POLICY.yaml")]
    config: PathBuf,
    /// How to answer
    #[arg(long, value_enum, default_value_t = TableOrJson::Json)]
    output: TableOrJson,
    /// Print the number of lines and the time they took on stderr, also when that is no terminal
    #[arg(long)]
    stats: bool,
    /// The trace; standard input when it is - or not given
    #[arg(value_name = "TRACE.jsonl")]
    trace: Option<PathBuf>,
}

/// Bytes per write.
const BUFFER: usize = 256 << 10;

const HELP: &str = r#"A trace has one JSON object a line, each what was so at one time:

  {"time": "2026-01-01T00:00:10Z",
   "node": {"capacity": {"memory": "10Gi"}, "dedicatedImageFs": false, "splitImageFs": false},
   "summary": {Summary API, as from /stats/summary},
   "summaryAfterGarbageCollection": {the same, once garbage was collected; without it that freed nothing},
   "pods": [v1.Pod, ...]}

All but the time may be missing or null, and fields that are not known are passed over. Blank lines are skipped. The trace is what
happened: a pod that was evicted and is still in the next line is still there. The filesystems (dedicatedImageFs, splitImageFs) may
not change in mid-trace. Without node.capacity.memory the answer has no oomScoreAdj.

The answer has one JSON object a line, in the same order: time, signals, thresholdsMet, conditions, garbageCollection, ranking,
evict, localStorageEvictions, pods.

The kind of the configuration chooses the rules. With a MonitorConfiguration (semantics: corrected) they are the agent's: protected pods,
what an eviction buys, growth from line to line. Lines a second apart show growth best. evict.worth says what the eviction buys. Where the
trace lacks figures, notApplied names the rule, once, and standard error says why.

With --output table it has a row for each line on which something changes or is evicted.

Exit status: 0 the whole trace was answered, or the reader of the answer went away; 1 the policy or the trace is wrong (every line
before the one at fault is answered), or the answer cannot be written; 2 wrong usage, or a file that cannot be read."#;

pub fn run(options: &Options) -> Result<(), CommandError> {
    if input::is_stdin(&options.config) && options.trace.as_deref().is_none_or(input::is_stdin) {
        let reason = "--config -: the trace is standard input already; name a file for one of them";
        return Err(CommandError::Usage(reason.to_owned()));
    }
    let source = RulesSource::read(&options.config)?;
    let Source { name, reader, size } = Source::open(options.trace.as_deref())?;
    let progress = Progress::new(size, options.stats);
    match replay(source.chosen(), &name, reader, io::stdout().lock(), options.output, progress) {
        Err(error) if error.is_broken_pipe() => Ok(()),
        result => result.map(|_| ()),
    }
}

/// The source of a trace.
struct Source {
    name: String,
    reader: Box<dyn Read>,
    /// The length of the trace, if known.
    size: Option<u64>,
}

impl Source {
    fn open(path: Option<&Path>) -> Result<Self, CommandError> {
        let size = |path: &Path| std::fs::metadata(path).ok().filter(Metadata::is_file).map(|metadata| metadata.len());
        match path {
            Some(path) if path.as_os_str() != "-" => {
                let name = path.display().to_string();
                match File::open(path) {
                    Ok(file) => Ok(Self { name, reader: Box::new(file), size: size(path) }),
                    Err(source) => Err(CommandError::Unreadable { file: name, source }),
                }
            }
            None if io::stdin().is_terminal() => Err(CommandError::Usage(NO_TRACE.to_owned())),
            _ => {
                let name = "(standard input)".to_owned();
                Ok(Self { name, reader: Box::new(io::stdin().lock()), size: size(Path::new("/dev/stdin")) })
            }
        }
    }
}

const NO_TRACE: &str =
    "no trace: name a file, or pipe one in (node-pressure-monitor simulate --help says what one looks like)";

/// Where the rules come from.
enum RulesSource {
    /// A turn that an agent recorded.
    Recorded(Box<OwnedRules>),
    Config(Box<MonitorConfig>),
}

impl RulesSource {
    fn read(path: &Path) -> Result<Self, CommandError> {
        if !input::is_stdin(path)
            && let Ok(bytes) = std::fs::read(path)
            && let Ok(recorded) = serde_json::from_slice::<RecordedRules<OwnedRules>>(&bytes)
            && recorded.kind == RecordedRules::<OwnedRules>::KIND
        {
            return Ok(Self::Recorded(Box::new(recorded.rules)));
        }
        Ok(Self::Config(Box::new(input::monitor(path)?)))
    }

    fn chosen(&self) -> ChosenRules<'_> {
        match self {
            Self::Recorded(rules) => ChosenRules { rules: rules.borrow(), view: None },
            Self::Config(config) => ChosenRules {
                rules: Rules { policy: &config.policy, pace: Pace::Kubelet },
                view: AgentView::of(config),
            },
        }
    }
}

/// The rules of a replay.
struct ChosenRules<'a> {
    /// Those of recorded turns, and of the kubelet.
    rules: Rules<'a>,
    /// The agent's, where these hold.
    view: Option<AgentView<'a>>,
}

/// The node that decides.
enum Node<'a> {
    Kubelet(Box<Decider<RecordedCandidate>>),
    Agent(Box<Preview<'a>>),
}

impl Node<'_> {
    fn decide<'b>(&mut self, policy: &Policy, input: &Input<'b>) -> Synchronized<'b> {
        match self {
            Self::Kubelet(decider) => synchronize(decider, policy, input),
            Self::Agent(preview) => preview.synchronize(input),
        }
    }

    fn armed(&self) -> &[Armed] {
        match self {
            Self::Kubelet(decider) => decider.armed(),
            Self::Agent(preview) => preview.armed(),
        }
    }
}

/// Answers every line of `trace` by the kubelet's rules, in constant memory. Errors name the trace `name`. Returns the number of answered
/// lines.
/// When a line is wrong, all lines before it are answered.
pub fn simulate(
    policy: &Policy,
    name: &str,
    trace: impl Read,
    answer: impl Write,
    format: TableOrJson,
    progress: Progress,
) -> Result<u64, CommandError> {
    let chosen = ChosenRules { rules: Rules { policy, pace: Pace::Kubelet }, view: None };
    replay(chosen, name, trace, answer, format, progress)
}

fn replay(
    chosen: ChosenRules<'_>,
    name: &str,
    trace: impl Read,
    answer: impl Write,
    format: TableOrJson,
    mut progress: Progress,
) -> Result<u64, CommandError> {
    let mut simulation = Simulation::new(chosen, name);
    let mut writer = BufWriter::with_capacity(BUFFER, answer);
    let replayed = simulation.replay(trace, &mut writer, format, &mut progress);
    let written = replayed.and(writer.flush().map_err(CommandError::Output));
    match &written {
        Ok(()) => progress.end(simulation.answered),
        Err(_) => progress.clear(),
    }
    written?;
    if simulation.differing > 0 {
        let (differing, replayed) = (simulation.differing, simulation.replayed);
        let reason = format!(
            "{name}: {differing} of {replayed} recorded turns were replayed to another step, victim or explanation"
        );
        return Err(CommandError::Wrong(reason));
    }
    Ok(simulation.answered)
}

/// State of the simulated node.
struct Simulation<'a> {
    rules: Rules<'a>,
    name: &'a str,
    /// The filesystem layout, and its first line.
    layout: Option<(Layout, u64)>,
    node: Node<'a>,
    before: Option<Moment>,
    pods: PodCache,
    answered: u64,
    /// Number of replayed turns, and of those with another outcome.
    replayed: u64,
    differing: u64,
    swap_noted: bool,
    twice_noted: bool,
}

impl<'a> Simulation<'a> {
    fn new(ChosenRules { rules, view }: ChosenRules<'a>, name: &'a str) -> Self {
        let kubelet = || Node::Kubelet(Box::default());
        let node = view.map_or_else(kubelet, |view| Node::Agent(Box::new(Preview::of(view))));
        Self {
            rules,
            node,
            name,
            layout: None,
            before: None,
            pods: PodCache::default(),
            answered: 0,
            replayed: 0,
            differing: 0,
            swap_noted: false,
            twice_noted: false,
        }
    }

    fn replay(
        &mut self,
        trace: impl Read,
        writer: &mut impl Write,
        format: TableOrJson,
        progress: &mut Progress,
    ) -> Result<(), CommandError> {
        let name = self.name;
        let at =
            |number: u64, column: usize, what: &str| CommandError::Wrong(format!("{name}:{number}:{column}: {what}"));
        let mut lines = Lines::new(trace);
        let mut table = Table::new(self.rules.policy);
        loop {
            // A reader that follows a growing trace sees each answer at once.
            if lines.may_wait() {
                writer.flush().map_err(CommandError::Output)?;
            }
            let line = match lines.next_line() {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(LinesError::Io(source)) => return Err(CommandError::Unreadable { file: name.to_owned(), source }),
                Err(error) => return Err(at(lines.number(), error.column(), &format!("{error}; {EXPECTED}"))),
            };
            let wrong = |fault: Fault| at(line.number, fault.column, &format!("{fault}; {EXPECTED}"));
            let parsed = TraceLine::parse(line.text).map_err(wrong)?;
            if parsed.is_recorded() {
                let recorded: RecordedLine = input::parse(line.text).map_err(wrong)?;
                self.replay_turn(&recorded, writer, format).map_err(CommandError::Output)?;
                progress.at(self.answered, line.end);
                continue;
            }
            self.pods.update(&parsed, line.text, self.rules.policy).map_err(wrong)?;
            self.note_clock(&parsed, line.number, progress);
            self.note_once(&parsed, line.number, progress);
            self.check_layout(parsed.layout(), line.number).map_err(|reason| at(line.number, 1, &reason))?;
            let answer = self.step(&parsed);
            for rule in &answer.decision.not_applied {
                progress.print(&format!("{name}:{}: not applied: {}: {}", line.number, rule.as_str(), rule.reason()));
            }
            let written = match format {
                TableOrJson::Json => answer::write_json(writer, &answer),
                TableOrJson::Table => table.write(writer, &answer),
            };
            written.map_err(CommandError::Output)?;
            self.answered += 1;
            progress.at(self.answered, line.end);
        }
        table.end(writer).map_err(CommandError::Output)
    }

    /// Replays a recorded turn and writes whether the outcome is the same.
    fn replay_turn(&mut self, line: &RecordedLine, writer: &mut impl Write, format: TableOrJson) -> io::Result<()> {
        let replayed = line.replay(self.rules);
        self.answered += 1;
        self.replayed += 1;
        self.differing += u64::from(replayed.difference.is_some());
        match format {
            TableOrJson::Json => answer::write_replayed(writer, &line.time, &replayed),
            TableOrJson::Table => table::write_replayed(writer, &line.time, &replayed),
        }
    }

    /// Checks that the layout stays the same: a kubelet reads its filesystems only at its start.
    fn check_layout(&mut self, layout: Layout, number: u64) -> Result<(), String> {
        let (before, since) = *self.layout.get_or_insert((layout, number));
        if before == layout {
            return Ok(());
        }
        Err(format!(
            "node: the filesystems change in mid-trace: {} since line {since}, now {}; a kubelet looks at them once, when it \
             starts: make this the first line of another trace",
            words(before),
            words(layout)
        ))
    }

    fn note_clock(&mut self, parsed: &TraceLine<'_>, number: u64, progress: &mut Progress) {
        let now = parsed.time.at;
        if self.before.is_some_and(|before| now < before) {
            let name = self.name;
            progress.note(&format!("{name}:{number}: the clock goes back here, to {}", parsed.time.text));
        }
        self.before = Some(now);
    }

    fn note_once(&mut self, parsed: &TraceLine<'_>, number: u64, progress: &mut Progress) {
        let name = self.name;
        if !self.swap_noted
            && let Some(words) = input::swap_words(&parsed.summary)
        {
            self.swap_noted = true;
            progress.print(&format!("{name}:{number}: {words}"));
        }
        if !self.twice_noted
            && let Some(pod) = self.pods.twice()
        {
            self.twice_noted = true;
            progress.print(&format!(
                "{name}:{number}: pods: two are {pod}; of pods with the same name the last counts in the answer's pods"
            ));
        }
    }

    fn step<'b>(&'b mut self, parsed: &'b TraceLine<'_>) -> Answer<'b> {
        let input = Input {
            now: parsed.time.at,
            layout: parsed.layout(),
            summary: &parsed.summary,
            after_collection: parsed.summary_after_garbage_collection.as_ref(),
            pods: self.pods.pods(),
        };
        let decision = self.node.decide(self.rules.policy, &input);
        Answer { time: &parsed.time.text, armed: self.node.armed(), decision, pods: self.pods.described() }
    }
}

fn words(layout: Layout) -> &'static str {
    match layout {
        Layout::Single => "one for all",
        Layout::DedicatedImageFs => "one for images and containers (dedicatedImageFs)",
        Layout::SplitImageFs => "one for images alone (dedicatedImageFs, splitImageFs)",
    }
}
