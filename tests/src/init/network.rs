//! The guest's network: its loopback interface, and the interface that leads to viewers on the host.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::Path;

use anyhow::{Context, Result};

use crate::catalogue::GUEST;

/// Brings `lo` up, because the agent's HTTP server listens there, and the interface to the host if there is one.
pub fn up() -> Result<()> {
    // Binding to the wildcard address needs no interface to be up.
    let socket = UdpSocket::bind("0.0.0.0:0").context("socket")?;
    flag_up(&socket, "lo")?;
    if Path::new("/sys/class/net/eth0").exists() {
        set_address(&socket, libc::SIOCSIFADDR, Ipv4Addr::from(GUEST)).context("set the address of eth0")?;
        set_address(&socket, libc::SIOCSIFNETMASK, Ipv4Addr::new(255, 255, 255, 0)).context("set the mask of eth0")?;
        flag_up(&socket, "eth0")?;
    }
    Ok(())
}

/// Sets IFF_UP on an interface.
fn flag_up(socket: &UdpSocket, name: &str) -> Result<()> {
    let mut request = of_interface(name);
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    request.ifr_ifru.ifru_flags = i16::try_from(up).context("interface flags")?;
    ask(socket, libc::SIOCSIFFLAGS, &request).with_context(|| format!("bring {name} up"))
}

fn set_address(socket: &UdpSocket, what: libc::Ioctl, address: Ipv4Addr) -> Result<()> {
    let mut request = of_interface("eth0");
    let mut bytes = [0; 14];
    // The port comes before the address.
    for (slot, byte) in bytes.iter_mut().skip(2).zip(address.octets()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    let family = libc::sa_family_t::try_from(libc::AF_INET).context("the address family")?;
    request.ifr_ifru.ifru_addr = libc::sockaddr { sa_family: family, sa_data: bytes };
    ask(socket, what, &request)
}

fn of_interface(name: &str) -> libc::ifreq {
    // SAFETY: all zeroes is a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (slot, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *slot = libc::c_char::from_ne_bytes([byte]);
    }
    request
}

fn ask(socket: &UdpSocket, what: libc::Ioctl, request: &libc::ifreq) -> Result<()> {
    // SAFETY: the socket is open, and these requests read one ifreq, which lives across the call.
    let outcome = unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw const *request) };
    if outcome == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).context("ioctl") }
}
