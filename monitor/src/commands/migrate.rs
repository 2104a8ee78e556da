//! `node-pressure-monitor migrate`: turns a kubelet's configuration into one of the agent.

use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::config::migrate::{self, Migrated};
use crate::config::{MonitorConfig, OtherFiles, Semantics};
use crate::node::replaced_file;

use super::input::{self, CommandError, KubeletFiles};
use super::output;

/// Options of `migrate`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Options {
    /// The kubelet's settings: a KubeletConfiguration (also in a ConfigMap, in OpenShift 4's KubeletConfig, in EKS' NodeConfig, in Karpenter's
    /// EC2NodeClass, in Talos' machine configuration, or as answered by /configz), its flags (a command line, a unit, an environment file,
    /// config.yaml of k3s and RKE2 with the config.yaml.d beside it), or OpenShift 3's NodeConfig; - is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The rules by which the agent is to decide
    #[arg(long, value_enum, default_value_t = Semantics::Kubelet)]
    semantics: Semantics,
    /// Write the configuration to this file instead of standard output; a file that exists is kept
    #[arg(long, value_name = "FILE")]
    output_file: Option<PathBuf>,
    /// Replace the file of --output-file where it exists
    #[arg(long, requires = "output_file")]
    force: bool,
    #[command(flatten)]
    files: KubeletFiles,
}

const HELP: &str = r#"The answer is a MonitorConfiguration. Each of its lines names the line of FILE which it comes from, or says why it is there.
Settings without a counterpart are listed at the end with the reason. Names that no kubelet has, and files that were not read, are warned of on
standard error, too. The kubelet merges its file, the drop-ins of --config-dir and its flags, in this order; FILE is not migrated where its hard
thresholds depend on a file that was not read.
With `semantics: kubelet`, the default here, the agent decides as the kubelet did, and
`simulate` answers a trace equally for both files. `mode: observe` is written in any case: nothing is evicted before you change it.
A kubelet on the same node keeps evicting by its own configuration; config/README.md says how to divide the work.

Exit status: 0 migrated; 1 FILE has errors (standard error lists them), is a MonitorConfiguration already, or the answer cannot be written,
also because the output file exists; 2 wrong usage, or a file that cannot be read."#;

pub fn run(options: &Options) -> Result<(), CommandError> {
    let (name, bytes) = input::configuration(&options.file)?;
    let migrated = MonitorConfig::text_of(&name, bytes)
        .and_then(|text| {
            let migrate = |others: OtherFiles<'_>| migrate::migrate_with(&name, &text, options.semantics, others);
            options.files.with(&options.file, migrate)
        })
        .map_err(|errors| CommandError::Wrong(format!("the configuration is not migrated\n{errors}")))?;
    let Migrated { text: migrated, warnings } = migrated;
    for warning in &warnings {
        output::warn(warning);
    }
    let Some(path) = &options.output_file else {
        return output::answer(|out| out.write_all(migrated.as_bytes())).map_err(CommandError::Output);
    };
    write(path, &migrated, options.force).map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => {
            CommandError::Wrong(format!("{}: exists already, and is kept; replace it with --force", path.display()))
        }
        _ => CommandError::Unwritable { file: path.display().to_string(), source },
    })
}

fn write(path: &Path, text: &str, is_forced: bool) -> io::Result<()> {
    if is_forced {
        return replaced_file::replace(path, |file| file.write_all(text.as_bytes())).map(drop);
    }
    OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
