//! What a Linux bzImage says of itself (Documentation/arch/x86/boot.rst, "The Real-Mode Kernel Header").

/// Offset of the magic `HdrS`.
const MAGIC_AT: usize = 0x202;
/// Offset of the 16-bit pointer to the version text, counted from 0x200.
const VERSION_PTR_AT: usize = 0x20e;
/// Longest version text that is read.
const MAX_VERSION: usize = 256;

/// Bytes from the start of the file that [`release`] needs at most: the pointer has 16 bits.
pub const HEAD_LEN: usize = 0x200 + 0x1_0000 + MAX_VERSION;

/// Why a file is not taken for a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KernelError {
    /// No `HdrS` where every x86 kernel since 2.4 has one.
    #[error("the file is not an x86 Linux kernel (bzImage)")]
    NotBzImage,
    /// The header is there; the version it points to is not.
    #[error("the kernel's header names no version")]
    NoVersion,
}

/// The kernel's release, as `uname -r` prints it and `/lib/modules` folders are named.
pub fn release(head: &[u8]) -> Result<String, KernelError> {
    if head.get(MAGIC_AT..MAGIC_AT + 4) != Some(b"HdrS") {
        return Err(KernelError::NotBzImage);
    }
    let pointer = head.get(VERSION_PTR_AT..VERSION_PTR_AT + 2).ok_or(KernelError::NoVersion)?;
    let start = 0x200 + usize::from(u16::from_le_bytes([pointer[0], pointer[1]]));
    let text = head.get(start..).ok_or(KernelError::NoVersion)?;
    let end =
        text.iter().take(MAX_VERSION).position(|b| matches!(b, 0 | b' ')).ok_or(KernelError::NoVersion)?;
    match std::str::from_utf8(&text[..end]) {
        Ok(release) if !release.is_empty() && start > 0x200 => Ok(release.to_owned()),
        _ => Err(KernelError::NoVersion),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn kernel(version: &[u8]) -> Vec<u8> {
        let mut head = vec![0; 0x400];
        head[MAGIC_AT..MAGIC_AT + 4].copy_from_slice(b"HdrS");
        head[VERSION_PTR_AT..VERSION_PTR_AT + 2].copy_from_slice(&0x100u16.to_le_bytes());
        head[0x300..0x300 + version.len()].copy_from_slice(version);
        head
    }

    #[test]
    fn the_release_ends_at_the_first_blank() {
        let head = kernel(b"6.1.0-13-amd64 (debian-kernel@lists.debian.org) #1 SMP");
        assert_eq!(release(&head), Ok("6.1.0-13-amd64".to_owned()));
    }

    #[test]
    fn what_is_no_kernel_is_named() {
        assert_eq!(release(b""), Err(KernelError::NotBzImage));
        assert_eq!(release(&[0; 4096]), Err(KernelError::NotBzImage));
        assert_eq!(release(&kernel(b"")), Err(KernelError::NoVersion));
        assert_eq!(release(&kernel(&[b'6'; 0x100])), Err(KernelError::NoVersion));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0x210..0x500)) {
            bytes[MAGIC_AT..MAGIC_AT + 4].copy_from_slice(b"HdrS");
            let _ = release(&bytes);
        }
    }
}
