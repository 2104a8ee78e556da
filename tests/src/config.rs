//! The agent's configuration for a scenario.

use std::fmt::Write;
use std::net::SocketAddr;

use crate::catalogue::VIEWED_PORT;

/// The settings that a scenario varies. The agent's defaults apply to all others.
#[derive(Debug, Clone)]
pub struct AgentConfig {
    pub enforce: bool,
    pub semantics: &'static str,
    pub hard: Option<String>,
    /// More hard thresholds: signal and value.
    pub thresholds: Vec<(&'static str, String)>,
    /// A soft threshold, and its grace period.
    pub soft: Option<(&'static str, &'static str)>,
    pub max_pod_grace_seconds: u32,
    /// The time for which a condition stays after its cause has ended.
    pub transition: &'static str,
    pub ring_buffer: Option<&'static str>,
    pub stall_threshold: Option<&'static str>,
    /// Whether a threshold that is met when it arrives evicts. Many scenarios begin with such a threshold.
    pub act_on_present_pressure: bool,
    /// The address that the agent listens on, with the port.
    pub host: [u8; 4],
    pub port: u16,
    /// Whether the metrics have the memory of each workload.
    pub workload_memory: bool,
    /// More lines of the file, each with its line end.
    pub extra: String,
    /// The capabilities that the agent is started without.
    pub without_capabilities: Vec<i32>,
}

impl Default for AgentConfig {
    fn default() -> Self {
        Self {
            enforce: true,
            semantics: "corrected",
            hard: Some("100Mi".to_owned()),
            thresholds: Vec::new(),
            soft: None,
            max_pod_grace_seconds: 0,
            transition: "0s",
            ring_buffer: None,
            stall_threshold: None,
            act_on_present_pressure: true,
            host: [127, 0, 0, 1],
            port: VIEWED_PORT,
            workload_memory: false,
            extra: String::new(),
            without_capabilities: Vec::new(),
        }
    }
}

impl AgentConfig {
    /// Returns a configuration in observe mode.
    pub fn observe() -> Self {
        Self { enforce: false, ..Self::default() }
    }

    pub fn mode(&self) -> &'static str {
        if self.enforce { "enforce" } else { "observe" }
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((self.host, self.port))
    }

    /// Returns the text of the configuration file.
    pub fn yaml(&self) -> String {
        let mut text = String::from("apiVersion: node-pressure-monitor/v1alpha1\nkind: MonitorConfiguration\n");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "mode: {}\nsemantics: {}", self.mode(), self.semantics);
        let memory = self.hard.iter().map(|value| ("memory.available", value));
        let hard: Vec<_> = memory.chain(self.thresholds.iter().map(|(signal, value)| (*signal, value))).collect();
        text.push_str(if hard.is_empty() { "evictionHard: {}\n" } else { "evictionHard:\n" });
        for (signal, value) in hard {
            let _ = writeln!(text, "  {signal}: {value}");
        }
        if let Some((value, grace)) = self.soft {
            let _ = writeln!(
                text,
                "evictionSoft:\n  memory.available: {value}\nevictionSoftGracePeriod:\n  memory.available: {grace}\nevictionMaxPodGracePeriod: {}",
                self.max_pod_grace_seconds
            );
        }
        let _ = writeln!(text, "evictionPressureTransitionPeriod: {}", self.transition);
        if self.ring_buffer.is_some() || self.stall_threshold.is_some() {
            text.push_str("kernel:\n");
        }
        if let Some(size) = self.ring_buffer {
            let _ = writeln!(text, "  ringBuffer: {size}");
        }
        if let Some(threshold) = self.stall_threshold {
            let _ = writeln!(text, "  stallThreshold: {threshold}");
        }
        if self.act_on_present_pressure && !self.extra.lines().any(|line| line.starts_with("evictions:")) {
            text.push_str("evictions:\n  actOnPresentPressure: true\n");
        }
        text.push_str(&self.extra);
        let _ =
            writeln!(text, "metrics:\n  listen: \"{}\"\n  workloadMemory: {}", self.address(), self.workload_memory);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_that_is_set_is_written() {
        let config = AgentConfig {
            soft: Some(("150Mi", "2s")),
            max_pod_grace_seconds: 3,
            ring_buffer: Some("4Ki"),
            stall_threshold: Some("0s"),
            ..AgentConfig::default()
        };
        let text = config.yaml();
        for part in
            ["mode: enforce", "  memory.available: 100Mi", "evictionMaxPodGracePeriod: 3", "  stallThreshold: 0s"]
        {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        let disk = AgentConfig { thresholds: vec![("nodefs.available", "5%".to_owned())], ..AgentConfig::default() };
        assert!(disk.yaml().contains("evictionHard:\n  memory.available: 100Mi\n  nodefs.available: 5%\n"));
        let none = AgentConfig { hard: None, ..AgentConfig::observe() }.yaml();
        assert!(none.contains("evictionHard: {}") && !none.contains("kernel:"), "{none}");
    }
}
