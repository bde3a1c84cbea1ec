//! Requests over HTTP and TLS with `ureq`. What that lacks is added here: one deadline for all
//! that a reading needs, and the step in which a request failed.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector,
    TcpConnector, Transport, time,
};
use ureq::{Agent, BodyReader, Error};

use crate::error::FetchError;

/// Redirections that are followed.
const MAX_REDIRECTIONS: u32 = 5;
/// Bytes of status and headers.
const LONGEST_HEAD: usize = 64 << 10;

/// Files with the certificates that distributions trust.
const USUAL: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Step of a request, which gives an error of the system its name.
#[derive(Clone, Copy, Debug)]
enum Step {
    Resolve,
    Connect,
    Secure,
    Answer,
}

#[derive(Debug)]
struct Progress {
    deadline: Instant,
    step: Step,
    /// The connection ended otherwise than by its regular end.
    broken: bool,
}

/// Progress of a request, shared with the parts of `ureq` that wait.
#[derive(Clone, Debug)]
struct Pace(Arc<Mutex<Progress>>);

impl Pace {
    fn with<T>(&self, with: impl FnOnce(&mut Progress) -> T) -> T {
        with(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn enter(&self, step: Step) {
        self.with(|p| p.step = step);
    }

    /// The time-out, cut to the deadline.
    fn cut(&self, mut timeout: NextTimeout) -> NextTimeout {
        let left = self.with(|p| p.deadline.saturating_duration_since(Instant::now()));
        timeout.after = time::Duration::Exact(left.min(*timeout.after));
        timeout
    }
}

impl Resolver for Pace {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        self.enter(Step::Resolve);
        DefaultResolver::default().resolve(uri, config, self.cut(timeout))
    }
}

impl Connector for Pace {
    type Out = Paced;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<Paced>, Error> {
        self.enter(Step::Connect);
        let proxied = ConnectProxyConnector::default().connect(details, None::<()>)?;
        let socket = TcpConnector::default().connect(details, proxied)?;
        self.enter(Step::Secure);
        let secured = RustlsConnector::default().connect(details, socket)?;
        self.enter(Step::Answer);
        Ok(secured.map(|transport| Paced { inner: Box::new(transport), pace: self.clone() }))
    }
}

/// A connection that never waits beyond the deadline.
#[derive(Debug)]
struct Paced {
    inner: Box<dyn Transport>,
    pace: Pace,
}

impl Transport for Paced {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.inner.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.inner.transmit_output(amount, self.pace.cut(timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let got = self.inner.await_input(self.pace.cut(timeout));
        // `ureq` takes a reset for the end of a body without a length.
        if matches!(got, Err(Error::Io(_))) {
            self.pace.with(|p| p.broken = true);
        }
        got
    }

    fn is_open(&mut self) -> bool {
        self.inner.is_open()
    }

    fn is_tls(&self) -> bool {
        self.inner.is_tls()
    }
}

/// The answer to a request; its body is read from it.
pub(crate) struct Response {
    /// Bytes of the body, where announced.
    pub(crate) length: Option<u64>,
    /// Bytes of the body so far.
    pub(crate) got: u64,
    body: BodyReader<'static>,
    pace: Pace,
}

/// Requests a file and reads the head of the answer, both within `wait`; redirections are followed.
pub(crate) fn get(url: &str, most_bytes: u64, wait: Duration) -> Result<Response, FetchError> {
    let uri: Uri =
        url.parse().map_err(|e| FetchError::Url { url: url.to_owned(), why: format!("{e}") })?;
    let secure = uri.scheme_str() == Some("https");
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(MAX_REDIRECTIONS)
        .https_only(secure)
        .user_agent(concat!("kymo/", env!("CARGO_PKG_VERSION")))
        .accept_encoding("identity")
        .max_response_header_size(LONGEST_HEAD)
        .timeout_connect(Some(wait));
    if secure {
        config = config.tls_config(tls_config()?);
    }
    let deadline = Instant::now() + wait;
    let progress = Progress { deadline, step: Step::Resolve, broken: false };
    let pace = Pace(Arc::new(Mutex::new(progress)));
    let agent = Agent::with_parts(config.build(), pace.clone(), pace.clone());
    let request = agent.get(uri.clone()).header("X-DEBUGINFOD-MAXSIZE", most_bytes.to_string());
    let answer = request.header("Connection", "close").call().map_err(|error| {
        let host = uri.host().unwrap_or_default();
        failure(error, pace.with(|p| p.step), url, host, wait)
    })?;
    match answer.status().as_u16() {
        200 => {}
        404 => return Err(FetchError::NotFound),
        status => return Err(FetchError::Status { status }),
    }
    let encoding = answer.headers().get("content-encoding");
    if encoding.is_some_and(|e| !e.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(FetchError::Malformed("the file is encoded without request".into()));
    }
    let body = answer.into_body();
    Ok(Response { length: body.content_length(), got: 0, body: body.into_reader(), pace })
}

fn failure(error: Error, step: Step, url: &str, host: &str, wait: Duration) -> FetchError {
    let unresolved = |error| FetchError::Resolve { host: host.to_owned(), error };
    match error {
        Error::Timeout(_) => FetchError::Silent { after: wait },
        Error::TooManyRedirects => FetchError::Redirected,
        Error::RequireHttpsOnly(_) => FetchError::Malformed("it leads from https to http".into()),
        Error::BadUri(why) => FetchError::Url { url: url.to_owned(), why },
        Error::HostNotFound => unresolved(io::Error::other("it has no address")),
        Error::Rustls(error) => FetchError::Tls(error.to_string()),
        Error::Tls(error) => FetchError::Tls(error.to_owned()),
        Error::ConnectProxyFailed(error) => FetchError::Connect(io::Error::other(error)),
        Error::LargeResponseHeader(..) => {
            FetchError::Malformed(format!("its headers exceed {LONGEST_HEAD} bytes"))
        }
        Error::Protocol(error) => FetchError::Malformed(error.to_string()),
        Error::Http(error) => FetchError::Malformed(error.to_string()),
        Error::Io(error) if is_late(&error) => FetchError::Silent { after: wait },
        error => match (step, error.into_io()) {
            (Step::Resolve, error) => unresolved(error),
            (Step::Connect, error) => FetchError::Connect(error),
            (Step::Secure, error) => FetchError::Tls(error.to_string()),
            (Step::Answer, error) => FetchError::Broken { got: 0, error },
        },
    }
}

fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

impl Response {
    /// Sets the deadline of the following readings.
    pub(crate) fn set_deadline(&mut self, deadline: Instant) {
        self.pace.with(|p| p.deadline = deadline);
    }

    /// The next bytes of the body: 0 at its end, `None` where the deadline came first.
    pub(crate) fn read(&mut self, buf: &mut [u8]) -> Result<Option<usize>, FetchError> {
        let got = self.got;
        match self.body.read(buf).map_err(Error::from) {
            Ok(0) if self.length.is_none() && self.pace.with(|p| p.broken) => {
                let error = io::ErrorKind::ConnectionReset.into();
                Err(FetchError::Broken { got, error })
            }
            Ok(count) => {
                self.got += count as u64;
                Ok(Some(count))
            }
            Err(Error::Timeout(_)) => Ok(None),
            Err(Error::Io(error)) if is_late(&error) => Ok(None),
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(FetchError::Cut { got, expected: self.length })
            }
            Err(Error::Protocol(error)) => Err(FetchError::Malformed(error.to_string())),
            Err(error) => Err(FetchError::Broken { got, error: error.into_io() }),
        }
    }
}

/// The certificates that the system trusts, or those of the file that `SSL_CERT_FILE` names; read
/// once.
fn tls_config() -> Result<TlsConfig, FetchError> {
    static CONFIG: OnceLock<Result<TlsConfig, String>> = OnceLock::new();
    CONFIG.get_or_init(trusted).clone().map_err(FetchError::Tls)
}

fn trusted() -> Result<TlsConfig, String> {
    let named = std::env::var_os("SSL_CERT_FILE").filter(|v| !v.is_empty()).map(PathBuf::from);
    let usual = || USUAL.iter().map(PathBuf::from).find(|p| p.exists());
    let Some(file) = named.or_else(usual) else {
        return Err("no trusted certificates: install ca-certificates, or name a file with \
                    SSL_CERT_FILE"
            .into());
    };
    let show = |e: &dyn std::fmt::Display| format!("{}: {e}", file.display());
    let pem = std::fs::read(&file).map_err(|e| show(&e))?;
    let certificates: Vec<Certificate<'static>> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if certificates.is_empty() {
        return Err(show(&"it holds no certificates"));
    }
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build())
}
