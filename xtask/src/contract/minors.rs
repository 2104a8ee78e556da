//! The minor versions of Kubernetes that the project supports.

use std::ops::RangeInclusive;

/// The minors of Kubernetes 1: from the oldest that every variant of the deployment supports, by config/README.md, to that of the API's types
/// in Cargo.toml.
const SUPPORTED: RangeInclusive<u32> = 30..=36;

/// Returns the supported minors that none of these texts has as `Kubernetes 1.36.2`, `Kubernetes v1.36.2`.
pub fn missing<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<u32> {
    let there: Vec<u32> = texts.filter_map(minor).collect();
    SUPPORTED.filter(|minor| !there.contains(minor)).collect()
}

fn minor(text: &str) -> Option<u32> {
    let version = text.strip_prefix("Kubernetes ")?;
    version.strip_prefix('v').unwrap_or(version).strip_prefix("1.")?.split('.').next()?.parse().ok()
}

/// Returns `Kubernetes 1.30, 1.31`.
pub fn listed(minors: &[u32]) -> String {
    let minors: Vec<String> = minors.iter().map(|minor| format!("1.{minor}")).collect();
    format!("Kubernetes {}", minors.join(", "))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[test]
    fn minors_without_a_version_are_missing() {
        let there = ["Kubernetes 1.36.2, etcd 3.4.23", "Kubernetes v1.30.14", "etcd 1.31.0"];
        let missing = missing(there.into_iter());
        assert_eq!(missing, [31, 32, 33, 34, 35]);
        assert_eq!(listed(&missing[..2]), "Kubernetes 1.31, 1.32");
    }

    #[test]
    fn the_ends_are_those_of_the_documents_and_of_the_types() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
        let (oldest, newest) = (SUPPORTED.start(), SUPPORTED.end());
        assert!(read("config/README.md").contains(&format!("for Kubernetes 1.{oldest} or later")));
        assert!(read("Cargo.toml").contains(&format!("\"v1_{newest}\"")));
    }
}
