//! Metrics of the agent's own process, under the names that Prometheus' clients give them.

use std::fs;

use prometheus::{Counter, Gauge, GaugeVec};
use rustix::process::Resource;
use rustix::time::ClockId;

use super::register::{Registry, follow, metrics, set_known};
use crate::units::{float, kernel_text, page_size};

metrics! {
    struct Exported {
        /// CPU time of the agent, user and system, in seconds.
        cpu: Counter = "process_cpu_seconds_total",
        /// Memory of the agent that is resident, in bytes.
        resident: GaugeVec = "process_resident_memory_bytes"{},
        /// Address space of the agent, in bytes.
        virtual_memory: GaugeVec = "process_virtual_memory_bytes"{},
        /// Files that the agent has open.
        open_fds: GaugeVec = "process_open_fds"{},
        /// Files that the agent may have open.
        max_fds: GaugeVec = "process_max_fds"{},
        /// When the agent started, in seconds since 1970.
        start: Gauge = "process_start_time_seconds",
    }
}

#[derive(Debug)]
pub(super) struct ProcessMetrics(Exported);

impl ProcessMetrics {
    pub(super) fn new(registry: &Registry) -> prometheus::Result<Self> {
        let exported = Exported::new(registry)?;
        exported.start.set(started().unwrap_or_default());
        Ok(Self(exported))
    }

    /// Reads the figures. A figure that cannot be read is absent.
    pub(super) fn refresh(&self) {
        let Exported { cpu, resident, virtual_memory, open_fds, max_fds, start: _ } = &self.0;
        let used = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
        follow(cpu, seconds(used));
        let pages = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let mut pages = pages.split_whitespace().map_while(|field| field.parse::<u64>().ok());
        let mut next = || pages.next().map(|pages| float(pages.saturating_mul(page_size())));
        set_known(virtual_memory, next());
        set_known(resident, next());
        // The directory itself is open while it is read.
        let count = fs::read_dir("/proc/self/fd").ok().map(|entries| entries.count().saturating_sub(1));
        set_known(open_fds, count.map(|count| float(count as u64)));
        set_known(max_fds, rustix::process::getrlimit(Resource::Nofile).current.map(float));
    }
}

/// Returns when this process started, in seconds since 1970.
fn started() -> Option<f64> {
    let stat = kernel_text::read("/proc/self/stat").ok()?;
    // The program's name is in parentheses, and may contain anything.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let after_boot = float(ticks) / float(rustix::param::clock_ticks_per_second());
    let [now, since_boot] =
        [ClockId::Realtime, ClockId::Boottime].map(|clock| seconds(rustix::time::clock_gettime(clock)));
    Some(now - since_boot + after_boot)
}

#[expect(clippy::cast_precision_loss, reason = "a microsecond of decades is held exactly")]
fn seconds(time: rustix::time::Timespec) -> f64 {
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn the_figures_are_of_this_process() {
        let registry = Registry::new();
        let metrics = ProcessMetrics::new(&registry).unwrap();
        let file = fs::File::open("/proc/self/stat").unwrap();
        metrics.refresh();
        drop(file);
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        let value = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("process_{name} ")));
            line.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
        };
        assert!(value("cpu_seconds_total") > 0.0);
        assert!(value("resident_memory_bytes") > 1e6 && value("virtual_memory_bytes") > value("resident_memory_bytes"));
        assert!(value("open_fds") >= 4.0 && value("max_fds") >= value("open_fds"));
        let age = seconds(rustix::time::clock_gettime(ClockId::Realtime)) - value("start_time_seconds");
        assert!((-0.1..3600.0).contains(&age), "{age}");
    }
}
