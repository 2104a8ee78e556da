//! The OOM controller of Talos Linux, which is no program of its own: it runs in process 1, and is on by default since 1.12.

use std::path::Path;

use crate::units::kernel_text;

/// The first version with the controller.
const SINCE: (u32, u32) = (1, 12);

/// Returns whether process 1 of this machine is a Talos with the controller, by `/etc/os-release` of its root directory.
pub(super) fn is_here(proc_root: &Path) -> bool {
    kernel_text::read(proc_root.join("1/root/etc/os-release")).is_ok_and(|text| has_controller(&text))
}

fn has_controller(os_release: &str) -> bool {
    let field = |name: &str| {
        let value = os_release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        Some(value.trim().trim_matches(['"', '\'']))
    };
    field("ID") == Some("talos") && field("VERSION_ID").and_then(version).is_none_or(|version| version >= SINCE)
}

/// Parses the beginning of `v1.12.0-alpha.2`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim_start_matches('v').split(['.', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// siderolabs/talos#12526 and #13329: pods go by the pressure of the node.
    #[test]
    fn the_controller_is_there_since_1_12() {
        for (os_release, expected) in [
            ("NAME=\"Talos\"\nID=talos\nVERSION_ID=v1.12.0\n", true),
            ("ID=\"talos\"\nVERSION_ID=\"v1.13.0-beta.1\"\n", true),
            ("ID=talos\nVERSION_ID=v2.0.1\n", true),
            ("ID=talos\nVERSION_ID=v1.11.6\n", false),
            // A build of its own may have any version.
            ("ID=talos\nVERSION_ID=main\n", true),
            ("ID=debian\nVERSION_ID=\"12\"\n", false),
            ("ID_LIKE=talos\nVERSION_ID=v1.12.0\n", false),
            ("", false),
        ] {
            assert_eq!(has_controller(os_release), expected, "{os_release}");
        }
    }
}
