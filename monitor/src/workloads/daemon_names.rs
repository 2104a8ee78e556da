//! The names of daemons on which the node depends. A name counts only for a process of root outside containers, and only in addition to what
//! a process holds: a daemon that starts does not listen yet, and some listen nowhere. `comm` has at most 15 characters.

use crate::node::other_killers::KUBELET_NAMES;

use super::protection::Protection;

const RUNTIMES: [&str; 4] = ["containerd", "crio", "dockerd", "cri-dockerd"];
/// The monitors of containers: Podman's and CRI-O's, also the one in Rust that serves a whole pod, and containerd's.
const MONITORS: [&str; 2] = ["conmon", "conmonrs"];
const SHIM: &str = "containerd-shim";
/// The system bus, and the device manager (udev, eudev, mdevd).
const SYSTEM: [&str; 6] = ["dbus-daemon", "dbus-broker", "dbus-broker-lau", "systemd-udevd", "udevd", "mdevd"];
/// Login managers, display managers, and the SSH daemons with their sessions.
const LOGINS: [&str; 18] = [
    "systemd-logind",
    "elogind",
    "elogind-daemon",
    "seatd",
    "greetd",
    "gdm",
    "gdm3",
    "gdm-session-wor",
    "sddm",
    "sddm-helper",
    "lightdm",
    "lxdm",
    "xdm",
    "sshd",
    "sshd-session",
    "sshd-auth",
    "dropbear",
    "tinysshd",
];
const NETWORK: [&str; 8] =
    ["NetworkManager", "systemd-network", "connmand", "dhcpcd", "dhclient", "udhcpc", "wpa_supplicant", "iwd"];
/// Init systems and the process that supervises all services. A supervisor of one service (runsv, s6-supervise, supervise-daemon) may be in the
/// cgroup of that service, which it does not protect.
const INITS: [&str; 7] = ["init", "systemd", "runit", "runsvdir", "s6-svscan", "dinit", "openrc-init"];

/// Returns what a process with this name is needed for.
pub(super) fn protection(name: &str) -> Option<Protection> {
    if RUNTIMES.contains(&name) || is_monitor(name) {
        Some(Protection::Runtime)
    } else if KUBELET_NAMES.contains(&name) {
        Some(Protection::Kubelet)
    } else {
        let is_of_system = [&SYSTEM[..], &LOGINS, &NETWORK, &INITS].iter().any(|names| names.contains(&name));
        is_of_system.then_some(Protection::System)
    }
}

/// Returns whether the process monitors one container.
pub(super) fn is_monitor(name: &str) -> bool {
    MONITORS.contains(&name) || name.starts_with(SHIM)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_longer_than_the_kernel_shows() {
        for name in [&RUNTIMES[..], &SYSTEM, &LOGINS, &NETWORK, &INITS].concat() {
            assert!(name.len() <= 15 && protection(name).is_some(), "{name}");
        }
        assert!(is_monitor("containerd-shim-runc-v2") && is_monitor("conmon") && is_monitor("conmonrs"));
        assert!(!is_monitor("containerd") && !is_monitor("conmon-x"));
    }
}
