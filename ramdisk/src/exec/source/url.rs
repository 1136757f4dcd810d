//! The one kind of URL an image comes by: plain HTTP from the site, checked by digest.

use std::fmt;

use http::Uri;

/// Longest URL taken.
const MAX_LENGTH: usize = 2048;
const HTTP_PORT: u16 = 80;

/// A checked `http://` URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpUrl {
    host: String,
    port: u16,
    authority: String,
    path_and_query: String,
}

/// Why a text is no URL to fetch from.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// Longer than any site writes them.
    #[error("the image URL has {0} bytes; at most {MAX_LENGTH} are taken")]
    TooLong(usize),
    /// Not `http://host[:port]/path`.
    #[error("`{0}` is not an http:// URL; images come from the site by plain HTTP and are checked by digest")]
    NotHttp(String),
}

impl HttpUrl {
    /// Reads a URL. A query is kept whole (field report imaging I2).
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text.len() > MAX_LENGTH {
            return Err(UrlError::TooLong(text.len()));
        }
        let bad = || UrlError::NotHttp(text.chars().take(120).collect());
        let uri: Uri = text.parse().map_err(|_| bad())?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("http")).ok_or_else(bad)?;
        let host = authority.host();
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if authority.as_str().contains('@') || host.is_empty() {
            return Err(bad());
        }
        Ok(Self {
            host: host.to_owned(),
            port: authority.port_u16().unwrap_or(HTTP_PORT),
            authority: authority.as_str().to_owned(),
            path_and_query: uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string),
        })
    }

    /// Where to connect: a host name or address, and a port.
    pub fn address(&self) -> (&str, u16) {
        (&self.host, self.port)
    }

    /// The `Host` header.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The request target.
    pub fn path_and_query(&self) -> &str {
        &self.path_and_query
    }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path_and_query)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i2_a_query_stays_whole() {
        let text = "http://10.0.0.1:8080/blobs/x?X-Sig=abc=&a=b";
        let url = HttpUrl::parse(text).unwrap();
        assert_eq!(url.address(), ("10.0.0.1", 8080));
        assert_eq!(url.path_and_query(), "/blobs/x?X-Sig=abc=&a=b");
        assert_eq!(url.to_string(), text);
    }

    #[test]
    fn an_ipv6_host_loses_its_brackets_only_for_connecting() {
        let url = HttpUrl::parse("http://[fd00::1]/x").unwrap();
        assert_eq!((url.address(), url.authority()), (("fd00::1", 80), "[fd00::1]"));
    }

    #[test]
    fn other_texts_are_refused() {
        let no_host = ["http:///x", "http://[]/"];
        let other = ["", "/blobs/x", "https://10.0.0.1/x", "ftp://a/b", "http://u:p@h/x"];
        for text in no_host.into_iter().chain(other) {
            assert!(matches!(HttpUrl::parse(text), Err(UrlError::NotHttp(_))), "{text}");
        }
        let long = format!("http://h/{}", "x".repeat(MAX_LENGTH));
        assert_eq!(HttpUrl::parse(&long), Err(UrlError::TooLong(MAX_LENGTH + 9)));
    }
}
