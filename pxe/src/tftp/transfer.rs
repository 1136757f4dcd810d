//! One TFTP read transfer: what is sent next, given what came back.
//!
//! ```text
//!  RRQ without options ───────────────────▶ DATA 1 ─ACK 1▶ DATA 2 … ─ACK n▶ done
//!  RRQ with options ─▶ OACK ─ACK 0───────▶    │                (the last block is shorter than the others)
//!                        │                    │
//!                        └─ ERROR: done ◀─────┘   silence: the same packet again, MAX_RETRIES times
//! ```

use std::time::Duration;

use bytes::Bytes;

use super::slots::MAX_PER_CLIENT;

/// Longest request that is read. RFC 2347 allows 512 octets.
pub const MAX_REQUEST: usize = 1024;
/// Block size of RFC 1350.
const DEFAULT_BLOCK: usize = 512;
/// Largest block: 1500 octets of Ethernet, less 20 of IPv4, 8 of UDP and 4 of TFTP. Larger ones come in
/// fragments, which boot ROMs drop (field report T3).
const MAX_BLOCK: usize = 1468;
/// Smallest block of RFC 2348.
const MIN_BLOCK: usize = 8;
/// How long we wait for an answer where the client does not say.
const PATIENCE: Duration = Duration::from_secs(1);
/// Longest wait a client may ask for.
const MAX_TIMEOUT_S: u64 = 30;
/// How often a packet is sent again.
const MAX_RETRIES: u32 = 6;

const OP_RRQ: u16 = 1;
const OP_WRQ: u16 = 2;
const OP_DATA: u16 = 3;
const OP_ACK: u16 = 4;
const OP_ERROR: u16 = 5;
const OP_OACK: u16 = 6;

/// Why a request is not served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// No request, or one that is cut or has bytes that are no text.
    #[error("malformed TFTP request")]
    Malformed,
    /// Longer than [`MAX_REQUEST`].
    #[error("TFTP request longer than {MAX_REQUEST} bytes")]
    TooLong,
    /// A write request.
    #[error("this TFTP server is read-only")]
    ReadOnly,
    /// `netascii` and `mail` would change the bytes.
    #[error("only TFTP mode octet is served")]
    Mode,
    /// Not one of our boot files.
    #[error("no boot file `{0}`")]
    NotFound(String),
    /// Its client has as many transfers as it may.
    #[error(
        "{MAX_PER_CLIENT} TFTP transfers to this address are under way, which is the most for one client"
    )]
    ClientFull,
}

impl RequestError {
    /// The ERROR packet to send; none where the packet was no request.
    pub fn packet(&self) -> Option<Vec<u8>> {
        let code = match self {
            Self::Malformed | Self::TooLong => return None,
            Self::ClientFull => 0,
            Self::NotFound(_) => 1,
            Self::ReadOnly => 2,
            Self::Mode => 4,
        };
        let mut packet = words(&[OP_ERROR, code]);
        packet.extend(self.to_string().bytes());
        packet.push(0);
        Some(packet)
    }
}

/// A read request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The file, as asked for.
    pub file: String,
    /// Options that we honour, with the value we answer. Unknown ones are left out, as RFC 2347 wants it.
    options: Options,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Options {
    block_size: Option<usize>,
    timeout_s: Option<u64>,
    wants_size: bool,
}

impl Request {
    /// Reads a request packet.
    pub fn parse(packet: &[u8]) -> Result<Self, RequestError> {
        if packet.len() > MAX_REQUEST {
            return Err(RequestError::TooLong);
        }
        let [high, low, body @ ..] = packet else { return Err(RequestError::Malformed) };
        match u16::from_be_bytes([*high, *low]) {
            OP_RRQ => {}
            OP_WRQ => return Err(RequestError::ReadOnly),
            _ => return Err(RequestError::Malformed),
        }
        let text = body.strip_suffix(&[0]).and_then(|body| std::str::from_utf8(body).ok());
        let mut fields = text.ok_or(RequestError::Malformed)?.split('\0');
        let (Some(file), Some(mode)) = (fields.next(), fields.next()) else {
            return Err(RequestError::Malformed);
        };
        if !mode.eq_ignore_ascii_case("octet") {
            return Err(RequestError::Mode);
        }
        let mut options = Options::default();
        while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
            options.set(name, value);
        }
        Ok(Self { file: file.to_owned(), options })
    }
}

impl Options {
    /// A value that makes no sense leaves the option out of the answer; it is never an error.
    fn set(&mut self, name: &str, value: &str) {
        let Ok(number) = value.parse::<u64>() else { return };
        if name.eq_ignore_ascii_case("blksize") {
            let size = usize::try_from(number).unwrap_or(usize::MAX);
            self.block_size = (size >= MIN_BLOCK).then_some(size.min(MAX_BLOCK));
        } else if name.eq_ignore_ascii_case("timeout") {
            self.timeout_s = (1..=MAX_TIMEOUT_S).contains(&number).then_some(number);
        } else if name.eq_ignore_ascii_case("tsize") {
            self.wants_size = true;
        }
    }

    fn oack(&self, size: usize) -> Option<Vec<u8>> {
        let mut packet = words(&[OP_OACK]);
        let mut push = |name: &str, value: u64| packet.extend(format!("{name}\0{value}\0").bytes());
        if let Some(block_size) = self.block_size {
            push("blksize", block_size as u64);
        }
        if let Some(timeout_s) = self.timeout_s {
            push("timeout", timeout_s);
        }
        if self.wants_size {
            push("tsize", size as u64);
        }
        (packet.len() > 2).then_some(packet)
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send this, then wait.
    Send(Vec<u8>),
    /// Wait on; the answer was none.
    Wait,
    /// The transfer is over, well or not.
    Done,
}

/// State of a transfer.
#[derive(Debug)]
pub struct Transfer {
    data: Bytes,
    block_size: usize,
    patience: Duration,
    oack: Option<Vec<u8>>,
    /// Block that was sent last, counted without wrapping; 0 is the OACK. On the wire its low 16 bits
    /// count, so that block 65535 is followed by 0 (field report T1).
    block: usize,
    retries: u32,
}

impl Transfer {
    /// A transfer of these bytes.
    pub fn new(request: &Request, data: Bytes) -> Self {
        let options = &request.options;
        Self {
            block_size: options.block_size.unwrap_or(DEFAULT_BLOCK),
            patience: options.timeout_s.map_or(PATIENCE, Duration::from_secs),
            oack: options.oack(data.len()),
            block: 0,
            retries: 0,
            data,
        }
    }

    /// How long to wait for an answer.
    pub fn patience(&self) -> Duration {
        self.patience
    }

    /// The first packet.
    pub fn start(&mut self) -> Step {
        self.block = usize::from(self.oack.is_none());
        Step::Send(self.current())
    }

    /// Takes a packet of the client.
    pub fn answer(&mut self, packet: &[u8]) -> Step {
        let [high, low, rest @ ..] = packet else { return Step::Wait };
        match (u16::from_be_bytes([*high, *low]), rest) {
            (OP_ERROR, _) => Step::Done,
            // A late copy of an older ACK must not make us send anything twice (RFC 1123 section 4.2.3.1).
            (OP_ACK, [high, low, ..]) if u16::from_be_bytes([*high, *low]) == self.wire_block() => {
                self.retries = 0;
                if self.is_last() {
                    return Step::Done;
                }
                self.block += 1;
                Step::Send(self.current())
            }
            _ => Step::Wait,
        }
    }

    /// Nothing came in time.
    pub fn silence(&mut self) -> Step {
        if self.retries == MAX_RETRIES {
            return Step::Done;
        }
        self.retries += 1;
        Step::Send(self.current())
    }

    #[allow(clippy::cast_possible_truncation)] // that is how TFTP counts
    fn wire_block(&self) -> u16 {
        self.block as u16
    }

    fn is_last(&self) -> bool {
        self.block > 0 && self.block * self.block_size > self.data.len()
    }

    fn current(&self) -> Vec<u8> {
        if let (0, Some(oack)) = (self.block, &self.oack) {
            return oack.clone();
        }
        let from = (self.block - 1) * self.block_size;
        let to = (from + self.block_size).min(self.data.len());
        let mut packet = words(&[OP_DATA, self.wire_block()]);
        packet.extend_from_slice(&self.data[from..to]);
        packet
    }
}

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request(options: &str) -> Request {
        Request::parse(format!("\0\x01ipxe.efi\0octet\0{options}").as_bytes()).unwrap()
    }

    #[test]
    fn t3_a_large_block_size_is_clamped_never_refused() {
        for (asked, granted) in [("1468", "1468"), ("1469", "1468"), ("65464", "1468"), ("99999", "1468")] {
            let mut transfer = Transfer::new(&request(&format!("BLKSIZE\0{asked}\0")), Bytes::new());
            let expected = format!("\0\x06blksize\0{granted}\0").into_bytes();
            assert_eq!(transfer.start(), Step::Send(expected), "{asked}");
        }
        for asked in ["7", "0", "-1", "x", ""] {
            let mut transfer = Transfer::new(&request(&format!("blksize\0{asked}\0")), Bytes::new());
            assert_eq!(transfer.start(), Step::Send(vec![0, 3, 0, 1]), "{asked}: RFC 1350 without options");
        }
    }

    #[test]
    fn a_file_of_whole_blocks_ends_with_an_empty_one() {
        let mut transfer = Transfer::new(&request(""), Bytes::from(vec![7; 512]));
        assert!(matches!(transfer.start(), Step::Send(packet) if packet.len() == 516));
        assert_eq!(transfer.answer(&[0, 4, 0, 1]), Step::Send(vec![0, 3, 0, 2]));
        assert_eq!(transfer.answer(&[0, 4, 0, 1]), Step::Wait, "an ACK seen before");
        assert_eq!(transfer.answer(&[0, 4, 0, 2]), Step::Done);
    }

    #[test]
    fn silence_repeats_the_packet_and_ends() {
        let mut transfer = Transfer::new(&request("timeout\x003\0"), Bytes::new());
        let first = transfer.start();
        assert_eq!(transfer.patience(), Duration::from_secs(3));
        for _ in 0..MAX_RETRIES {
            assert_eq!(transfer.silence(), first);
        }
        assert_eq!(transfer.silence(), Step::Done);
    }

    #[test]
    fn requests_that_are_none_are_named() {
        let read = |packet: &[u8]| Request::parse(packet).unwrap_err();
        for packet in [&b""[..], b"\0", b"\0\x01", b"\0\x01a\0octet", b"\0\x01a\0", b"\0\x09a\0octet\0"] {
            assert_eq!(read(packet), RequestError::Malformed, "{packet:?}");
        }
        assert_eq!(read(b"\0\x01\xff\0octet\0"), RequestError::Malformed);
        assert_eq!(read(&[1; MAX_REQUEST + 1]), RequestError::TooLong);
        assert_eq!(read(b"\0\x02a\0octet\0"), RequestError::ReadOnly);
        assert_eq!(read(b"\0\x01a\0netascii\0"), RequestError::Mode);
        assert_eq!(RequestError::ReadOnly.packet().unwrap()[..4], [0, 5, 0, 2]);
        assert_eq!(RequestError::Malformed.packet(), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(packet: Vec<u8>, answers: Vec<Vec<u8>>) {
            let _ = Request::parse(&packet);
            let mut transfer = Transfer::new(&request("tsize\x000\0"), Bytes::from_static(b"abc"));
            transfer.start();
            for answer in answers {
                transfer.answer(&answer);
            }
        }
    }
}
