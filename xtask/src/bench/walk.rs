//! CPU time of the background walk over many files, compared with its budget.

use anyhow::{Result, bail};

use super::kernel::Outcome;
use super::lines_of;
use crate::paths::Workspace;

/// The number of files in the promise.
const MANY: &str = "1000000";
/// The number of files for `cargo xtask test`.
const FEWER: &str = "100000";

/// Walks a million files. The walk takes about three minutes, and so do making and removing the files.
pub fn million(_: &Workspace) -> Result<Outcome> {
    walk(MANY, "bench")
}

/// Walks a tenth of a million files.
pub fn tenth(_: &Workspace) -> Result<Outcome> {
    // The dev profile suffices: the budget does not depend on optimization, and tests have compiled the profile before.
    walk(FEWER, "dev")
}

fn walk(files: &str, profile: &str) -> Result<Outcome> {
    println!("== measuring walk, {files} files");
    // The bench compares the share with its budget itself, and fails beyond it.
    let lines = lines_of("walk", profile, &[("WALK_FILES", files)])?;
    for line in &lines {
        println!("{line}");
    }
    let Some((seconds, share, budget)) = lines.iter().find_map(|line| figures(line)) else {
        bail!("the bench printed no figures");
    };
    let count: f64 = files.parse()?;
    println!(
        "promise: the walk takes at most {:.1} % of a CPU: {:.2} %, kept; {:.0} files/s",
        budget * 100.0,
        share * 100.0,
        count / seconds
    );
    Ok(Outcome::Kept)
}

/// Parses `walk 100000 files: 12.3 s, 0.245 s of a CPU, share 0.0199 of 0.0200`. Returns the duration, the share and the budget.
fn figures(line: &str) -> Option<(f64, f64, f64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ["walk", _, "files:", seconds, "s,", _, "s", "of", "a", "CPU,", "share", share, "of", budget] = words[..]
    else {
        return None;
    };
    Some((seconds.parse().ok()?, share.parse().ok()?, budget.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_are_parsed() {
        let line = "walk 100000 files: 12.3 s, 0.245 s of a CPU, share 0.0199 of 0.0200";
        assert_eq!(figures(line), Some((12.3, 0.0199, 0.02)));
        assert_eq!(figures("walk: 100000 files in 100 directories made in 3.1 s"), None);
    }
}
