//! Evidence from the kernel that does not depend on the agent: signals, OOM kills, reclaim events.

pub mod calls;
pub mod kmsg;
pub mod trace;
mod tracefs;

use std::fs;

use anyhow::{Context, Result};

use crate::cgroups::{Layout, ROOT};

/// Returns the `oom_kill` counter of `/proc/vmstat`.
pub fn oom_kills() -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat").context("read /proc/vmstat")?;
    parse_vmstat(&text, "oom_kill").context("/proc/vmstat: no oom_kill")
}

/// Returns the sum of all counters of `/proc/vmstat` whose names begin with `prefix`.
pub fn vmstat(prefix: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/vmstat").context("read /proc/vmstat")?;
    sum_vmstat(&text, prefix).with_context(|| format!("/proc/vmstat: no {prefix}*"))
}

fn sum_vmstat(text: &str, prefix: &str) -> Option<u64> {
    let values: Vec<u64> = text
        .lines()
        .filter(|line| line.starts_with(prefix))
        .filter_map(|line| line.split_whitespace().nth(1)?.parse().ok())
        .collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

fn parse_vmstat(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.split(' ').next() == Some(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Returns one line of `/proc/meminfo` in bytes.
pub fn meminfo(key: &str) -> Result<u64> {
    let text = fs::read_to_string("/proc/meminfo").context("read /proc/meminfo")?;
    let kib: Option<u64> = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kib.map(|kib| kib * 1024).with_context(|| format!("/proc/meminfo: no {key}"))
}

/// Returns the kubelet's figure of available memory, computed here: capacity minus the root cgroup's working set.
pub fn kubelet_available(layout: Layout) -> Result<u64> {
    let root = match layout {
        Layout::V1 => format!("{ROOT}/memory"),
        Layout::V2 => ROOT.to_owned(),
    };
    let path = format!("{root}/memory.stat");
    let stat = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let field = |key| parse_vmstat(&stat, key).with_context(|| format!("{path}: no {key}"));
    let (usage, inactive) = match layout {
        Layout::V1 => {
            let path = format!("{root}/memory.usage_in_bytes");
            let text = fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
            (text.trim().parse().with_context(|| path)?, field("total_inactive_file")?)
        }
        Layout::V2 => (field("anon")? + field("file")?, field("inactive_file")?),
    };
    Ok(meminfo("MemTotal")?.saturating_sub(usage - inactive.min(usage)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vmstat_keys_are_whole_words() {
        assert_eq!(parse_vmstat("oom_kill_x 5\noom_kill 3\n", "oom_kill"), Some(3));
        assert_eq!(parse_vmstat("pgfault 5\n", "oom_kill"), None);
        assert_eq!(sum_vmstat("allocstall_dma 1\nallocstall_normal 2\npgfault 5\n", "allocstall_"), Some(3));
        assert_eq!(sum_vmstat("pgfault 5\n", "allocstall_"), None);
    }
}
