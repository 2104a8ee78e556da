//! What the configuration may make the agent run and send. Often more people may write the configuration than may be root on every node, so
//! a program lies where only root writes, and a token file beside the configuration.

use std::fs::canonicalize;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Where Kubernetes projects tokens.
const PROJECTED: &str = "/var/run/secrets";
/// The agent's own token, which is never sent.
const OWN: &str = "/var/run/secrets/kubernetes.io";
const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Returns the real path of a program, if it lies in this directory and only root and the agent's user can replace it.
pub(super) fn program(program: &Path, directory: &Path) -> Result<PathBuf, String> {
    let real = real(program)?;
    let inside = canonicalize(directory).is_ok_and(|directory| real.starts_with(directory));
    if !inside {
        let directory = directory.display();
        return Err(format!(
            "not in {directory}; only programs of this directory are run; install it there, or start the agent with --notification-commands"
        ));
    }
    match real.ancestors().find(|path| !is_only_of_root(path)) {
        None => Ok(real),
        Some(path) => Err(format!("{} can be changed by others than root; correct its owner and mode", path.display())),
    }
}

/// Returns the real path of a token file, if it lies in the directory of the configuration, or is a projected token that is not the agent's.
pub(super) fn token_file(file: &Path, directory: &Path) -> Result<PathBuf, String> {
    let real = real(file)?;
    let is_in = |directory: &Path| canonicalize(directory).is_ok_and(|directory| real.starts_with(directory));
    if is_in(directory) || is_in(Path::new(PROJECTED)) && !is_in(Path::new(OWN)) {
        return Ok(real);
    }
    Err(format!(
        "{}: not in {}, the directory of the configuration; move it there",
        file.display(),
        directory.display()
    ))
}

fn real(path: &Path) -> Result<PathBuf, String> {
    canonicalize(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Whether only root and the agent's user can write the file, or replace what is in the directory.
fn is_only_of_root(path: &Path) -> bool {
    let Ok(metadata) = path.metadata() else { return false };
    let is_own = metadata.uid() == 0 || metadata.uid() == rustix::process::geteuid().as_raw();
    // In a sticky directory such as /tmp, others cannot replace a file that is not theirs.
    let is_sticky = metadata.is_dir() && metadata.mode() & STICKY != 0;
    is_own && (is_sticky || metadata.mode() & WRITABLE_BY_OTHERS == 0)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_program_lies_in_the_directory_and_others_cannot_write_it() {
        let root = tempfile::tempdir().unwrap();
        let (commands, tell, other) =
            (root.path().join("commands.d"), root.path().join("commands.d/tell"), root.path().join("other"));
        fs::create_dir(&commands).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for path in [&tell, &other] {
            fs::write(path, "").unwrap();
            mode(path, 0o755);
        }
        mode(&commands, 0o755);
        assert_eq!(program(&tell, &commands), canonicalize(&tell).map_err(|error| error.to_string()));
        for outside in [other.clone(), commands.join("../other")] {
            assert!(program(&outside, &commands).unwrap_err().contains("--notification-commands"));
        }
        symlink(&other, commands.join("link")).unwrap();
        assert!(program(&commands.join("link"), &commands).is_err(), "a link that leads out");
        for (path, others) in [(&tell, 0o777), (&commands, 0o775)] {
            mode(path, others);
            assert!(program(&tell, &commands).unwrap_err().contains("can be changed by others"), "{path:?}");
            mode(path, 0o755);
        }
        assert!(program(&tell, &commands).is_ok());
        assert!(program(&commands.join("none"), &commands).is_err() && program(&tell, Path::new("/none")).is_err());
    }

    #[test]
    fn a_token_file_lies_beside_the_configuration() {
        let root = tempfile::tempdir().unwrap();
        let (directory, secret) = (root.path().join("etc"), root.path().join("secret"));
        fs::create_dir_all(directory.join("below")).unwrap();
        for file in [directory.join("token"), directory.join("below/token"), secret.clone()] {
            fs::write(file, "t").unwrap();
        }
        symlink(&secret, directory.join("link")).unwrap();
        for (file, expected) in [
            (directory.join("token"), true),
            (directory.join("below/token"), true),
            (secret, false),
            (directory.join("../secret"), false),
            (directory.join("link"), false),
            ("/etc/passwd".into(), false),
        ] {
            assert_eq!(token_file(&file, &directory).is_ok(), expected, "{file:?}");
        }
    }
}
