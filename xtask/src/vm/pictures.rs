//! Keeps the pictures that a scenario takes of the status page and of `top`. The guest sends each file over a connection of its own: a line with its
//! name, then its content. The end of the connection tells the guest that the file is written.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::{Context as _, Result, bail};

/// The variable with the directory for the pictures. Without it no picture is taken.
const DIRECTORY: &str = "SCREENS";

/// Starts to listen, and returns the port; `None` if no pictures are asked for.
pub fn listen() -> Result<Option<u16>> {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else { return Ok(None) };
    fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("listening for pictures")?;
    let port = listener.local_addr().context("the port for pictures")?.port();
    let serve = move || {
        for connection in listener.incoming().flatten() {
            if let Err(error) = keep(&directory, connection) {
                eprintln!("warning: {error:#}; the scenario that took a picture fails");
            }
        }
    };
    thread::Builder::new().name("pictures".to_owned()).spawn(serve).context("starting the thread for pictures")?;
    Ok(Some(port))
}

fn keep(directory: &Path, connection: TcpStream) -> Result<()> {
    let mut sent = BufReader::new(connection);
    let mut name = String::new();
    sent.read_line(&mut name).context("the name of a picture")?;
    let name = name.trim_end();
    if !is_file_name(name) {
        bail!("a picture has the name {name:?}");
    }
    let mut content = Vec::new();
    sent.read_to_end(&mut content).with_context(|| format!("receiving {name}"))?;
    let file = directory.join(name);
    fs::write(&file, content).with_context(|| format!("writing {}", file.display()))
}

fn is_file_name(name: &str) -> bool {
    let (stem, kind) = name.split_once('.').unwrap_or_default();
    !stem.is_empty() && stem.bytes().all(|letter| letter.is_ascii_lowercase()) && ["json", "png", "txt"].contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_stays_in_its_directory() {
        assert!(is_file_name("near.png") && is_file_name("near.json"));
        for name in ["", "near", ".png", "../near.png", "near.png/x", "a.b.png", "near.sh"] {
            assert!(!is_file_name(name), "{name:?}");
        }
    }
}
