//! Manual pages and completions, made from the definition of the agent's command line.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use clap::CommandFactory as _;
use clap_complete::Shell;

use node_pressure_monitor::commands::arguments::Arguments;

const NAME: &str = "node-pressure-monitor";
/// The file of each shell's completions.
const SHELLS: [(Shell, &str); 3] = [
    (Shell::Bash, "node-pressure-monitor.bash"),
    (Shell::Zsh, "_node-pressure-monitor"),
    (Shell::Fish, "node-pressure-monitor.fish"),
];

/// Writes `man/*.1` and `completions/*`.
pub fn write(directory: &Path) -> Result<()> {
    let (pages, completions) = (directory.join("man"), directory.join("completions"));
    for directory in [&pages, &completions] {
        fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    }
    clap_mangen::generate_to(Arguments::command(), &pages).context("writing the manual pages")?;
    for entry in fs::read_dir(&pages).with_context(|| format!("reading {}", pages.display()))? {
        let path = entry.with_context(|| format!("reading {}", pages.display()))?.path();
        let page = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        // The text behind the options has the exit statuses; man-pages(7) knows no section of the generator's name.
        fs::write(&path, page.replace(".SH EXTRA", ".SH NOTES"))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    for (shell, file) in SHELLS {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Arguments::command(), NAME, &mut script);
        let path = completions.join(file);
        fs::write(&path, script).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_completions() {
        let directory = std::env::temp_dir().join(format!("packaging-pages-{}", std::process::id()));
        write(&directory).unwrap();
        let read = |file: String| fs::read_to_string(directory.join(file)).unwrap();
        let main = read(format!("man/{NAME}.1"));
        for command in Arguments::command().get_subcommands().filter(|command| !command.is_hide_set()) {
            let name = command.get_name();
            let page = read(format!("man/{NAME}-{name}.1"));
            assert!(page.contains("Exit status"), "{name}: {page}");
            assert!(main.contains(&name.replace('-', "\\-")), "{name} is not in the main page");
            for (_, file) in SHELLS {
                assert!(read(format!("completions/{file}")).contains(name), "{file} does not know {name}");
            }
        }
        fs::remove_dir_all(directory).unwrap();
    }
}
