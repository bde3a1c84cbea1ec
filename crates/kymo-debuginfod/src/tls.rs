//! Which certificates are trusted: those that the system trusts, or the file
//! that `SSL_CERT_FILE` names, as other programs have it.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::error::FetchError;

/// Where distributions keep them.
const USUAL: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// What every secure connection is made with; read once.
pub(crate) fn config() -> Result<Arc<ClientConfig>, FetchError> {
    static CONFIG: OnceLock<Result<Arc<ClientConfig>, String>> = OnceLock::new();
    CONFIG.get_or_init(make).clone().map_err(FetchError::Tls)
}

fn make() -> Result<Arc<ClientConfig>, String> {
    let named = std::env::var_os("SSL_CERT_FILE").filter(|v| !v.is_empty()).map(PathBuf::from);
    let usual = || USUAL.iter().map(PathBuf::from).find(|p| p.exists());
    let Some(file) = named.or_else(usual) else {
        return Err("no trusted certificates: install ca-certificates, or name a file with \
                    SSL_CERT_FILE"
            .into());
    };
    let show = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let certificates = CertificateDer::pem_file_iter(&file).map_err(|e| show(&e))?;
    let mut roots = RootCertStore::empty();
    let (taken, _) = roots.add_parsable_certificates(certificates.flatten());
    if taken == 0 {
        return Err(show(&"it holds no certificates"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| e.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}
