//! A sleeping process with the name of another program.

use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command};

/// Ends the process when the test ends.
pub struct NamedProcess(Child);

impl NamedProcess {
    /// Starts `sleep` through a link in `directory`. A copy of the program would do as well, but a test that forks while the copy is written
    /// keeps it open for writing, and then it cannot be executed (ETXTBSY).
    pub fn start(name: &str, directory: &Path) -> Self {
        let link = directory.join(name);
        symlink("/bin/sleep", &link).unwrap();
        Self(Command::new(&link).arg0("sleep").arg("600").spawn().unwrap())
    }
}

impl Drop for NamedProcess {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _already_gone = self.0.wait();
    }
}
