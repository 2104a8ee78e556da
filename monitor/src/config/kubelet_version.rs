//! The version of Kubernetes whose kubelet `semantics: kubelet` follow: later versions have lost some of the quirks.

use serde::{Deserialize, Serialize};

use super::policy::Policy;
use super::quirks::{Quirk, Quirks, Semantics};

/// The minor release of Kubernetes 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct KubeletVersion {
    minor: u16,
}

impl KubeletVersion {
    /// The version that is followed where none is known. The kubelet's answers in the tests are those of 1.36.2.
    pub const REFERENCE: Self = Self { minor: 36 };

    /// Reads `1.37`, `v1.37.2`, or a distribution's `v1.36.1+k3s1` or `v1.35.4-eks-113cf36`.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, rest) = text.strip_prefix('v').unwrap_or(text).split_once('.')?;
        let digits = rest.find(|other: char| !other.is_ascii_digit()).unwrap_or(rest.len());
        let (minor, rest) = rest.split_at_checked(digits)?;
        let is_end = rest.is_empty() || rest.starts_with(['.', '+', '-']);
        let minor = minor.parse().ok().filter(|_| major == "1" && is_end)?;
        Some(Self { minor })
    }

    fn has(self, quirk: Quirk) -> bool {
        lost_in(quirk).is_none_or(|lost| self < lost)
    }
}

impl std::fmt::Display for KubeletVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "1.{}", self.minor)
    }
}

/// Returns the first version of the kubelet without the quirk.
const fn lost_in(quirk: Quirk) -> Option<KubeletVersion> {
    match quirk {
        // kubernetes/kubernetes#138462 and #138127 (feature gate HugepageAwareEviction, on by default).
        Quirk::SidecarStorageLimitIgnored | Quirk::HugePagesAvailable => Some(KubeletVersion { minor: 37 }),
        _ => None,
    }
}

/// What a file says about the kubelet to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FollowedKubelet {
    /// `kubeletVersion`.
    pub version: Option<KubeletVersion>,
    /// The quirks that `quirks:` names, on or off.
    pub switched: Quirks,
}

impl Policy {
    /// Follows the version in the file, or else that of the kubelet beside the agent, if any. What `quirks:` names stays.
    pub fn follow_kubelet(&mut self, beside: Option<KubeletVersion>) {
        if self.semantics != Semantics::Kubelet {
            return;
        }
        let version = self.kubelet.version.or(beside).unwrap_or(KubeletVersion::REFERENCE);
        for quirk in Quirk::ALL {
            if lost_in(quirk).is_some() && !self.kubelet.switched.has(quirk) {
                self.quirks.set(quirk, version.has(quirk));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_with_and_without_a_distributions_suffix() {
        for (text, expected) in [
            ("1.36", Some("1.36")),
            ("v1.37.0", Some("1.37")),
            ("v1.36.1+k3s1", Some("1.36")),
            ("v1.35.4-eks-113cf36", Some("1.35")),
            ("v1.38.0-alpha.1", Some("1.38")),
            ("1.", None),
            ("1", None),
            ("2.1", None),
            ("1.36x", None),
            ("1.99999999", None),
            ("", None),
        ] {
            let read = KubeletVersion::parse(text).map(|version| version.to_string());
            assert_eq!(read.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn a_later_kubelet_has_fewer_quirks() {
        let version = |text| KubeletVersion::parse(text);
        let quirks = |semantics, kubelet, beside| {
            let mut policy = Policy { semantics, quirks: Quirks::of(semantics), kubelet, ..Policy::default() };
            policy.follow_kubelet(beside);
            [Quirk::SidecarStorageLimitIgnored, Quirk::HugePagesAvailable, Quirk::ContainerLimitWithoutWritableLayer]
                .map(|quirk| policy.quirks.has(quirk))
        };
        let unknown = FollowedKubelet::default();
        let written = |text| FollowedKubelet { version: version(text), ..unknown };
        for (kubelet, beside, expected) in [
            (unknown, None, [true, true, true]),
            (unknown, version("1.36.2"), [true, true, true]),
            (unknown, version("1.37.0"), [false, false, true]),
            (written("1.37"), None, [false, false, true]),
            (written("1.36"), version("1.37.0"), [true, true, true]),
            (written("1.40"), version("1.30"), [false, false, true]),
        ] {
            assert_eq!(quirks(Semantics::Kubelet, kubelet, beside), expected, "{kubelet:?} {beside:?}");
        }
        let mut switched = Quirks::NONE;
        switched.set(Quirk::SidecarStorageLimitIgnored, true);
        let kubelet = FollowedKubelet { version: version("1.37"), switched };
        assert_eq!(quirks(Semantics::Kubelet, kubelet, None), [true, false, true], "a switched quirk stays");
        assert_eq!(quirks(Semantics::Corrected, written("1.36"), version("1.36")), [false; 3]);
    }
}
