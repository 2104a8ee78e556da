//! The certificates and keys of the cluster, and the kubeconfig of each of its clients.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};

use super::network::{API_SERVER, NODE_ADDRESS};
use crate::control_plane::NODE;

/// The directory of all files.
pub const DIRECTORY: &str = "/etc/kubernetes";

/// A client of the API server: the name of its file, its user and its group.
const CLIENTS: [(&str, &str, &str); 4] = [
    ("admin", "kubernetes-admin", "system:masters"),
    ("kubelet", "system:node:guest", "system:nodes"),
    ("controller-manager", "system:kube-controller-manager", ""),
    ("scheduler", "system:kube-scheduler", ""),
];

pub fn file(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

/// Writes all files.
pub fn make() -> Result<()> {
    fs::create_dir_all(DIRECTORY).with_context(|| format!("create {DIRECTORY}"))?;
    let authority = authority()?;
    write("ca.crt", &authority.pem())?;
    for (name, user, group) in CLIENTS {
        let (certificate, key) = signed(&authority, &client(user, group))?;
        write(&format!("{name}.crt"), &certificate)?;
        write(&format!("{name}.key"), &key)?;
        write(&format!("{name}.conf"), &kubeconfig(name))?;
    }
    let (certificate, key) = signed(&authority, &server()?)?;
    write("apiserver.crt", &certificate)?;
    write("apiserver.key", &key)?;
    let accounts = KeyPair::generate().context("make the key of service accounts")?;
    write("service-accounts.key", &accounts.serialize_pem())?;
    write("service-accounts.pub", &accounts.public_key_pem())
}

fn write(name: &str, text: &str) -> Result<()> {
    let path = file(name);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "kubernetes");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate().context("make the key of the certificate authority")?;
    CertifiedIssuer::self_signed(params, key).context("make the certificate authority")
}

fn client(user: &str, group: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, user);
    if !group.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

fn server() -> Result<CertificateParams> {
    let names = [NODE, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let mut params =
        CertificateParams::new(names.map(str::to_owned)).context("the names of the API server's certificate")?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    for address in ["127.0.0.1", API_SERVER, NODE_ADDRESS] {
        params.subject_alt_names.push(SanType::IpAddress(address.parse().context("an address of the API server")?));
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn signed(authority: &CertifiedIssuer<'static, KeyPair>, params: &CertificateParams) -> Result<(String, String)> {
    let key = KeyPair::generate().context("make a key")?;
    let certificate = params.clone().signed_by(&key, authority).context("sign a certificate")?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn kubeconfig(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: guest\n\
         clusters: [{{name: guest, cluster: {{server: \"https://127.0.0.1\", certificate-authority: {DIRECTORY}/ca.crt}}}}]\n\
         users: [{{name: {name}, user: {{client-certificate: {DIRECTORY}/{name}.crt, client-key: {DIRECTORY}/{name}.key}}}}]\n\
         contexts: [{{name: guest, context: {{cluster: guest, user: {name}}}}}]\n"
    )
}
