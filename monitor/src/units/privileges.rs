//! What this process may do, and how it gets what it lacks.

/// Returns whether this process runs as root. Root may lack capabilities: a container or a unit takes them away.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Returns how a process gets these capabilities: `CAP_BPF and CAP_PERFMON`. Root is not told to become root.
pub fn grant(capabilities: &str, is_root: bool) -> String {
    match is_root {
        true => format!(
            "grant {capabilities}, which root lacks here (in a container: securityContext.capabilities, in a unit: CapabilityBoundingSet)"
        ),
        false => format!("run as root, or grant {capabilities}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_not_told_to_become_root() {
        assert_eq!(grant("CAP_KILL", false), "run as root, or grant CAP_KILL");
        let of_root = grant("CAP_KILL", true);
        assert!(
            of_root.starts_with("grant CAP_KILL, which root lacks here") && !of_root.contains("as root"),
            "{of_root}"
        );
    }
}
