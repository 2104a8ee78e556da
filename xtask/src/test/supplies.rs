//! Installs in the background, while the suite compiles, the parts that the boots need and the machine lacks.
//!
//! One thread installs the parts one after the other, because apt and dpkg take locks. No other step may install anything
//! meanwhile.

use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow, bail};

use super::lanes;
use crate::console::Console;
use crate::paths::Workspace;
use crate::setup::{self, Part};

/// The installation that runs on a thread.
#[derive(Debug)]
pub struct Pending(JoinHandle<Supplies>);

#[derive(Debug)]
pub struct Supplies {
    /// The result for the parts that every boot needs.
    common: Result<(), String>,
    /// Parts of single boots that could not be installed, each with the error.
    missing: Vec<(Part, String)>,
}

impl Pending {
    pub fn begin(workspace: &Workspace, of_some_boots: Vec<Part>) -> Self {
        let workspace = workspace.clone();
        Self(thread::spawn(move || {
            let console = Console::beside_others("setup");
            let ensure = |parts: &[Part]| lanes::caught(|| setup::ensure_on(&console, &workspace, parts));
            Supplies::gather(&of_some_boots, ensure)
        }))
    }

    pub fn wait(self) -> Supplies {
        self.0.join().unwrap_or_else(|_| Supplies {
            common: Err("the thread that installs panicked".to_owned()),
            missing: Vec::new(),
        })
    }
}

impl Supplies {
    fn gather(of_some_boots: &[Part], ensure: impl Fn(&[Part]) -> Result<()>) -> Self {
        let attempt = |parts: &[Part]| ensure(parts).map_err(|error| format!("{error:#}"));
        // The common parts come first: mkfs makes the guest's root file system.
        let common = attempt(setup::VM);
        let missing = of_some_boots.iter().filter_map(|&part| Some((part, attempt(&[part]).err()?))).collect();
        Self { common, missing }
    }

    /// Fails if a part that every boot needs is missing.
    pub fn check_common(&self) -> Result<()> {
        self.common.clone().map_err(|story| anyhow!(story))
    }

    /// Fails if one of these parts is missing. A missing part fails only the boots that need it.
    pub fn check(&self, needed: &[Part]) -> Result<()> {
        match self.missing.iter().find(|(part, _)| needed.contains(part)) {
            Some((_, story)) => bail!("{story}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;
    use crate::setup::guest_root::Root;
    use crate::setup::kernel::Series;

    #[test]
    fn a_missing_part_fails_only_the_boots_that_need_it() {
        let kernel = Part::Kernel(Series::V6_12, Arch::host());
        let supplies = Supplies::gather(&[kernel, Part::GuestRoot(Root::Containers)], |parts| {
            if parts.contains(&Part::GuestRoot(Root::Containers)) { bail!("no mmdebstrap") } else { Ok(()) }
        });
        assert!(supplies.check_common().is_ok());
        assert!(supplies.check(&[kernel]).is_ok());
        assert_eq!(
            supplies.check(&[kernel, Part::GuestRoot(Root::Containers)]).unwrap_err().to_string(),
            "no mmdebstrap"
        );
    }

    #[test]
    fn without_the_emulator_every_boot_fails() {
        let supplies = Supplies::gather(&[Part::GuestRoot(Root::Containers)], |parts| {
            if parts.contains(&setup::QEMU) { bail!("no QEMU") } else { Ok(()) }
        });
        assert_eq!(supplies.check_common().unwrap_err().to_string(), "no QEMU");
    }
}
