//! Which URLs an image may have.

use std::path::PathBuf;

use url::Url;

/// A checked URL of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ImageUrl {
    /// `http` or `https`, with a host.
    Web(Url),
    /// A file on control's own disk.
    File(PathBuf),
}

/// Checks a URL before anything is registered; the error says what would be right.
pub(super) fn check_url(text: &str) -> Result<ImageUrl, String> {
    let url = Url::parse(text).map_err(|e| format!("`{text}` is not a URL: {e}"))?;
    match url.scheme() {
        "http" | "https" => {
            if !url.username().is_empty() || url.password().is_some() {
                return Err(
                    "a user name or password in the URL would be shown to others; use a signed URL".into()
                );
            }
            Ok(ImageUrl::Web(url))
        }
        "file" => url
            .to_file_path()
            .map(ImageUrl::File)
            .map_err(|()| format!("`{text}` does not name a file; expected file:///path")),
        other => Err(format!("images are fetched by http, https or file, not by `{other}`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn i2_a_query_stays_whole() {
        let text = "http://mirror.example/x.gz?X-Sig=abc=&part=1%2F2";
        let Ok(ImageUrl::Web(url)) = check_url(text) else { panic!("refused") };
        assert_eq!(url.as_str(), text);
    }

    #[test]
    fn other_urls_are_refused() {
        assert_eq!(check_url("file:///var/lib/x.raw"), Ok(ImageUrl::File("/var/lib/x.raw".into())));
        for text in ["ftp://a/b", "x.raw", "file://host/x", "http://user:secret@a/b", "http://", ""] {
            let error = check_url(text).unwrap_err();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
