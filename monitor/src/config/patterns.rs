//! Patterns over workload names, and the built-in list of protected workloads.

use std::fmt;

use super::document_walk::{Field, Shape, Walk};

/// Workloads without which the machine cannot be administered. They are protected whatever the configuration says.
///
/// All patterns are whole paths below `system.slice`, because users may give units of their own any name. The third pattern exists
/// because systemd may keep a service's processes in a cgroup below the service's own, as udev does since v254.
const BUILT_IN: [&str; 12] = [
    "init.scope",
    "system.slice/systemd-*.service",
    "system.slice/systemd-*.service/*",
    "system.slice/dbus.service",
    "system.slice/dbus-broker.service",
    "system.slice/ssh.service",
    "system.slice/sshd.service",
    "system.slice/kubelet.service",
    "system.slice/containerd.service",
    "system.slice/crio.service",
    "system.slice/docker.service",
    "system.slice/node-pressure-monitor.service",
];

pub fn built_in_patterns() -> Vec<NamePattern> {
    BUILT_IN.iter().map(|text| NamePattern((*text).to_owned())).collect()
}

/// Returns the patterns that the configuration adds to the built-in ones.
pub fn configured(patterns: &[NamePattern]) -> Vec<NamePattern> {
    patterns.iter().filter(|pattern| !BUILT_IN.contains(&pattern.as_str())).cloned().collect()
}

/// A pattern over workload names. `*` matches any text, `/` included; `?` matches one character.
///
/// The pattern is compared with the whole name (a cgroup path relative to the root of the hierarchy) and with its last component.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamePattern(String);

impl NamePattern {
    /// Fails when no workload name can match.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("an empty pattern matches no workload");
        }
        if text.starts_with('/') {
            return Err("workload names do not start with a slash: no workload could match");
        }
        Ok(Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether every name matches, or every one of at least a few characters.
    pub fn matches_everything(&self) -> bool {
        self.0.contains('*') && self.0.chars().all(|it| matches!(it, '*' | '?'))
    }

    /// Returns whether the whole name matches, for a cgroup that a user may have named. A pattern that begins with a wildcard never
    /// matches, because the user could complete it.
    pub fn matches_name_of_user(&self, workload: &str) -> bool {
        !self.0.starts_with(['*', '?']) && glob(self.0.as_bytes(), workload.as_bytes())
    }

    /// Returns whether the whole name or its last component matches.
    pub fn matches(&self, workload: &str) -> bool {
        glob(self.0.as_bytes(), workload.as_bytes())
            || workload.rsplit_once('/').is_some_and(|(_, last)| glob(self.0.as_bytes(), last.as_bytes()))
    }
}

impl fmt::Display for NamePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

pub(super) fn read_patterns(walk: &mut Walk<'_>, field: &Field<'_>) -> Vec<NamePattern> {
    const FIX: &str = "write e.g. \"postgresql@*.service\"";
    let mut patterns = Vec::new();
    for item in walk.list(field, "patterns", "write e.g. [\"postgresql@*.service\"]") {
        walk.describe(&item, || Shape::Pattern("^[^/]"));
        let Some(text) = walk.text(&item, FIX) else { continue };
        match NamePattern::new(text) {
            Ok(pattern) => patterns.push(pattern),
            Err(error) => walk.error(&item, error, FIX),
        }
    }
    patterns
}

/// Matches bytes without recursion: after a mismatch, the last `*` takes one more byte. `?` takes a whole UTF-8 character.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p + 1, t));
                p += 1;
                continue;
            }
            Some(b'?') => {
                p += 1;
                t += 1;
                while text.get(t).is_some_and(|byte| byte & 0xC0 == 0x80) {
                    t += 1;
                }
                continue;
            }
            Some(byte) if *byte == text[t] => {
                p += 1;
                t += 1;
                continue;
            }
            _ => {}
        }
        let Some((after_star, start)) = retry else {
            return false;
        };
        p = after_star;
        t = start + 1;
        retry = Some((after_star, t));
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_the_name_or_its_last_component() {
        for (pattern, name, expected) in [
            ("a", "a", true),
            ("a", "b", false),
            ("a", "x/a", true),
            ("a", "a/x", false),
            ("*", "anything/at.all", true),
            ("a*", "a", true),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbxc", false),
            ("?", "é", true),
            ("??", "é", false),
            ("db-?.service", "system.slice/db-1.service", true),
            ("db-?.service", "system.slice/db-12.service", false),
            ("system.slice/*", "system.slice/a.slice/b.service", true),
            ("system.slice/*", "system.slice", false),
        ] {
            let compiled = NamePattern::new(pattern).unwrap();
            assert_eq!(compiled.matches(name), expected, "{pattern} on {name}");
        }
        assert_eq!(NamePattern::new(""), Err("an empty pattern matches no workload"));
        assert_eq!(NamePattern::new("/a"), Err("workload names do not start with a slash: no workload could match"));
    }

    #[test]
    fn a_user_cannot_choose_a_name_that_a_pattern_protects() {
        let app = "user.slice/user-1000.slice/user@1000.service/app.slice";
        for (pattern, name, expected) in [
            ("postgresql@*.service", "postgresql@1.service", false),
            ("*redis*", "redis.service", false),
            ("init.scope", "a.service/init.scope", false),
            ("user.slice/user-1000.slice/*/gdm.service", "gdm.service", true),
        ] {
            let pattern = NamePattern::new(pattern).unwrap();
            let name = format!("{app}/{name}");
            assert!(pattern.matches(&name), "{pattern:?}");
            assert_eq!(pattern.matches_name_of_user(&name), expected, "{pattern:?}");
        }
    }

    #[test]
    fn a_hostile_pattern_takes_no_exponential_time() {
        let pattern = NamePattern::new(&"*a".repeat(60)).unwrap();
        assert!(!pattern.matches(&"a".repeat(59)));
        let pattern = NamePattern::new(&format!("{}b", "*a".repeat(60))).unwrap();
        assert!(!pattern.matches(&"a".repeat(4000)));
    }

    #[test]
    fn the_built_in_list_protects_system_services_only() {
        let protects = |name: &str| built_in_patterns().iter().any(|pattern| pattern.matches(name));
        for name in [
            "init.scope",
            "system.slice/systemd-journald.service",
            "system.slice/systemd-udevd.service/udev",
            "system.slice/dbus.service",
            "system.slice/dbus-broker.service",
            "system.slice/ssh.service",
            "system.slice/sshd.service",
            "system.slice/kubelet.service",
            "system.slice/containerd.service",
            "system.slice/crio.service",
            "system.slice/docker.service",
        ] {
            assert!(protects(name), "{name}");
        }
        for name in [
            "system.slice/nginx.service",
            // A user's unit with the name of a system service is no system service.
            "user.slice/user-1000.slice/user@1000.service/app.slice/systemd-toy.service",
            "kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1.slice",
            "system.slice/containerd.service/kubepods-pod1",
        ] {
            assert!(!protects(name), "{name}");
        }
    }
}
