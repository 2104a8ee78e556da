//! The program behind `cargo xtask manifests`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::Parser;

use node_pressure_manifests::{chart, check, kustomize, root};

/// Builds a kustomization, or checks all of them.
#[derive(Debug, Parser)]
struct Arguments {
    /// Check every manifest against the published schemas and against the code
    #[arg(long)]
    check: bool,
    /// Write the generated files of the Helm chart
    #[arg(long, conflicts_with = "check")]
    chart: bool,
    /// Print what `kubectl apply -k DIRECTORY` would apply
    #[arg(value_name = "DIRECTORY", conflicts_with_all = ["check", "chart"])]
    directory: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(directory) = &arguments.directory {
        for object in kustomize::build(directory)? {
            println!("---\n{}", serde_saphyr::to_string(&object)?.trim_end());
        }
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.chart {
        println!("wrote {} files in {}", chart::write(&root())?, chart::CHART);
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.check {
        bail!("give --check, --chart, or a directory such as config/kubernetes");
    }
    let root = root();
    let report = check(&root)?;
    for (directory, objects) in &report.kustomizations {
        println!("{:<40} {objects} objects", directory.strip_prefix(&root).unwrap_or(directory).display());
    }
    for unit in &report.units {
        println!("{:<40} unit", unit.strip_prefix(&root).unwrap_or(unit).display());
    }
    for problem in &report.problems {
        println!("WRONG {problem}");
    }
    println!("{} problems", report.problems.len());
    Ok(if report.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
