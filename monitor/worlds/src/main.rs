//! `cargo xtask worlds` runs this program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use node_pressure_worlds::campaign::{self, Sum};
use node_pressure_worlds::checkers::{CHECKERS, Checker};
use node_pressure_worlds::episode::{self, Replay};
use node_pressure_worlds::generate::world;
use node_pressure_worlds::judge::judge_one;
use node_pressure_worlds::shrink::shrink;
use node_pressure_worlds::story;

/// Runs simulated nodes, and judges every kill by the invariants.
#[derive(Debug, Parser)]
struct Cli {
    /// The number of worlds.
    #[arg(long, default_value_t = 20_000)]
    count: u64,
    /// The seed of the series of worlds.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The number of the first world.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Only this invariant, by its name or its number.
    #[arg(long)]
    only: Option<String>,
    /// Print a failing world as a file that becomes a test.
    #[arg(long)]
    save: bool,
    /// Play the evictions of this trace, which an agent has recorded (`incidents export`), instead of worlds.
    #[arg(long, requires = "rules")]
    episodes: Option<PathBuf>,
    /// The rules of that agent (`incidents export --policy`).
    #[arg(long)]
    rules: Option<PathBuf>,
    /// Put each wrong rule in the place of the right one, and print how many worlds it takes to find that.
    #[cfg(feature = "mutants")]
    #[arg(long)]
    mutants: bool,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let is_chosen = |checker: &Checker| {
        cli.only.as_ref().is_none_or(|only| *only == checker.name || *only == checker.number.to_string())
    };
    let begun = Instant::now();
    #[cfg(feature = "mutants")]
    if cli.mutants {
        return mutants(&cli);
    }
    if let (Some(trace), Some(rules)) = (&cli.episodes, &cli.rules) {
        return play_episodes(trace, rules);
    }
    let sum = campaign::run(cli.seed, cli.first, cli.count, false);
    let mut is_right = true;
    for (checker, tally) in CHECKERS.iter().zip(&sum.tallies).filter(|(checker, _)| is_chosen(checker)) {
        for number in &tally.failing {
            tell(&cli, *checker, *number);
        }
        is_right &= tally.broken == 0;
    }
    is_right &= print(&sum, begun, is_chosen);
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints for each recorded eviction whether the simulated node ends with the same victim: `same`, `differs: WHY`, or `left out: WHY`.
fn play_episodes(trace: &Path, rules: &Path) -> ExitCode {
    let replays = match episode::replay_all(trace, rules) {
        Ok(replays) => replays,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::FAILURE;
        }
    };
    for replay in replays {
        match replay {
            Replay::Same => println!("same"),
            Replay::Differs(how) => println!("differs: {how}"),
            Replay::LeftOut(why) => println!("left out: {why}"),
        }
    }
    ExitCode::SUCCESS
}

fn tell(cli: &Cli, checker: Checker, number: u64) {
    let small = shrink(&world(cli.seed, number), checker);
    let findings = judge_one(&small, checker).findings;
    println!("world {number} of seed {}: {}", cli.seed, story::tell(&small, checker, &findings));
    if cli.save
        && let Ok(text) = serde_json::to_string_pretty(&small)
    {
        println!("{text}");
    }
}

/// Prints the sums. Returns whether each invariant was put to the test in enough worlds.
fn print(sum: &Sum, begun: Instant, is_chosen: impl Fn(&Checker) -> bool) -> bool {
    println!("{:>2} {:<12} {:>10} {:>10} {:>8}", "", "invariant", "worlds", "checked", "broken");
    let mut is_enough = sum.kills > 0;
    for (checker, tally) in CHECKERS.iter().zip(&sum.tallies).filter(|(checker, _)| is_chosen(checker)) {
        let least = sum.worlds / checker.share as u64;
        let note = if tally.worlds < least { "  too few worlds put it to the test" } else { "" };
        is_enough &= tally.worlds >= least;
        println!(
            "{:>2} {:<12} {:>10} {:>10} {:>8}{note}",
            checker.number, checker.name, tally.worlds, tally.checked, tally.broken
        );
    }
    println!(
        "{} worlds, {} turns, {} kills, {} OOM kills, {:.1} s",
        sum.worlds,
        sum.turns,
        sum.kills,
        sum.oom_kills,
        begun.elapsed().as_secs_f64()
    );
    is_enough
}

/// Prints the table of mutants. Fails if one of them is not found.
#[cfg(feature = "mutants")]
fn mutants(cli: &Cli) -> ExitCode {
    use node_pressure_monitor::eviction::mutants::{Mutant, choose};

    let mut are_all_found = true;
    println!("{:<70} {:>7}  invariants", "mutant", "worlds");
    for mutant in Mutant::ALL {
        choose(Some(mutant));
        if let (Some(trace), Some(rules)) = (&cli.episodes, &cli.rules) {
            return play_episodes(trace, rules);
        }
        let sum = campaign::run(cli.seed, cli.first, cli.count, true);
        let broken =
            CHECKERS.iter().zip(&sum.tallies).filter_map(|(checker, tally)| Some((checker.name, tally.first()?)));
        let names: Vec<&str> = broken.clone().map(|(name, _)| name).collect();
        match broken.map(|(_, number)| number).min() {
            Some(number) => println!("{:<70} {:>7}  {}", mutant.as_str(), number - cli.first + 1, names.join(", ")),
            None => {
                are_all_found = false;
                println!("{:<70} {:>7}  NOT FOUND", mutant.as_str(), sum.worlds);
            }
        }
    }
    choose(None);
    if are_all_found { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
