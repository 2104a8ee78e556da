//! The cost of each program, as the kernel counts it in `/proc/self/fdinfo` of the program's descriptor.

use std::fs;
use std::os::fd::{AsRawFd as _, BorrowedFd, RawFd};

/// The figures of one program since it was loaded.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ProbeStatistics {
    /// `category:event`, as in `ProbeStatus`.
    pub name: String,
    /// Runs and their nanoseconds; counted only while `kernel.bpf_stats_enabled` is 1.
    pub hits: u64,
    pub nanos: u64,
    /// Runs that the kernel skipped because a program was already running on that CPU (5.12).
    pub missed: u64,
}

/// The programs with readable figures. `Ebpf` owns the descriptors and lives as long as this.
#[derive(Debug, Default)]
pub(super) struct Programs(Vec<(String, RawFd)>);

impl Programs {
    pub fn add(&mut self, name: String, program: BorrowedFd<'_>) {
        self.0.push((name, program.as_raw_fd()));
    }

    /// Appends to `out`. A program whose figures cannot be read is omitted.
    pub fn read(&self, out: &mut Vec<ProbeStatistics>) {
        let read = |(name, fd): &(String, RawFd)| {
            let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            Some(ProbeStatistics { name: name.clone(), ..parse(&text)? })
        };
        out.extend(self.0.iter().filter_map(read));
    }
}

/// Parses lines like `run_time_ns:\t123`. Kernels before 5.1 have none.
fn parse(text: &str) -> Option<ProbeStatistics> {
    let figure = |key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        value.trim().parse::<u64>().ok()
    };
    Some(ProbeStatistics {
        name: String::new(),
        hits: figure("run_cnt")?,
        nanos: figure("run_time_ns")?,
        missed: figure("recursion_misses").unwrap_or(0),
    })
}

#[cfg(test)]
mod tests {
    use super::{ProbeStatistics, parse};

    #[test]
    fn figures_are_read_by_name_and_misses_may_be_absent() {
        let full = "pos:\t0\nprog_type:\t5\nrun_time_ns:\t1200\nrun_cnt:\t10\nrecursion_misses:\t3\n";
        let figures = ProbeStatistics { name: String::new(), hits: 10, nanos: 1200, missed: 3 };
        assert_eq!(parse(full), Some(figures.clone()));
        assert_eq!(parse("run_time_ns:\t1200\nrun_cnt:\t10\n"), Some(ProbeStatistics { missed: 0, ..figures }));
        assert_eq!(parse("pos:\t0\nprog_type:\t5\n"), None);
    }
}
