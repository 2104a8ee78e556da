use std::time::Instant;

use super::*;

/// Returns a self-signed certificate and its key.
fn pair() -> (String, String) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn options(directory: &Path) -> ServingOptions {
    let tls = TlsFiles { certificate: directory.join("tls.crt"), key: directory.join("tls.key") };
    ServingOptions { tls: Some(tls), token_file: Some(directory.join("tokens")), ..ServingOptions::default() }
}

fn write(directory: &Path, (certificate, key): &(String, String), tokens: &str) {
    std::fs::write(directory.join("tls.crt"), certificate).unwrap();
    std::fs::write(directory.join("tls.key"), key).unwrap();
    std::fs::write(directory.join("tokens"), tokens).unwrap();
}

#[test]
fn invalid_material_is_refused_with_the_file_and_the_fix() {
    let directory = tempfile::tempdir().unwrap();
    let (good, other) = (pair(), pair());
    let token = "0123456789abcdef\n\nanother-long-token\n";
    write(directory.path(), &good, token);
    let material = Material::read(&options(directory.path())).unwrap();
    assert!(material.tls.is_some());
    assert_eq!(material.tokens, ["0123456789abcdef", "another-long-token"]);
    let empty = String::new();
    for (name, pair, tokens, expected) in [
        (
            "no certificate",
            (&empty, &good.1),
            token,
            "tls.crt: no certificate in it; it should hold a certificate in PEM",
        ),
        ("no key", (&good.0, &empty), token, "tls.key: "),
        ("the key of another", (&good.0, &other.1), token, "tls.key: keys may not be consistent"),
        ("no token", (&good.0, &good.1), "\n", "tokens: no token in it; write one token on each line"),
        ("a token to be guessed", (&good.0, &good.1), "secret\n", "tokens: a token has fewer than 16 characters"),
    ] {
        write(directory.path(), &(pair.0.clone(), pair.1.clone()), tokens);
        let error = Material::read(&options(directory.path())).unwrap_err().to_string();
        let start = format!("{}/{expected}", directory.path().display());
        assert!(error.to_lowercase().starts_with(&start.to_lowercase()), "{name}: {error}");
    }
    std::fs::remove_file(directory.path().join("tls.crt")).unwrap();
    let error = Material::read(&options(directory.path())).unwrap_err().to_string();
    assert!(error.contains("tls.crt: cannot be read: "), "{error}");
    assert!(Material::read(&ServingOptions::default()).unwrap().tls.is_none());
}

#[test]
fn changed_files_are_reloaded_once_all_are_stable() {
    let directory = tempfile::tempdir().unwrap();
    let token = "0123456789abcdef\n";
    write(directory.path(), &pair(), token);
    let mut watched = Watched::new(options(directory.path()));
    assert!((0..3).all(|_| watched.look().is_none()));
    let next = pair();
    std::fs::write(directory.path().join("tls.crt"), &next.0).unwrap();
    assert!(watched.look().is_none(), "the key is still to come");
    std::fs::write(directory.path().join("tls.key"), &next.1).unwrap();
    assert!(watched.look().is_none());
    assert!(watched.look().unwrap().is_ok());
    assert!(watched.look().is_none());
    // An invalid key is reported, and the previous material stays in use.
    let health = Health::new(Duration::from_secs(30), Instant::now());
    let current = Current::new(Material::read(&options(directory.path())).unwrap());
    let before = current.get();
    std::fs::write(directory.path().join("tls.key"), "").unwrap();
    let mut reported = None;
    let reads: Vec<_> = (0..4).filter_map(|_| watched.look()).collect();
    assert_eq!(reads.len(), 3, "what failed is tried again at every look");
    reads.into_iter().for_each(|read| renew(read, &mut reported, &current, &health));
    assert!(Arc::ptr_eq(&before, &current.get()));
    assert!(health.readyz().1.contains("degraded: serving: "), "{}", health.readyz().1);
    assert!(reported.as_ref().is_some_and(|reason| reason.contains("tls.key: ")), "{reported:?}");
    std::fs::write(directory.path().join("tls.key"), &next.1).unwrap();
    (0..4).filter_map(|_| watched.look()).for_each(|read| renew(read, &mut reported, &current, &health));
    assert!(!Arc::ptr_eq(&before, &current.get()) && !health.readyz().1.contains("degraded") && reported.is_none());
}
