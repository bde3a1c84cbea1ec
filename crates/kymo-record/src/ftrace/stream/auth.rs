//! Authentication of sender and listener: both sides prove that they know the same secret
//! without sending it (HMAC-SHA256 over both sides' random numbers). What is sent
//! afterwards is neither hidden nor protected; there are tunnels for that.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use hmac::{Hmac, KeyInit as _, Mac as _};

use super::frame::{MAGIC, ProtocolError};

/// The shortest secret that is taken.
const SHORTEST: usize = 16;
/// The longest.
const LONGEST: u64 = 4096;

/// A secret that both sides know.
#[derive(Clone)]
pub struct Secret(Hmac<sha2::Sha256>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// A secret cannot be used, or the other side does not know it.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SecretError {
    #[error("cannot read the secret in {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} can be read by others; as its owner: chmod 600 {}", .0.display(), .0.display())]
    Readable(PathBuf),
    #[error("the secret in {} has {len} bytes; it takes {SHORTEST} to {LONGEST}", path.display())]
    Length { path: PathBuf, len: usize },
    #[error("the listener asks for a secret; give --secret-file")]
    Wanted,
    #[error("the listener asks for no secret although one was given: is it the right one?")]
    NotWanted,
    #[error("the sender does not know the secret")]
    Sender,
    #[error("the listener does not know the secret")]
    Listener,
}

impl Secret {
    /// The content of a file without the line's end. Only its owner may have access to it.
    pub fn read(path: &Path) -> Result<Secret, SecretError> {
        let error = |source| SecretError::Read { path: path.to_owned(), source };
        let mut file = File::open(path).map_err(error)?;
        let meta = file.metadata().map_err(error)?;
        if meta.is_file() && meta.permissions().mode() & 0o077 != 0 {
            return Err(SecretError::Readable(path.to_owned()));
        }
        let mut bytes = Vec::new();
        (&mut file).take(LONGEST + 1).read_to_end(&mut bytes).map_err(error)?;
        bytes.truncate(bytes.trim_ascii_end().len());
        let good = bytes.len() >= SHORTEST && bytes.len() as u64 <= LONGEST;
        let secret = good.then(|| Secret::new(&bytes)).flatten();
        secret.ok_or_else(|| SecretError::Length { path: path.to_owned(), len: bytes.len() })
    }

    fn new(bytes: &[u8]) -> Option<Secret> {
        Hmac::new_from_slice(bytes).ok().map(Secret)
    }

    fn mac(&self, role: &[u8], nonces: &Nonces) -> Hmac<sha2::Sha256> {
        let mut mac = self.0.clone();
        mac.update(&MAGIC);
        mac.update(role);
        mac.update(&nonces.sender);
        mac.update(&nonces.listener);
        mac
    }

    fn prove(&self, role: &[u8], nonces: &Nonces) -> [u8; 32] {
        self.mac(role, nonces).finalize().into_bytes().into()
    }

    /// In a time that does not depend on the bytes.
    fn verify(&self, role: &[u8], nonces: &Nonces, proof: &[u8; 32]) -> bool {
        self.mac(role, nonces).verify_slice(proof).is_ok()
    }
}

struct Nonces {
    sender: [u8; 32],
    listener: [u8; 32],
}

const SENDER: &[u8] = b"sender";
const LISTENER: &[u8] = b"listener";

/// Error of a connection setup.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum HandshakeError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Protocol(#[from] ProtocolError),
    #[error(transparent)]
    Secret(#[from] SecretError),
}

fn nonce() -> io::Result<[u8; 32]> {
    let mut nonce = [0; 32];
    kymo_kernel::system::random(&mut nonce)?;
    Ok(nonce)
}

fn read<const N: usize>(from: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The sender's side of the greeting.
pub(super) fn greet(
    link: &mut (impl Read + Write),
    secret: Option<&Secret>,
) -> Result<(), HandshakeError> {
    let sender = nonce()?;
    link.write_all(&[MAGIC.as_slice(), &sender].concat())?;
    let magic = read(link)?;
    if magic != MAGIC {
        return Err(ProtocolError::Magic(magic).into());
    }
    let [asks] = read(link)?;
    let nonces = Nonces { sender, listener: read(link)? };
    match (secret, asks != 0) {
        (None, true) => return Err(SecretError::Wanted.into()),
        // Otherwise anyone who answers in its place would get the trace.
        (Some(_), false) => return Err(SecretError::NotWanted.into()),
        (None, false) => return Ok(()),
        (Some(_), true) => {}
    }
    let Some(secret) = secret else { return Ok(()) };
    link.write_all(&secret.prove(SENDER, &nonces))?;
    let [accepted] = read(link)?;
    if accepted == 0 {
        return Err(SecretError::Sender.into());
    }
    if !secret.verify(LISTENER, &nonces, &read(link)?) {
        return Err(SecretError::Listener.into());
    }
    Ok(())
}

/// The listener's side of the greeting.
pub(super) fn receive(
    link: &mut (impl Read + Write),
    secret: Option<&Secret>,
) -> Result<(), HandshakeError> {
    let magic = read(link)?;
    if magic != MAGIC {
        return Err(ProtocolError::Magic(magic).into());
    }
    let nonces = Nonces { sender: read(link)?, listener: nonce()? };
    let asks = [u8::from(secret.is_some())];
    link.write_all(&[MAGIC.as_slice(), &asks, &nonces.listener].concat())?;
    let Some(secret) = secret else { return Ok(()) };
    if !secret.verify(SENDER, &nonces, &read(link)?) {
        link.write_all(&[0])?;
        return Err(SecretError::Sender.into());
    }
    link.write_all(&[&[1], secret.prove(LISTENER, &nonces).as_slice()].concat())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn both(
        sender: Option<&[u8]>,
        listener: Option<&[u8]>,
    ) -> (Result<(), HandshakeError>, Result<(), HandshakeError>) {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let listener = listener.map(|s| Secret::new(s).unwrap());
        let thread = std::thread::spawn(move || receive(&mut b, listener.as_ref()));
        let sender = greet(&mut a, sender.map(|s| Secret::new(s).unwrap()).as_ref());
        drop(a);
        (sender, thread.join().unwrap())
    }

    #[test]
    fn only_the_same_secret_opens() {
        let (s, l) = (b"0123456789abcdef".as_slice(), b"0123456789abcdeF".as_slice());
        assert!(matches!(both(None, None), (Ok(()), Ok(()))));
        assert!(matches!(both(Some(s), Some(s)), (Ok(()), Ok(()))));
        let (ours, theirs) = both(Some(s), Some(l));
        assert!(matches!(ours, Err(HandshakeError::Secret(SecretError::Sender))));
        assert!(matches!(theirs, Err(HandshakeError::Secret(SecretError::Sender))));
        let (ours, theirs) = both(None, Some(s));
        assert!(matches!(ours, Err(HandshakeError::Secret(SecretError::Wanted))));
        assert!(matches!(theirs, Err(HandshakeError::Io(_))));
        let (ours, _) = both(Some(s), None);
        assert!(matches!(ours, Err(HandshakeError::Secret(SecretError::NotWanted))));
    }

    #[test]
    fn a_listener_that_pretends_is_found_out() {
        let (mut a, mut b) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let _: [u8; 40] = read(&mut b).unwrap();
            b.write_all(&[MAGIC.as_slice(), &[1], &[0; 32]].concat()).unwrap();
            let proof: [u8; 32] = read(&mut b).unwrap();
            // The sender's own proof sent back is none.
            b.write_all(&[[1].as_slice(), &proof].concat()).unwrap();
        });
        let got = greet(&mut a, Secret::new(&[1; 16]).as_ref());
        assert!(matches!(got, Err(HandshakeError::Secret(SecretError::Listener))));
        thread.join().unwrap();
    }

    #[test]
    fn the_proof_is_the_standards() {
        // RFC 4231, test case 2, checks that the crate is used as it is meant.
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"Jefe").unwrap();
        mac.update(b"what do ya want for nothing?");
        let expected = [0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e];
        assert_eq!(mac.finalize().into_bytes()[..8], expected);
    }

    #[test]
    fn secrets_in_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let write = |text: &str, mode: u32| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            Secret::read(&path)
        };
        let nonces = Nonces { sender: [1; 32], listener: [2; 32] };
        let proof = write("sixteen bytes ok\n", 0o600).unwrap().prove(SENDER, &nonces);
        assert!(Secret::new(b"sixteen bytes ok").unwrap().verify(SENDER, &nonces, &proof));
        assert!(matches!(write("sixteen bytes ok", 0o640), Err(SecretError::Readable(_))));
        assert!(matches!(write("short\n", 0o600), Err(SecretError::Length { len: 5, .. })));
        assert!(matches!(write(&"x".repeat(5000), 0o600), Err(SecretError::Length { .. })));
    }
}
