//! The connection to the collector.
//!
//! In: the OTLP configuration. Out: channels that connect when they are first used and again whenever they broke, with
//! a new look-up of the name, and [`answer`], which bounds one call.
//! What can go wrong: the configuration (found at start); the collector may be away, hang or refuse ([`Failure`]).

use std::fs::File;
use std::future::Future;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Response, Status};

use super::retry::{self, Verdict};
use crate::config::OtlpConfig;
use crate::model::plain::is_plain;

/// An OTLP configuration that cannot work.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// Not a URL that can be connected to.
    #[error(
        "OTLP endpoint {endpoint:?}: {what}; set OTEL_EXPORTER_OTLP_ENDPOINT to http://HOST:PORT or https://HOST:PORT"
    )]
    Endpoint {
        /// As configured.
        endpoint: String,
        /// What is wrong with it.
        what: String,
    },
    /// Not a header.
    #[error(
        "OTLP header {name:?} has a name or value that HTTP does not allow; correct OTEL_EXPORTER_OTLP_HEADERS"
    )]
    Header {
        /// Its name; the value may be a secret.
        name: String,
    },
    /// A certificate or key that cannot be read.
    #[error(
        "{path}: {error}; correct OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE or _CLIENT_KEY, or the file's rights"
    )]
    File {
        /// The file.
        path: PathBuf,
        /// The system's words.
        error: io::Error,
    },
    /// Certificates that TLS does not take.
    #[error(
        "TLS to {endpoint}: {what}; check the PEM files, or name trusted roots in OTEL_EXPORTER_OTLP_CERTIFICATE"
    )]
    Tls {
        /// As configured.
        endpoint: String,
        /// TLS's own words.
        what: String,
    },
}

/// Larger than any bundle of trusted roots.
const PEM_BYTES_MAX: u64 = 4 << 20;

/// Makes channels to one collector.
#[derive(Clone, Debug)]
pub struct Connector {
    config: OtlpConfig,
    headers: MetadataMap,
}

impl Connector {
    /// Checks endpoint and headers.
    ///
    /// # Errors
    /// [`OtlpError::Endpoint`], [`OtlpError::Header`].
    pub fn new(config: OtlpConfig) -> Result<Self, OtlpError> {
        let mut headers = MetadataMap::new();
        for (name, value) in &config.headers {
            let wrong = || OtlpError::Header { name: name.clone() };
            let key: AsciiMetadataKey = name.to_ascii_lowercase().parse().map_err(|_| wrong())?;
            let value: AsciiMetadataValue = value.parse().map_err(|_| wrong())?;
            headers.append(key, value);
        }
        let connector = Self { config, headers };
        connector.endpoint()?;
        Ok(connector)
    }

    /// A channel that connects when it is first used. Certificates are read now, so that renewed ones are taken.
    /// Must be called on the runtime.
    ///
    /// # Errors
    /// [`OtlpError::File`], [`OtlpError::Tls`].
    pub fn channel(&self) -> Result<Channel, OtlpError> {
        let mut endpoint = self.endpoint()?;
        if self.is_tls() {
            let wrong = |error: tonic::transport::Error| OtlpError::Tls {
                endpoint: self.config.endpoint.clone(),
                what: sources(&error),
            };
            endpoint = endpoint.tls_config(self.tls()?).map_err(wrong)?;
        }
        Ok(endpoint.connect_lazy())
    }

    /// A request with the configured headers and deadline.
    pub fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        *request.metadata_mut() = self.headers.clone();
        request.set_timeout(self.config.timeout);
        request
    }

    /// The configured headers.
    pub fn headers(&self) -> &MetadataMap {
        &self.headers
    }

    /// What it was made from.
    pub fn config(&self) -> &OtlpConfig {
        &self.config
    }

    fn is_tls(&self) -> bool {
        self.config.endpoint.to_ascii_lowercase().starts_with("https://")
    }

    fn endpoint(&self) -> Result<Endpoint, OtlpError> {
        let wrong = |what: String| OtlpError::Endpoint { endpoint: self.config.endpoint.clone(), what };
        let endpoint =
            Endpoint::from_shared(self.config.endpoint.clone()).map_err(|error| wrong(sources(&error)))?;
        let written = self.config.endpoint.to_ascii_lowercase();
        let is_http = written.starts_with("http://") || written.starts_with("https://");
        if !is_http || endpoint.uri().host().is_none_or(str::is_empty) {
            return Err(wrong("it is not a URL of http or https with a host".into()));
        }
        let authority = endpoint.uri().authority().map_or("", |authority| authority.as_str());
        let after_host = authority.rsplit_once(']').map_or(authority, |(_, after)| after);
        if after_host.contains(':') && endpoint.uri().port_u16().is_none() {
            return Err(wrong("its port is not a number up to 65535".into()));
        }
        // No HTTP/2 keep-alive: servers punish pings they find too frequent, and a call that gets no answer in time
        // brings a new connection anyway.
        let endpoint =
            endpoint.connect_timeout(self.config.timeout).tcp_keepalive(Some(Duration::from_secs(30)));
        endpoint.user_agent(concat!("warpgauge/", env!("CARGO_PKG_VERSION"))).map_err(|e| wrong(sources(&e)))
    }

    fn tls(&self) -> Result<ClientTlsConfig, OtlpError> {
        let mut tls = ClientTlsConfig::new();
        tls = match &self.config.ca_file {
            Some(path) => tls.ca_certificate(Certificate::from_pem(read_pem(path, "CERTIFICATE")?)),
            None => tls.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.config.client_identity {
            tls = tls.identity(Identity::from_pem(
                read_pem(certificate, "CERTIFICATE")?,
                read_pem(key, "PRIVATE KEY")?,
            ));
        }
        Ok(tls)
    }
}

/// A PEM file with a block of this kind; a wrong file would be noticed only when the collector is first called, and
/// then look like a fault of the collector.
fn read_pem(path: &Path, kind: &str) -> Result<Vec<u8>, OtlpError> {
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let read = || {
        if !std::fs::metadata(path)?.is_file() {
            return Err(wrong("it is not a regular file".to_owned()));
        }
        let mut pem = Vec::new();
        File::open(path)?.take(PEM_BYTES_MAX).read_to_end(&mut pem)?;
        let text = String::from_utf8_lossy(&pem);
        let has_block = text
            .lines()
            .any(|l| l.starts_with("-----BEGIN ") && l.trim_end().ends_with(&format!("{kind}-----")));
        if has_block { Ok(pem) } else { Err(wrong(format!("it has no PEM block of the kind {kind}"))) }
    };
    read().map_err(|error| OtlpError::File { path: path.into(), error })
}

/// A call without a good answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Whether to send it again.
    pub verdict: Verdict,
    /// What happened, for people.
    pub what: String,
    /// No answer came in time: the connection is not to be trusted any more.
    pub hung: bool,
    /// Nobody was asked: this process, or the node, has no file descriptor left for a connection.
    pub no_descriptors: bool,
}

/// Waits for the answer of a call, at most `timeout`.
///
/// # Errors
/// [`Failure`], judged by the rules of the specification.
pub async fn answer<T>(
    timeout: Duration,
    call: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(timeout, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => {
            let below = std::error::Error::source(&status);
            let what = format!("{:?}: {}", status.code(), chain(words(status.message()), below));
            let verdict = retry::judge(&status);
            Err(Failure { verdict, what, hung: false, no_descriptors: no_descriptors(below) })
        }
        Err(_) => {
            let what = format!("no answer within {timeout:?}");
            Err(Failure { verdict: Verdict::Retry(None), what, hung: true, no_descriptors: false })
        }
    }
}

/// Whether an error of the system that says so lies under this one.
fn no_descriptors(mut below: Option<&(dyn std::error::Error + 'static)>) -> bool {
    while let Some(error) = below {
        let of_system = error.downcast_ref::<io::Error>();
        if matches!(of_system.and_then(Errno::from_io_error), Some(Errno::MFILE | Errno::NFILE)) {
            return true;
        }
        // The source of an error that wraps another is that one's source.
        let wrapped = of_system
            .and_then(io::Error::get_ref)
            .map(|wrapped| wrapped as &(dyn std::error::Error + 'static));
        below = wrapped.or_else(|| error.source());
    }
    false
}

/// What the other side said, fit for a log line: no control or format characters, and not without end.
pub fn words(said: &str) -> String {
    said.chars().filter(|c| is_plain(*c)).take(300).collect()
}

/// An error with all that lies under it: "transport error" alone says nothing.
fn sources(error: &dyn std::error::Error) -> String {
    chain(error.to_string(), error.source())
}

fn chain(mut text: String, mut below: Option<&dyn std::error::Error>) -> String {
    while let Some(error) = below {
        let words = error.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        below = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_dir::TestDir;

    fn config(endpoint: &str) -> OtlpConfig {
        OtlpConfig {
            endpoint: endpoint.into(),
            headers: Vec::new(),
            timeout: Duration::from_secs(1),
            gzip: false,
            ca_file: None,
            client_identity: None,
            queue_records: 1,
        }
    }

    #[test]
    fn endpoints_are_checked_at_start() {
        for good in ["http://localhost:4317", "https://c.example:4317/", "http://[::1]:4317"] {
            assert!(Connector::new(config(good)).is_ok(), "{good}");
        }
        for bad in ["", "localhost:4317", "localhost", "ftp://h:1", "http://", "http://h:99999", "unix:///x"]
        {
            let error = Connector::new(config(bad)).err().map(|error| error.to_string());
            assert!(error.is_some_and(|e| e.contains("OTEL_EXPORTER_OTLP_ENDPOINT")), "{bad}");
        }
    }

    #[test]
    fn headers_are_sent_and_a_bad_one_is_named_without_its_value() {
        let mut good = config("http://h:1");
        good.headers = vec![("X-Scope-OrgID".into(), "gpu".into())];
        let request = Connector::new(good).unwrap().request(());
        assert_eq!(request.metadata().get("x-scope-orgid").unwrap(), "gpu");
        assert_eq!(request.metadata().get("grpc-timeout").unwrap(), "1000000u");
        let mut bad = config("http://h:1");
        bad.headers = vec![("auth".into(), "se\ncret".into())];
        let error = Connector::new(bad).unwrap_err().to_string();
        assert!(error.contains("\"auth\"") && !error.contains("cret"), "{error}");
    }

    #[test]
    fn what_the_other_side_says_is_cut_and_cleaned() {
        assert_eq!(words("a\u{1b}[2J\nb"), "a[2Jb");
        assert_eq!(words(&"x".repeat(5_000)).len(), 300);
    }

    #[tokio::test]
    async fn descriptors_that_ran_out_are_not_taken_for_a_collector_that_is_away() {
        for (errno, want) in [(Errno::MFILE, true), (Errno::NFILE, true), (Errno::CONNREFUSED, false)] {
            let deep = io::Error::other(io::Error::other(io::Error::from(errno)));
            let call = async { Err::<Response<()>, _>(Status::from_error(Box::new(deep))) };
            let failure = answer(Duration::from_secs(1), call).await.unwrap_err();
            assert_eq!(failure.no_descriptors, want, "{failure:?}");
        }
    }

    #[tokio::test]
    async fn certificates_that_cannot_be_read_or_used_are_named() {
        let mut config = config("https://h:1");
        config.ca_file = Some("/nonexistent/ca.pem".into());
        let error = Connector::new(config.clone()).unwrap().channel().unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/ca.pem: ") && error.contains("_CERTIFICATE"), "{error}");
        let dir = TestDir::new();
        let junk = dir.path().join("junk.pem");
        std::fs::write(&junk, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
        config.client_identity = Some((junk.clone(), junk.clone()));
        config.ca_file = Some(junk.clone());
        let error = Connector::new(config.clone()).unwrap().channel().unwrap_err().to_string();
        assert!(error.contains("no PEM block of the kind PRIVATE KEY"), "a certificate for a key: {error}");
        config.ca_file = Some("/dev/zero".into());
        let error = Connector::new(config.clone()).unwrap().channel().unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        let key = dir.path().join("key.pem");
        std::fs::write(&key, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
        config.client_identity = Some((junk.clone(), key));
        config.ca_file = Some(junk);
        assert!(matches!(Connector::new(config).unwrap().channel(), Err(OtlpError::Tls { .. })));
    }
}
