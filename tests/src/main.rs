//! The program inside the test VM. As process 1 it prepares the guest and plays scenarios; each subcommand is a workload.

mod agent;
mod catalogue;
mod cgroups;
mod cluster;
mod config;
mod console;
mod containers;
mod control_plane;
mod evidence;
mod http;
mod incidents;
mod init;
mod knob;
mod processes;
#[expect(dead_code, reason = "the benches use the rest")]
mod reference;
mod replay;
mod sampler;
mod scenarios;
mod stage;
mod units;
mod viewers;
mod work;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::catalogue::Boot;

/// The test VM's pid 1 and its workloads.
#[derive(Debug, Parser)]
#[command(name = "vm-guest")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Be one workload; prints nothing.
    #[command(subcommand)]
    Work(work::Work),
    /// Play the scenarios asked for, as a service of the guest's systemd.
    Serve,
    /// List the scenarios.
    List,
}

fn main() -> ExitCode {
    if std::process::id() == 1 {
        init::main();
    }
    match Arguments::parse().command {
        Command::Serve => init::serve(),
        // A workload's standard streams are /dev/null: its exit status is all it may say.
        Command::Work(work) => work.run(),
        Command::List => {
            for entry in catalogue::CATALOGUE {
                let boots = [
                    (Boot::Reference, "v2"),
                    (Boot::Remainder, "v2"),
                    (Boot::Contrast, "v1"),
                    (Boot::Between, "v2"),
                    (Boot::Containers, "v2"),
                    (Boot::Cluster, "v2"),
                ];
                let times =
                    boots.map(|(boot, cgroup)| entry.expression(cgroup, boot, true).unwrap_or_else(|| "-".to_owned()));
                println!(
                    "{:<16} {:<6} {} ({} s at most; in the boots of a long test: {})",
                    entry.name,
                    entry.cgroups.join(","),
                    entry.about,
                    entry.timeout_seconds,
                    times.join(", "),
                );
            }
            ExitCode::SUCCESS
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Arguments;

    #[test]
    fn no_two_options_have_one_name() {
        Arguments::command().debug_assert();
    }
}
