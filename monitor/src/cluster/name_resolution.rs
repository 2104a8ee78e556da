//! Names of hosts are looked up in `/etc/hosts` and by DNS only.
//!
//! The released agent is linked statically. For any other service of `/etc/nsswitch.conf` the agent would load modules and the C library of
//! the node. A node with an older glibc than the agent's then ends the process (`dl-call-libc-early-init.c`, glibc 2.32).

use std::ffi::{CStr, c_char, c_int};

unsafe extern "C" {
    /// Selects the services of one database of `nsswitch.conf` for this process. Copies both texts. (glibc, `nss/nss_database.c`)
    fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
}

const DATABASE: &CStr = c"hosts";
const SERVICES: &CStr = c"files dns";

/// Selects the services. May be called again.
pub fn use_builtin_services() -> std::io::Result<()> {
    // SAFETY: both texts end with a zero byte, and glibc only reads them. It takes its own lock.
    match unsafe { __nss_configure_lookup(DATABASE.as_ptr(), SERVICES.as_ptr()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::ToSocketAddrs as _;

    #[test]
    fn a_name_of_etc_hosts_is_found() {
        super::use_builtin_services().unwrap();
        super::use_builtin_services().unwrap();
        assert!(("localhost", 80).to_socket_addrs().unwrap().next().is_some());
    }
}
