//! The busybox of the guest, of its containers and of the trial of KVM. Debian's static one is unpacked to the cache for every architecture. An
//! installed one is not used: usually it is dynamic, and no container has its libraries.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::apt::Apt;
use super::need::Lack;
use crate::arch::Arch;

/// Returns the path of the program, which may not exist.
pub fn path(cache: &Path, arch: Arch) -> PathBuf {
    tree(cache, arch).join("bin/busybox")
}

/// Returns the directory into which the package is unpacked.
pub fn tree(cache: &Path, arch: Arch) -> PathBuf {
    cache.join(format!("busybox-{arch}"))
}

pub fn find(cache: &Path, arch: Arch) -> Result<String, Lack> {
    let path = path(cache, arch);
    let Ok(content) = fs::read(&path) else { return Err(Lack::Absent) };
    match linked_statically(&content, arch) {
        Some(true) => Ok(path.display().to_string()),
        Some(false) => Err(Lack::Refused(format!("{} is not used: it is dynamically linked", path.display()))),
        None => Err(Lack::Refused(format!("{} is not used: it is no program for {arch}", path.display()))),
    }
}

pub fn install(apt: &mut Apt, cache: &Path, arch: Arch) -> Result<String> {
    let mut other = (!arch.is_host()).then(|| apt.elsewhere(cache, arch, None)).transpose()?;
    other.as_mut().unwrap_or(apt).unpack(&["busybox-static"], &tree(cache, arch))?;
    Ok("downloaded".to_owned())
}

/// Returns whether an ELF program of this architecture names no interpreter; `None` for anything else.
fn linked_statically(content: &[u8], arch: Arch) -> Option<bool> {
    /// Class of 64 bits, little-endian.
    const IDENTITY: &[u8] = b"\x7fELF\x02\x01";
    const INTERPRETER: u32 = 3;
    const HEADER: usize = 56;
    let short = |at: usize| Some(u16::from_le_bytes(content.get(at..at + 2)?.try_into().ok()?));
    let machine = match arch {
        Arch::Amd64 => 62,
        Arch::Arm64 => 183,
    };
    if !content.starts_with(IDENTITY) || short(18)? != machine {
        return None;
    }
    let headers = usize::try_from(u64::from_le_bytes(content.get(32..40)?.try_into().ok()?)).ok()?;
    let table = content.get(headers..)?.get(..usize::from(short(56)?) * HEADER)?;
    Some(table.chunks(HEADER).all(|header| header[..4] != INTERPRETER.to_le_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an ELF file with program headers of these types.
    fn elf(machine: u16, headers: &[u32]) -> Vec<u8> {
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(64, 0);
        elf[18..20].copy_from_slice(&machine.to_le_bytes());
        elf[32] = 64;
        elf[56] = u8::try_from(headers.len()).unwrap();
        for header in headers {
            elf.extend(header.to_le_bytes());
            elf.resize(elf.len() + 52, 0);
        }
        elf
    }

    #[test]
    fn only_a_static_program_of_the_architecture_is_used() {
        let load = 1;
        for (content, arch, expected) in [
            (elf(62, &[load, load]), Arch::Amd64, Some(true)),
            (elf(183, &[load]), Arch::Arm64, Some(true)),
            (elf(62, &[load, 3]), Arch::Amd64, Some(false)),
            (elf(183, &[load]), Arch::Amd64, None),
            (elf(62, &[load, load])[..150].to_vec(), Arch::Amd64, None),
            (b"#!/bin/sh\n".to_vec(), Arch::Amd64, None),
            (Vec::new(), Arch::Amd64, None),
        ] {
            assert_eq!(linked_statically(&content, arch), expected, "{content:?} {arch}");
        }
    }

    #[test]
    fn a_dynamic_busybox_in_the_cache_is_refused_by_name() {
        let cache = std::env::temp_dir().join(format!("busybox-{}", std::process::id()));
        let path = path(&cache, Arch::Amd64);
        assert_eq!(find(&cache, Arch::Amd64), Err(Lack::Absent));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, elf(62, &[3])).unwrap();
        let story = find(&cache, Arch::Amd64).unwrap_err().to_string();
        assert!(story.ends_with("busybox is not used: it is dynamically linked"), "{story}");
        fs::remove_dir_all(cache).unwrap();
    }
}
