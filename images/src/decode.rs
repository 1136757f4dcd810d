//! From an encoded stream to the raw bytes of a disk.

use std::io::{self, BufReader, Read};

use flate2::bufread::MultiGzDecoder;

use crate::probe::Format;

/// Largest zstd window, as a power of two: 128 MiB, what `zstd --ultra -22` needs. A frame that asks for more
/// is refused, so that memory stays bounded.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;

/// Size of reads from the source in bytes.
const SOURCE_BUFFER: usize = 128 << 10;

/// A reader of the raw bytes. Several gzip members or zstd frames in a row are one stream. Bytes after the end
/// that begin no further member are an error, and so is a stream that ends too early.
pub fn decoder<'a>(source: impl Read + Send + 'a, format: Format) -> io::Result<Box<dyn Read + Send + 'a>> {
    let source = BufReader::with_capacity(SOURCE_BUFFER, source);
    Ok(match format {
        Format::Raw => Box::new(source),
        Format::Gzip => Box::new(MultiGzDecoder::new(source)),
        Format::Zstd => {
            let mut decoder = zstd::Decoder::with_buffer(source)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            Box::new(decoder)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zstd(bytes: &[u8]) -> Vec<u8> {
        zstd::encode_all(bytes, 1).unwrap()
    }

    fn decode(bytes: &[u8], format: Format) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decoder(bytes, format)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn members_and_frames_in_a_row_are_one_stream() {
        let gz = [gzip(b"first"), gzip(b"second")].concat();
        assert_eq!(decode(&gz, Format::Gzip).unwrap(), b"firstsecond");
        let zst = [zstd(b"first"), zstd(b"second")].concat();
        assert_eq!(decode(&zst, Format::Zstd).unwrap(), b"firstsecond");
    }

    #[test]
    fn trailing_garbage_and_truncation_are_errors() {
        for (whole, format) in [(gzip(b"content"), Format::Gzip), (zstd(b"content"), Format::Zstd)] {
            let trailing = [&whole[..], b"garbage that is no header"].concat();
            assert!(decode(&trailing, format).is_err(), "{format} with trailing bytes");
            assert!(decode(&whole[..whole.len() - 1], format).is_err(), "{format} cut");
        }
    }

    #[test]
    fn a_zstd_window_above_the_bound_is_refused() {
        // RFC 8878 3.1.1.1.2: exponent 18 is a window of 2^28 bytes; then one raw block of one byte, the last.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 18 << 3, 0x09, 0x00, 0x00, b'x'];
        assert!(decode(&frame, Format::Zstd).is_err());
        let mut fits = frame;
        fits[5] = 17 << 3;
        assert_eq!(decode(&fits, Format::Zstd).unwrap(), b"x");
    }
}
