//! The marks of the processes on which the node depends: the sockets on which they listen, and the locks that they hold.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use crate::node::file_locks;
use crate::units::{Pid, kernel_text};

use super::protection::Protection;

/// File names of the sockets of container runtimes. Distributions put them into various directories.
const RUNTIME_SOCKETS: [&str; 5] =
    ["containerd.sock", "crio.sock", "docker.sock", "cri-dockerd.sock", "dockershim.sock"];
/// The directory in which containerd's shims listen.
const SHIM_SOCKETS: &str = "/run/containerd/s/";
/// The kubelet's sockets below its directory, which may be any.
const KUBELET_SOCKETS: [&str; 2] = ["/pod-resources/kubelet.sock", "/device-plugins/kubelet.sock"];
/// The kubelet's ports: its API and its health.
const KUBELET_PORTS: [u16; 2] = [10250, 10248];
/// The kubelet's lock file, where `--lock-file` is given.
const KUBELET_LOCKS: [&str; 2] = ["run/lock/kubelet.lock", "var/lock/kubelet.lock"];
/// The system bus drops its rights: the process that listens is its own user's.
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
/// The sockets of root's daemons: systemd's manager, udev and eudev, seatd, dinit (the latter's path is chosen when it is built).
const SYSTEM_SOCKETS: [&str; 5] =
    ["/run/systemd/private", "/run/udev/control", "/run/seatd.sock", "/run/dinitctl", "/dev/dinitctl"];
/// Root's X server listens here, and on the abstract socket of the same name. One that a user runs holds the seat.
const X_SOCKETS: &str = "/tmp/.X11-unix/X";
const SSH_PORT: u16 = 22;
const SSH_CONFIGURATION: &str = "etc/ssh/sshd_config";

/// The user of a process, as far as it can be trusted to be what it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trust {
    User,
    /// A user of the system, to which nobody logs in (`SYS_UID_MAX` of `man 5 login.defs`).
    System,
    Root,
}

impl Trust {
    pub(super) const fn of(uid: u32) -> Self {
        match uid {
            0 => Self::Root,
            1..1000 => Self::System,
            _ => Self::User,
        }
    }
}

/// The marks of a process: the sockets by inode, and the holders of locks.
#[derive(Debug, Default)]
pub struct Signs {
    pub(super) sockets: HashMap<u64, Sign>,
    pub(super) holders: Vec<Pid>,
    /// Whether the list of sockets could be read.
    pub(super) is_known: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sign {
    pub(super) protection: Protection,
    /// The path of a socket in the filesystem. It must be the same file for the process and for the machine's init.
    pub(super) path: Option<PathBuf>,
    pub(super) by: String,
    /// A process of a lesser user has the socket by another way.
    pub(super) least: Trust,
    /// It monitors one container.
    pub(super) is_monitor: bool,
}

/// What the configuration of this machine says about sockets, read once: later the disk may be slow.
#[derive(Debug, Clone)]
pub(super) struct Configured {
    /// The socket of the runtime.
    pub(super) runtime: Option<PathBuf>,
    pub(super) ssh_ports: Vec<u16>,
}

impl Configured {
    pub(super) fn read(root: &Path, runtime: Option<PathBuf>) -> Self {
        let drop_ins = std::fs::read_dir(root.join(format!("{SSH_CONFIGURATION}.d")));
        let drop_ins = drop_ins.into_iter().flatten().flatten().map(|entry| entry.path());
        let texts =
            drop_ins.chain([root.join(SSH_CONFIGURATION)]).filter_map(|file| std::fs::read_to_string(file).ok());
        Self { runtime, ssh_ports: ports(&texts.collect::<Vec<_>>().join("\n")) }
    }
}

/// Returns the ports in sshd's configuration: those of `Port`, and those that an address of `ListenAddress` has. The default counts unless one
/// of the former is given, or all addresses have ports. A keyword is in any case, and an equals sign may follow it (`man 5 sshd_config`).
fn ports(text: &str) -> Vec<u16> {
    let values = |wanted: &'static str| {
        text.lines().filter_map(move |line| {
            let mut words = line.split([' ', '\t', '=']).filter(|word| !word.is_empty());
            words.next().filter(|keyword| keyword.eq_ignore_ascii_case(wanted))?;
            words.next()
        })
    };
    let mut ports: Vec<u16> = values("port").filter_map(|value| value.parse().ok()).collect();
    let addresses: Vec<Option<u16>> = values("listenaddress").map(port_of_address).collect();
    if ports.is_empty() && (addresses.is_empty() || addresses.contains(&None)) {
        ports.push(SSH_PORT);
    }
    ports.extend(addresses.into_iter().flatten());
    ports
}

/// Returns the port of `host:port` or `[address]:port`. More than one colon without brackets is an address of IPv6 alone.
fn port_of_address(value: &str) -> Option<u16> {
    let (host, port) = value.rsplit_once(':')?;
    let is_port = host.ends_with(']') || !host.contains(':');
    port.parse().ok().filter(|_| is_port)
}

impl Signs {
    /// Reads which sockets and locks mark a process now. Listening sockets stand first in the kernel's list of TCP sockets, so the list of
    /// connections is not read.
    pub(super) fn read(proc_root: &Path, root: &Path, configured: &Configured) -> Self {
        let mut signs = Self::default();
        // The namespace of the machine's init; the agent's own may be another.
        let net = ["1/net", "net"].map(|net| proc_root.join(net)).into_iter().find(|net| net.is_dir());
        let open = |name: &str| net.as_ref().and_then(|net| std::fs::File::open(net.join(name)).ok());
        let lines = |file: Option<std::fs::File>| {
            // A user may bind a socket whose name is not UTF-8; the lines after it count all the same.
            let lines =
                file.into_iter().flat_map(|file| BufReader::new(file).split(b'\n').map_while(Result::ok).skip(1));
            lines.map(kernel_text::text)
        };
        let unix = open("unix");
        signs.is_known = unix.is_some();
        signs.sockets.extend(lines(unix).filter_map(|line| unix_sign(&line, configured.runtime.as_deref())));
        for name in ["tcp", "tcp6"] {
            let listeners = lines(open(name)).map_while(|line| tcp_listener(&line));
            signs.sockets.extend(listeners.filter_map(|listener| tcp_sign(listener, &configured.ssh_ports)));
        }
        let holder = |path: &str| file_locks::holder(proc_root, &root.join(path));
        signs.holders = KUBELET_LOCKS.iter().filter_map(|path| holder(path)).map(Pid).collect();
        signs
    }

    /// Returns whether these have a socket or a holder that `before` lacks.
    pub(super) fn has_other_than(&self, before: &Self) -> bool {
        self.sockets.keys().any(|inode| !before.sockets.contains_key(inode))
            || self.holders.iter().any(|holder| !before.holders.contains(holder))
    }
}

/// Interprets a line of `/proc/net/unix`: address, references, protocol, flags, type, state, inode, path.
fn unix_sign(line: &str, configured: Option<&Path>) -> Option<(u64, Sign)> {
    const ACCEPTS_CONNECTIONS: &str = "00010000";
    let mut fields = line.split_ascii_whitespace();
    let (flags, inode, path) = (fields.nth(3)?, fields.nth(2)?, fields.next()?);
    if flags != ACCEPTS_CONNECTIONS {
        return None;
    }
    let known = path.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")).unwrap_or(path);
    let name = known.rsplit('/').next()?;
    let is_runtime = RUNTIME_SOCKETS.contains(&name) || configured == Some(Path::new(path));
    let is_monitor = known.starts_with(SHIM_SOCKETS);
    let (protection, least) = match known {
        _ if KUBELET_SOCKETS.iter().any(|end| known.ends_with(end)) => (Protection::Kubelet, Trust::Root),
        _ if is_runtime || is_monitor => (Protection::Runtime, Trust::Root),
        SYSTEM_BUS => (Protection::System, Trust::System),
        _ if SYSTEM_SOCKETS.contains(&known) => (Protection::System, Trust::Root),
        _ if known.strip_prefix('@').unwrap_or(known).starts_with(X_SOCKETS) => (Protection::System, Trust::Root),
        _ if is_session_bus(known) => (Protection::ServesUser, Trust::User),
        _ => return None,
    };
    // An abstract socket has no file. A link such as /var/run would lead out of the root directory of the machine's init.
    let file = known.starts_with('/').then(|| PathBuf::from(known));
    let by = format!("listens on {path}");
    Some((inode.parse().ok()?, Sign { protection, path: file, by, least, is_monitor }))
}

/// Returns whether this is `/run/user/UID/bus` (`man 8 pam_systemd`).
fn is_session_bus(path: &str) -> bool {
    let uid = path.strip_prefix("/run/user/").and_then(|rest| rest.strip_suffix("/bus"));
    uid.is_some_and(|uid| uid.parse::<u32>().is_ok())
}

/// Returns the port of a listening socket, whether it is root's, and its inode, in a line of `/proc/net/tcp`; `None` at the first other socket.
fn tcp_listener(line: &str) -> Option<(u16, bool, u64)> {
    const LISTENS: &str = "0A";
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let (local, state, owner, inode) = (fields.get(1)?, fields.get(3)?, fields.get(7)?, fields.get(9)?);
    let port = u16::from_str_radix(local.rsplit_once(':')?.1, 16).ok()?;
    (*state == LISTENS).then_some((port, *owner == "0", inode.parse().ok()?))
}

fn tcp_sign((port, is_of_root, inode): (u16, bool, u64), ssh_ports: &[u16]) -> Option<(u64, Sign)> {
    // Any user may listen on the ports from 1024 on.
    let protection = match port {
        _ if !is_of_root => return None,
        _ if KUBELET_PORTS.contains(&port) => Protection::Kubelet,
        _ if ssh_ports.contains(&port) => Protection::System,
        _ => return None,
    };
    let by = format!("listens on port {port}");
    Some((inode, Sign { protection, path: None, by, least: Trust::Root, is_monitor: false }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_connections_is_not_read() {
        let listens = "0: 00000000:280A 00000000:0000 0A 0:0 00:0 0 0 0 5 1 0 100";
        let connected = "1: 0100007F:280A 0100007F:9999 01 0:0 00:0 0 0 0 6 1 0 100";
        assert_eq!(tcp_listener(listens), Some((10250, true, 5)));
        assert_eq!(tcp_listener(connected), None);
    }

    #[test]
    fn the_ports_of_ssh_are_those_of_its_configuration() {
        let root = tempfile::tempdir().unwrap();
        let ports = || Configured::read(root.path(), None).ssh_ports;
        assert_eq!(ports(), [22]);
        std::fs::create_dir_all(root.path().join("etc/ssh/sshd_config.d")).unwrap();
        std::fs::write(root.path().join("etc/ssh/sshd_config"), "#Port 22\nport=2222\nPortable 7\n").unwrap();
        std::fs::write(root.path().join("etc/ssh/sshd_config.d/10-site.conf"), "  Port\t8022\n").unwrap();
        let mut found = ports();
        found.sort_unstable();
        assert_eq!(found, [2222, 8022]);
    }

    #[test]
    fn an_address_on_which_sshd_listens_may_have_a_port() {
        for (text, expected) in [
            ("ListenAddress 0.0.0.0:2222\nListenAddress [::]:2022\n", &[2222, 2022][..]),
            ("ListenAddress 10.0.0.1\nlistenaddress host.example:2222\n", &[22, 2222]),
            ("ListenAddress fe80::1\nListenAddress ::\n", &[22]),
            ("Port 8022\nListenAddress 10.0.0.1\nListenAddress=10.0.0.2:443 rdomain a\n", &[8022, 443]),
            ("#ListenAddress 0.0.0.0:2222\n", &[22]),
        ] {
            assert_eq!(ports(text), expected, "{text}");
        }
    }

    #[test]
    fn a_socket_counts_by_its_path() {
        let found = |path: &str| {
            let line = format!("0000000000000000: 00000002 00000000 00010000 0005 01 7 {path}");
            unix_sign(&line, None).map(|(_, sign)| (sign.protection, sign.least))
        };
        use Protection::{ServesUser, System};
        for (path, expected) in [
            ("/run/dbus/system_bus_socket", Some((System, Trust::System))),
            ("/var/run/dbus/system_bus_socket", Some((System, Trust::System))),
            ("/run/udev/control", Some((System, Trust::Root))),
            ("/run/systemd/private", Some((System, Trust::Root))),
            ("/run/seatd.sock", Some((System, Trust::Root))),
            ("/run/dinitctl", Some((System, Trust::Root))),
            ("@/tmp/.X11-unix/X0", Some((System, Trust::Root))),
            ("/run/user/1000/bus", Some((ServesUser, Trust::User))),
            ("/run/user/1000/app/bus", None),
            ("/home/u/run/dbus/system_bus_socket", None),
            ("/run/user/1000/systemd/private", None),
        ] {
            assert_eq!(found(path), expected, "{path}");
        }
    }
}
