//! Where a host engine listens.
//!
//! In: text of a user: `host`, `host:port`, `tcp://host:port`, `unix://path`, `/path`, `vsock://cid:port`.
//! Out: [`Address`]. What can go wrong: text that no engine could listen at; the error says what would be
//! right.

use std::fmt;
use std::path::PathBuf;

use crate::error::Error;

/// An engine's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// `host` or `host:port`; the port is 5555 if not said.
    Host(String),
    /// The path of a socket, usually `/tmp/nv-hostengine`.
    Unix(PathBuf),
    /// Anything that only libdcgm 4.5 and later can connect to, such as `vsock://2:5555`.
    Uri(String),
}

impl Address {
    /// Reads an address. What an older library can connect to too is not left a URI.
    ///
    /// ```
    /// use dcgm_ffi::Address;
    /// assert_eq!(Address::parse("tcp://node1:5555").unwrap(), Address::Host("node1:5555".into()));
    /// assert_eq!(Address::parse("unix:///run/engine").unwrap(), Address::Unix("/run/engine".into()));
    /// assert!(Address::parse("node1:99999").is_err());
    /// ```
    ///
    /// # Errors
    /// [`Error::Address`] with what is wrong.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let refuse = |why| Err(Error::Address { address: text.into(), why });
        if text.is_empty() {
            return refuse("it is empty");
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return refuse("it contains a blank or a control character");
        }
        if 255 < text.len() {
            return refuse("it is longer than 255 bytes");
        }
        if let Some(path) = text.strip_prefix("unix://") {
            return if path.starts_with('/') {
                Ok(Self::Unix(path.into()))
            } else {
                refuse("the socket's path must be absolute: unix:///path")
            };
        }
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        if let Some(place) = text.strip_prefix("vsock://") {
            return match place.rsplit_once(':') {
                Some((cid, port)) if is_number(cid) && is_number(port) => Ok(Self::Uri(text.into())),
                _ => refuse("a virtual machine's socket is written vsock://CID:PORT"),
            };
        }
        let host = text.strip_prefix("tcp://").unwrap_or(text);
        if host.contains("://") {
            return refuse("the scheme must be tcp, unix or vsock");
        }
        if host.starts_with('[') || 1 < host.matches(':').count() {
            // The older call takes what follows the first colon for a port.
            return Ok(Self::Uri(format!("tcp://{host}")));
        }
        match host.split_once(':') {
            Some(("", _)) | None if host.is_empty() || host.starts_with(':') => refuse("the host is missing"),
            Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port != 0) => Ok(Self::Host(host.into())),
            Some(_) => refuse("the port must be a number from 1 to 65535"),
            None => Ok(Self::Host(host.into())),
        }
    }
}

fn is_number(text: &str) -> bool {
    text.parse::<u32>().is_ok()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => f.write_str(host),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
            Self::Uri(uri) => f.write_str(uri),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let host = |text: &str| Address::Host(text.into());
        let cases = [
            ("localhost", host("localhost")),
            (" 10.0.0.1:5555 ", host("10.0.0.1:5555")),
            ("tcp://node", host("node")),
            ("/tmp/nv-hostengine", Address::Unix("/tmp/nv-hostengine".into())),
            ("unix:///run/e.sock", Address::Unix("/run/e.sock".into())),
            ("vsock://2:5555", Address::Uri("vsock://2:5555".into())),
            ("tcp://[::1]:5555", Address::Uri("tcp://[::1]:5555".into())),
            ("[::1]:5555", Address::Uri("tcp://[::1]:5555".into())),
        ];
        for (text, want) in cases {
            assert_eq!(Address::parse(text).unwrap(), want, "{text}");
            assert_eq!(Address::parse(&want.to_string()).unwrap(), want, "back from {want}");
        }
    }

    #[test]
    fn what_cannot_be_an_address_is_refused() {
        let long = "a".repeat(256);
        let texts = ["", "  ", ":5555", "tcp://", "node:", "node:0", "node:65536", "node:x", "http://node"];
        for text in
            texts.into_iter().chain(["unix://run/e", "vsock://2", "vsock://a:1", "a b", "a\0b", &long])
        {
            let error = Address::parse(text).unwrap_err();
            assert!(matches!(error, Error::Address { .. }), "{text}: {error}");
        }
    }
}
