//! The program as `cargo xtask dist` calls it.

use std::process::Command;

const PROGRAM: &str = env!("CARGO_BIN_EXE_packaging");

#[test]
fn pages_are_written_to_the_directory() {
    let directory = std::env::temp_dir().join(format!("packaging-program-{}", std::process::id()));
    let status = Command::new(PROGRAM).arg("pages").arg(&directory).status().unwrap();
    assert!(status.success(), "{status}");
    for file in ["man/node-pressure-monitor.1", "completions/node-pressure-monitor.bash"] {
        assert!(directory.join(file).is_file(), "{file}");
    }
    std::fs::remove_dir_all(directory).unwrap();
}

#[test]
fn a_missing_directory_is_named() {
    let arguments = ["rpm", "--version", "1", "--arch", "x86_64", "--epoch", "0", "--root", "/no-such-root"];
    let further = ["--scripts", "/no-such-scripts", "--output", "/no-such-output"];
    let output = Command::new(PROGRAM).args(arguments).args(further).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("/no-such-scripts/post"), "{text}");
}
